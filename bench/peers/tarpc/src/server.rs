//! The server: a task a connection and a task a call, as tarpc's examples do it.

use crate::{
    service::{self, BenchmarkMessage},
    transport,
};
use bytes::Bytes;
use futures::StreamExt;
use rustpeer::Accepted;
use tarpc::{
    context::Context,
    server::{BaseChannel, Channel, Config},
};

/// The service.
#[derive(Clone)]
pub(crate) struct Bench;

impl rustpeer::Server for Bench {
    async fn serve(mut connections: Accepted) -> Result<(), String> {
        use service::Bench as _;
        while let Some(stream) = connections.next().await {
            let stream = stream.map_err(|error| error.to_string())?;
            let config = Config { pending_response_buffer: transport::QUEUE };
            let calls = BaseChannel::new(config, transport::on(stream)).execute(Bench.serve());
            tokio::spawn(calls.for_each(|call| async move {
                tokio::spawn(call);
            }));
        }
        Ok(())
    }
}

impl service::Bench for Bench {
    async fn echo(self, _: Context, payload: Bytes) -> Bytes {
        payload
    }

    async fn message(self, _: Context, mut message: Box<BenchmarkMessage>) -> Box<BenchmarkMessage> {
        message.field1 = "OK".to_owned();
        message.field2 = 100;
        message
    }
}
