//! Switchboard as a subject: its server, and callers on its generated client.

use super::{
    callers,
    load::{Caller, Load},
    options::ServerArgs,
    process,
};
use crate::{
    log::{self, Level},
    services::{
        self, TOKEN, ThriftBench, benchmark_message, guarded, kiss,
        proto::{
            bench::{BenchClient, BenchmarkMessage, EchoMessage},
            thrift_bench::BenchServer as ThriftBenchServer,
        },
    },
};
use ::switchboard::{Channel, ChannelBuilder, Limit, Running, Runtime, Server};
use bytes::Bytes;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::task::JoinHandle;

/// Deadline of calls, as recommended in production; long enough that it passes only when the server fails.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest message: fits the largest payload of `bench sizes`.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Serves the calls of this module; prints its address first.
///
/// # Errors
/// When it cannot listen or accept.
pub(super) fn serve(args: &ServerArgs) -> Result<(), String> {
    let chain = args.chain;
    Runtime::new().workers(args.workers as usize).run(async move {
        let running = if chain {
            log::install(Level::Info);
            listen(guarded(services::server()), Ipv4Addr::LOCALHOST.into()).await?
        } else {
            start(Ipv4Addr::LOCALHOST.into()).await?
        };
        process::report_address(running.url());
        process::end_with_parent();
        std::future::pending().await
    })
}

/// Starts the server on a free port of `host`, on the workers or the runtime of the caller.
///
/// # Errors
/// When it cannot listen.
pub async fn start(host: IpAddr) -> Result<Running, String> {
    listen(services::server(), host).await
}

async fn listen(server: Server, host: IpAddr) -> Result<Running, String> {
    kiss::named(server)
        .add(ThriftBenchServer::new(ThriftBench))
        .limit(Limit::MessageBytesMax, MESSAGE_BYTES_MAX)
        .listen(format!("tcp://{}", SocketAddr::new(host, 0)))
        .start()
        .await
        .map_err(|error| error.to_string())
}

/// Echo calls of `payload`.
pub fn echo(address: &str, payload: Bytes) -> Echo {
    Echo { address: address.to_owned(), payload, token: false }
}

/// Calls with the benchmark message.
pub fn message(address: &str) -> Message {
    Message { address: address.to_owned(), request: Arc::new(benchmark_message()), token: false }
}

/// Opens one connection of the current worker.
pub async fn connect(address: &str, token: bool) -> Result<Channel, String> {
    dial(to(address)?.connections(1), token).await
}

/// Creates a client with this many connections to each address of `url`.
///
/// # Errors
/// When none of the addresses can be reached.
pub async fn open(url: &str, connections: usize) -> Result<BenchClient, String> {
    dial(to(url)?.connections(connections), false).await.map(BenchClient::new)
}

/// Returns a channel to an address, or to the servers of a registry.
fn to(url: &str) -> Result<ChannelBuilder, String> {
    match switchboard_registry::is_registry(url) {
        true => switchboard_registry::fleet(url, "bench.v1.Bench").map_err(|status| status.to_string()),
        false => Ok(Channel::builder(url)),
    }
}

async fn dial(channel: ChannelBuilder, token: bool) -> Result<Channel, String> {
    let channel = if token { channel.token(TOKEN) } else { channel };
    let channel = channel.limit(Limit::MessageBytesMax, MESSAGE_BYTES_MAX);
    channel.connect().await.map_err(|status| status.to_string())
}

/// Checks that a reply has the payload of its request.
///
/// # Errors
/// When the payload differs.
pub fn verify(reply: Option<&[u8]>, payload: &[u8]) -> Result<(), String> {
    if reply == Some(payload) {
        return Ok(());
    }
    Err(format!("a wrong reply of {} bytes", reply.map_or(0, <[u8]>::len)))
}

#[derive(Clone)]
pub struct Echo {
    address: String,
    payload: Bytes,
    token: bool,
}

impl Echo {
    /// Makes callers send the token of the chain.
    pub fn with_token(self, token: bool) -> Self {
        Self { token, ..self }
    }
}

impl Load for Echo {
    type Connection = BenchClient;
    type Caller = EchoCaller;

    async fn connect(&self) -> Result<BenchClient, String> {
        connect(&self.address, self.token).await.map(BenchClient::new)
    }

    fn caller(&self, client: &BenchClient) -> EchoCaller {
        // One payload for all callers, as for the floor.
        let request = EchoMessage { payload: Some(self.payload.clone()), ..Default::default() };
        EchoCaller { client: client.clone(), request }
    }

    fn spawn(caller: EchoCaller) -> JoinHandle<()> {
        tokio::spawn(callers::closed_loop(caller))
    }
}

pub struct EchoCaller {
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
        verify(reply.payload, self.request.payload.as_deref().unwrap_or_default())
    }
}

#[derive(Clone)]
pub struct Message {
    address: String,
    /// One request for all callers, as in rpcx-benchmark; each call encodes it.
    request: Arc<BenchmarkMessage>,
    token: bool,
}

impl Message {
    /// Makes callers send the token of the chain.
    pub fn with_token(self, token: bool) -> Self {
        Self { token, ..self }
    }
}

impl Load for Message {
    type Connection = BenchClient;
    type Caller = MessageCaller;

    async fn connect(&self) -> Result<BenchClient, String> {
        connect(&self.address, self.token).await.map(BenchClient::new)
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
        let reply = self.client.message(&*self.request).encoded().timeout(TIMEOUT).await;
        let reply = reply.map_err(|status| status.to_string())?;
        let reply = reply.view().map_err(|status| status.to_string())?;
        if reply.field1 == "OK" && reply.field2 == 100 && reply.field103 == self.request.field103.as_deref() {
            return Ok(());
        }
        Err(format!("a wrong reply: field1 {:?}, field2 {}", reply.field1, reply.field2))
    }
}
