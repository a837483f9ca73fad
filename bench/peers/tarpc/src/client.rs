//! The client: the generated stub, whose calls a task of the connection sends and matches with replies.

use crate::{
    service::{BenchClient, BenchmarkMessage},
    transport,
};
use bytes::Bytes;
use std::{net::SocketAddr, sync::Arc};
use tarpc::{client::Config, context};
use tokio::net::TcpStream;

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct Connection {
    client: BenchClient,
    message: Arc<BenchmarkMessage>,
}

impl rustpeer::Connection for Connection {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut config = Config::default();
        // As many as any benchmark has callers.
        config.max_in_flight_requests = 10_000;
        config.pending_request_buffer = transport::QUEUE;
        let client = BenchClient::new(config, transport::on(stream)).spawn();
        Ok(Self { client, message: Arc::new(rustpeer::benchmark_message!(BenchmarkMessage)) })
    }

    async fn echo(&mut self, payload: &Bytes) -> Result<(), String> {
        // The deadline of a new context is 10 s away, as the contract of rivals has it.
        let reply =
            self.client.echo(context::current(), payload.clone()).await.map_err(|error| error.to_string())?;
        if reply == payload { Ok(()) } else { Err("the reply is not the payload".to_owned()) }
    }

    async fn message(&mut self) -> Result<(), String> {
        let message = Box::new(BenchmarkMessage::clone(&self.message));
        let reply =
            self.client.message(context::current(), message).await.map_err(|error| error.to_string())?;
        rustpeer::verify_message!(reply)
    }
}
