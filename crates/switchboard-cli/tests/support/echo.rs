//! The service of `fbs/echo.fbs`.

use std::{path::Path, sync::mpsc};
use switchboard::{Cx, Receiver, Result, Sender, Status};

include!("../../generated/fbs.echo.rs");

/// Returns its request; the text `fail` fails. Sends the numbers of notes to the channel.
struct Back(mpsc::Sender<i64>);

impl Echo for Back {
    async fn say(&self, message: Message, _cx: &Cx) -> Result<Message> {
        match message.text.as_deref() {
            Some("fail") => Err(Status::not_found("as you wish")),
            _ => Ok(message),
        }
    }

    async fn count(&self, message: Message, _cx: &Cx, out: Sender<Message>) -> Result<()> {
        for number in 0..message.number {
            out.send(Message { number, ..message.clone() }).await?;
        }
        Ok(())
    }

    async fn join(&self, mut input: Receiver<Message>, _cx: &Cx) -> Result<Message> {
        let mut joined = String::new();
        while let Some(message) = input.next().await? {
            joined += message.text.as_deref().unwrap_or_default();
        }
        Ok(Message { text: Some(joined), ..Message::default() })
    }

    async fn chat(&self, mut input: Receiver<Message>, _cx: &Cx, out: Sender<Message>) -> Result<()> {
        while let Some(message) = input.next().await? {
            out.send(message).await?;
        }
        Ok(())
    }

    async fn note(&self, message: Message, _cx: &Cx) -> Result<()> {
        self.0.send(message.number).map_err(|_| Status::internal("the test is over"))
    }
}

/// The path of the file.
pub fn file() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fbs/echo.fbs").to_str().unwrap().to_owned()
}

/// Where it is served, for as long as the tests run; and the numbers of notes. Functions of kiss-rpc: 7 says, 8 notes.
pub fn serve() -> (String, mpsc::Receiver<i64>) {
    let (sender, notes) = mpsc::channel();
    let server = switchboard::Server::new().add(EchoServer::new(Back(sender)));
    let server = server.alias("kiss/7", "fbs.echo.Echo/Say").alias("kiss/8", "fbs.echo.Echo/Note");
    (super::serve(server), notes)
}
