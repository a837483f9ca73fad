//! Switchboard as a subject: its server, and callers on its generated client.

use super::{
    callers,
    load::{Caller, Load},
    options::ServerArgs,
    process,
};
use crate::services::{
    self, benchmark_message,
    proto::bench::{BenchClient, BenchmarkMessage, EchoMessage},
};
use ::switchboard::{Channel, Limit, Runtime};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinHandle;

/// Calls have a deadline, as they should have in production; it is far enough to mean trouble when it passes.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Room for the largest of `bench sizes`.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Serves what the loads of this module call; prints its address first.
///
/// # Errors
/// When it cannot listen or accept.
pub(super) fn serve(args: &ServerArgs) -> Result<(), String> {
    Runtime::new().workers(args.workers as usize).run(async move {
        let server = services::server().limit(Limit::MessageBytesMax, MESSAGE_BYTES_MAX);
        let running = server.listen("tcp://127.0.0.1:0").start().await.map_err(|error| error.to_string())?;
        process::announce(running.url());
        process::end_with_parent();
        std::future::pending().await
    })
}

/// Echo calls of `payload`.
pub(super) fn echo(address: &str, payload: Bytes) -> impl Load {
    Echo { address: address.to_owned(), payload }
}

/// Calls with the benchmark message.
pub(super) fn message(address: &str) -> impl Load {
    Message { address: address.to_owned(), request: Arc::new(benchmark_message()) }
}

/// One connection of the current worker.
async fn connect(address: &str) -> Result<BenchClient, String> {
    let channel = Channel::builder(address).connections(1).limit(Limit::MessageBytesMax, MESSAGE_BYTES_MAX);
    Ok(BenchClient::new(channel.connect().await.map_err(|status| status.to_string())?))
}

#[derive(Clone)]
struct Echo {
    address: String,
    payload: Bytes,
}

impl Load for Echo {
    type Connection = BenchClient;
    type Caller = EchoCaller;

    async fn connect(&self) -> Result<BenchClient, String> {
        connect(&self.address).await
    }

    fn caller(&self, client: &BenchClient) -> EchoCaller {
        // One payload for all, as for the floor: its callers do not have one each either.
        let request = EchoMessage { payload: Some(self.payload.clone()), ..Default::default() };
        EchoCaller { client: client.clone(), request }
    }

    fn spawn(caller: EchoCaller) -> JoinHandle<()> {
        tokio::spawn(callers::closed_loop(caller))
    }
}

struct EchoCaller {
    client: BenchClient,
    request: EchoMessage,
}

impl Caller for EchoCaller {
    async fn call(&mut self) -> Result<(), String> {
        let reply = self
            .client
            .echo(&self.request)
            .encoded()
            .timeout(TIMEOUT)
            .await
            .map_err(|status| status.to_string())?;
        let reply = reply.view().map_err(|status| status.to_string())?;
        if reply.payload == self.request.payload.as_deref() {
            return Ok(());
        }
        let bytes = reply.payload.map_or(0, <[u8]>::len);
        Err(format!("a wrong reply of {bytes} bytes"))
    }
}

#[derive(Clone)]
struct Message {
    address: String,
    /// One for all callers, as in rpcx-benchmark; each call encodes it.
    request: Arc<BenchmarkMessage>,
}

impl Load for Message {
    type Connection = BenchClient;
    type Caller = MessageCaller;

    async fn connect(&self) -> Result<BenchClient, String> {
        connect(&self.address).await
    }

    fn caller(&self, client: &BenchClient) -> MessageCaller {
        MessageCaller { client: client.clone(), request: self.request.clone() }
    }

    fn spawn(caller: MessageCaller) -> JoinHandle<()> {
        tokio::spawn(callers::closed_loop(caller))
    }
}

struct MessageCaller {
    client: BenchClient,
    request: Arc<BenchmarkMessage>,
}

impl Caller for MessageCaller {
    async fn call(&mut self) -> Result<(), String> {
        let reply = self.client.message(&*self.request).encoded().timeout(TIMEOUT).await;
        let reply = reply.map_err(|status| status.to_string())?;
        let reply = reply.view().map_err(|status| status.to_string())?;
        if reply.field1 == "OK" && reply.field2 == 100 && reply.field103 == self.request.field103.as_deref() {
            return Ok(());
        }
        Err(format!("a wrong reply: field1 {:?}, field2 {}", reply.field1, reply.field2))
    }
}
