//! The calls of the benchmark over Thrift, whose messages are those of a `.thrift` file.

use super::{
    callers,
    load::{Caller, Load},
    switchboard::{TIMEOUT, connect, verify},
};
use crate::services::{
    proto::thrift_bench::{BenchClient, BenchmarkMessage, EchoMessage},
    thrift_benchmark_message,
};
use bytes::Bytes;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Echo calls of `payload`.
pub fn echo(address: &str, payload: Bytes) -> Echo {
    Echo { address: address.to_owned(), payload }
}

/// Calls with the benchmark message.
pub fn message(address: &str) -> Message {
    Message { address: address.to_owned(), request: Arc::new(thrift_benchmark_message()) }
}

#[derive(Clone)]
pub struct Echo {
    address: String,
    payload: Bytes,
}

impl Load for Echo {
    type Connection = BenchClient;
    type Caller = EchoCaller;

    async fn connect(&self) -> Result<BenchClient, String> {
        connect(&self.address, false).await.map(BenchClient::new)
    }

    fn caller(&self, client: &BenchClient) -> EchoCaller {
        EchoCaller { client: client.clone(), payload: self.payload.clone() }
    }

    fn spawn(caller: EchoCaller) -> JoinHandle<()> {
        tokio::spawn(callers::closed_loop(caller))
    }
}

pub struct EchoCaller {
    client: BenchClient,
    payload: Bytes,
}

impl Caller for EchoCaller {
    async fn call(&mut self) -> Result<(), String> {
        let request = EchoMessage { payload: self.payload.clone() };
        let reply = self.client.echo(request).timeout(TIMEOUT).await.map_err(|status| status.to_string())?;
        verify(Some(&reply.payload), &self.payload)
    }
}

#[derive(Clone)]
pub struct Message {
    address: String,
    request: Arc<BenchmarkMessage>,
}

impl Load for Message {
    type Connection = BenchClient;
    type Caller = MessageCaller;

    async fn connect(&self) -> Result<BenchClient, String> {
        connect(&self.address, false).await.map(BenchClient::new)
    }

    fn caller(&self, client: &BenchClient) -> MessageCaller {
        MessageCaller { client: client.clone(), request: self.request.clone() }
    }

    fn spawn(caller: MessageCaller) -> JoinHandle<()> {
        tokio::spawn(callers::closed_loop(caller))
    }
}

pub struct MessageCaller {
    client: BenchClient,
    request: Arc<BenchmarkMessage>,
}

impl Caller for MessageCaller {
    async fn call(&mut self) -> Result<(), String> {
        let request = BenchmarkMessage::clone(&self.request);
        let reply =
            self.client.message(request).timeout(TIMEOUT).await.map_err(|status| status.to_string())?;
        if reply.field1 == "OK" && reply.field2 == 100 && reply.field103 == self.request.field103 {
            return Ok(());
        }
        Err(format!("a wrong reply: field1 {:?}, field2 {}", reply.field1, reply.field2))
    }
}
