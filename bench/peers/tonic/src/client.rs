//! The client: the generated stub on a channel of its own connection.

use crate::proto::{BenchmarkMessage, EchoMessage, bench_client::BenchClient};
use bytes::Bytes;
use rustpeer::{DEADLINE, MESSAGE_BYTES_MAX, Messages, Replies};
use std::{net::SocketAddr, sync::Arc};
use tokio_stream::StreamExt;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};

/// A channel to one server.
#[derive(Clone)]
pub(crate) struct Connection {
    client: BenchClient<Channel>,
    message: Arc<BenchmarkMessage>,
}

impl rustpeer::Connection for Connection {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
        let channel = endpoint.tcp_nodelay(true).connect().await.map_err(|error| format!("{error:?}"))?;
        let message = Arc::new(rustpeer::benchmark_message!(BenchmarkMessage));
        let client = BenchClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self { client, message })
    }

    async fn echo(&mut self, payload: &Bytes) -> Result<(), String> {
        let request = timed(EchoMessage { payload: Some(payload.clone()) });
        let reply = self.client.echo(request).await.map_err(text)?.into_inner();
        if reply.payload() == payload { Ok(()) } else { Err("the reply is not the payload".to_owned()) }
    }

    async fn message(&mut self) -> Result<(), String> {
        let request = timed(BenchmarkMessage::clone(&self.message));
        let reply = self.client.message(request).await.map_err(text)?.into_inner();
        rustpeer::verify_message!(reply)
    }

    async fn stream(&mut self, messages: Messages, replies: &mut Replies) -> Result<(), String> {
        let messages = messages.map(|payload| EchoMessage { payload: Some(payload) });
        let mut incoming = self.client.stream(messages).await.map_err(text)?.into_inner();
        while let Some(reply) = incoming.message().await.map_err(text)? {
            replies.answered(reply.payload())?;
        }
        Ok(())
    }
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

fn text(status: Status) -> String {
    format!("{}: {}", status.code(), status.message())
}
