//! The client: the generated stub, with the Connect protocol for unary calls and gRPC for the stream.

use crate::{
    proto::{BenchClient, BenchmarkMessage, EchoMessage},
    transport::Transport,
};
use bytes::Bytes;
use connectrpc::{
    ConnectError, Protocol,
    client::{ClientConfig, HttpClient},
};
use http::Uri;
use rustpeer::{DEADLINE, MESSAGE_BYTES_MAX, Messages, Replies};
use std::{net::SocketAddr, sync::Arc};
use tokio_stream::StreamExt;

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct Connection {
    unary: BenchClient<Transport>,
    streams: BenchClient<Transport>,
    message: Arc<BenchmarkMessage>,
}

impl Connection {
    fn on(transport: Transport, address: SocketAddr) -> Result<Self, String> {
        let uri: Uri = format!("http://{address}").parse().map_err(|error| format!("{address}: {error}"))?;
        let config = ClientConfig::new(uri).with_default_max_message_size(MESSAGE_BYTES_MAX);
        let unary = config.clone().with_default_timeout(DEADLINE);
        // Without a deadline: it would be that of the whole stream.
        let streams = config.with_protocol(Protocol::Grpc);
        Ok(Self {
            unary: BenchClient::new(transport.clone(), unary),
            streams: BenchClient::new(transport, streams),
            message: Arc::new(rustpeer::benchmark_message!(BenchmarkMessage)),
        })
    }
}

impl rustpeer::Connection for Connection {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        Self::on(Transport::http2(address).await?, address)
    }

    async fn open_once(address: SocketAddr) -> Result<Self, String> {
        Self::on(Transport::Once(Box::new(HttpClient::plaintext())), address)
    }

    async fn echo(&mut self, payload: &Bytes) -> Result<(), String> {
        let request = EchoMessage { payload: Some(payload.clone()), ..Default::default() };
        let reply = self.unary.echo(request).await.map_err(text)?;
        if reply.view().payload == Some(payload) {
            Ok(())
        } else {
            Err("the reply is not the payload".to_owned())
        }
    }

    async fn message(&mut self) -> Result<(), String> {
        let reply = self.unary.message(BenchmarkMessage::clone(&self.message)).await.map_err(text)?;
        rustpeer::verify_message!(reply.view())
    }

    async fn stream(&mut self, mut messages: Messages, replies: &mut Replies) -> Result<(), String> {
        let (mut requests, mut received) = self.streams.stream().await.map_err(text)?.into_split();
        let sending = async {
            while let Some(payload) = messages.next().await {
                let message = EchoMessage { payload: Some(payload), ..Default::default() };
                requests.send(message).await.map_err(text)?;
            }
            requests.close_send();
            Ok(())
        };
        let receiving = async {
            while let Some(reply) = received.message().await.map_err(text)? {
                replies.answered(reply.view().payload.unwrap_or_default())?;
            }
            Ok(())
        };
        tokio::try_join!(sending, receiving).map(|_| ())
    }
}

fn text(error: ConnectError) -> String {
    error.to_string()
}
