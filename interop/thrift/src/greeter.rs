//! A service of protobuf, to be called by Thrift.

use crate::generated::greet::v1::{GreetReply, GreetRequest, Greeter};
use switchboard::{Cx, Result, Sender, Status};

/// Handles `greet.v1.Greeter`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greetings;

impl Greeter for Greetings {
    async fn greet(&self, request: GreetRequest, cx: &Cx) -> Result<GreetReply> {
        if let Some(tenant) = cx.metadata().text("tenant") {
            cx.reply_metadata("served-for", tenant.to_owned())?;
        }
        let name = &request.person.name;
        if name.is_empty() {
            return Err(Status::not_found("the person is missing"));
        }
        Ok(GreetReply { text: format!("hello {name}"), person: request.person, ..Default::default() })
    }

    async fn watch(&self, request: GreetRequest, cx: &Cx, out: Sender<GreetReply>) -> Result<()> {
        out.send(self.greet(request, cx).await?).await
    }
}
