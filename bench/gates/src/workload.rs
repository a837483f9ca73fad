//! The workloads: the calls of `bench/compare`, a fixed number of them.

#[cfg(feature = "messaging")]
use crate::messaging::{self, Deliveries};
use crate::services::{
    BenchService, TOKEN, ThriftBench, benchmark_message, guarded,
    proto::{
        bench::{BenchClient, BenchServer, BenchmarkMessage, EchoMessage},
        thrift_bench::{
            BenchClient as ThriftClient, BenchServer as ThriftServer, BenchmarkMessage as ThriftMessage,
        },
    },
    thrift_benchmark_message,
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use switchboard::{Channel, Limit, Running, Server, Status};
use tokio::sync::Semaphore;

/// One shape of load.
#[derive(Debug)]
pub(crate) struct Workload {
    name: &'static str,
    kind: Kind,
    /// Calls, or messages of a stream, that are under way at once.
    outstanding: usize,
    /// Appended to the address.
    wire: &'static str,
    /// The server is behind the default chain.
    chain: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Echo,
    Message,
    Stream,
    /// The message as one of a `.thrift` file.
    ThriftMessage,
    /// Entries of a topic.
    #[cfg(feature = "messaging")]
    Deliveries(Deliveries),
}

const ALL: &[Workload] = &[
    workload("echo-1", Kind::Echo, 1, ""),
    workload("echo-100", Kind::Echo, 100, ""),
    Workload { chain: true, ..workload("chain-echo-100", Kind::Echo, 100, "") },
    workload("grpc-echo-100", Kind::Echo, 100, "?wire=grpc"),
    workload("grpc-own-echo-100", Kind::Echo, 100, "?wire=grpc&engine=own"),
    workload("message-1", Kind::Message, 1, ""),
    workload("message-100", Kind::Message, 100, ""),
    workload("stream-100", Kind::Stream, 100, ""),
    workload("rpcx-echo-100", Kind::Echo, 100, "?wire=rpcx"),
    workload("baidu-echo-100", Kind::Echo, 100, "?wire=baidu_std"),
    workload("thrift-message-100", Kind::ThriftMessage, 100, "?wire=thrift"),
    #[cfg(feature = "messaging")]
    deliveries("zmtp-broadcast-50", Deliveries::Peers { peers: 50, batch: 1 }),
    #[cfg(feature = "messaging")]
    deliveries("zmtp-sub-1", Deliveries::Peers { peers: 1, batch: 1 }),
    #[cfg(feature = "messaging")]
    deliveries("zmtp-sub-100", Deliveries::Peers { peers: 1, batch: 100 }),
    #[cfg(feature = "messaging")]
    deliveries("bus-local-1", Deliveries::Process),
];

const fn workload(name: &'static str, kind: Kind, outstanding: usize, wire: &'static str) -> Workload {
    Workload { name, kind, outstanding, wire, chain: false }
}

#[cfg(feature = "messaging")]
const fn deliveries(name: &'static str, deliveries: Deliveries) -> Workload {
    workload(name, Kind::Deliveries(deliveries), 1, "")
}

/// As in the benchmark.
const ECHO_BYTES: usize = 100;
/// Calls have a deadline, as in the benchmark; under valgrind it must never pass.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Longer than any batch takes, so that the counts do not depend on the speed of the machine.
pub(crate) const TURN_MAX_MS: u64 = 60_000;

impl Workload {
    /// # Errors
    /// When there is none of this name; says which there are.
    pub(crate) fn named(name: &str) -> Result<&'static Self, String> {
        ALL.iter().find(|one| one.name == name).ok_or_else(|| {
            let names = ALL.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
            format!("there is no workload {name:?}: there are {names}")
        })
    }

    /// Starts the server on a free port.
    ///
    /// # Errors
    /// When it cannot listen.
    pub(crate) async fn serve(&self) -> Result<Running, String> {
        #[cfg(feature = "messaging")]
        if let Kind::Deliveries(_) = self.kind {
            return messaging::serve().await;
        }
        let server = Server::new().add(BenchServer::new(BenchService)).add(ThriftServer::new(ThriftBench));
        let server = if self.chain { guarded(server) } else { server };
        // Under valgrind a turn of the default length ends within a batch, and sooner the busier the machine is.
        let server = server.limit(Limit::ConnectionTurnMax, TURN_MAX_MS);
        server.listen("tcp://127.0.0.1:0").start().await.map_err(|error| error.to_string())
    }

    /// Makes `calls` in a closed loop on one connection to `address` and checks every reply; or has as many entries
    /// delivered.
    ///
    /// # Errors
    /// When a call fails or is answered wrongly.
    pub(crate) async fn make(&self, calls: u64, address: &str) -> Result<(), String> {
        #[cfg(feature = "messaging")]
        if let Kind::Deliveries(deliveries) = self.kind {
            return deliveries.make(calls, address).await;
        }
        let url = format!("tcp://{address}{}", self.wire);
        let channel = Channel::builder(&url).connections(1);
        let channel = if self.chain { channel.token(TOKEN) } else { channel };
        let channel = channel.connect().await.map_err(failed)?;
        let thrift = ThriftClient::new(channel.clone());
        let client = BenchClient::new(channel);
        if matches!(self.kind, Kind::Stream) {
            return stream(&client, calls, self.outstanding).await;
        }
        let message = Arc::new(benchmark_message());
        let thrift_message = Arc::new(thrift_benchmark_message());
        let callers: Vec<_> = (0..self.outstanding as u64)
            .map(|at| {
                let outstanding = self.outstanding as u64;
                let share = calls / outstanding + u64::from(at < calls % outstanding);
                match self.kind {
                    Kind::Message => tokio::spawn(call_message(client.clone(), message.clone(), share)),
                    Kind::ThriftMessage => {
                        tokio::spawn(call_thrift(thrift.clone(), thrift_message.clone(), share))
                    }
                    _ => tokio::spawn(call_echo(client.clone(), share)),
                }
            })
            .collect();
        for caller in callers {
            caller.await.map_err(|error| error.to_string())??;
        }
        Ok(())
    }
}

fn request() -> EchoMessage {
    let payload = (0..ECHO_BYTES).map(|at| (at % 251) as u8).collect::<Bytes>();
    EchoMessage { payload: Some(payload), ..Default::default() }
}

async fn call_echo(client: BenchClient, calls: u64) -> Result<(), String> {
    let request = request();
    for _ in 0..calls {
        let reply = client.echo(&request).encoded().timeout(TIMEOUT).await.map_err(failed)?;
        verify(reply.view().map_err(failed)?.payload == request.payload.as_deref())?;
    }
    Ok(())
}

async fn call_message(client: BenchClient, request: Arc<BenchmarkMessage>, calls: u64) -> Result<(), String> {
    for _ in 0..calls {
        let reply = client.message(&*request).encoded().timeout(TIMEOUT).await.map_err(failed)?;
        let reply = reply.view().map_err(failed)?;
        verify(reply.field1 == "OK" && reply.field103 == request.field103.as_deref())?;
    }
    Ok(())
}

async fn call_thrift(client: ThriftClient, request: Arc<ThriftMessage>, calls: u64) -> Result<(), String> {
    for _ in 0..calls {
        let reply = client.message(ThriftMessage::clone(&request)).timeout(TIMEOUT).await.map_err(failed)?;
        verify(reply.field1 == "OK" && reply.field103 == request.field103)?;
    }
    Ok(())
}

/// One bidirectional stream; every message is answered with itself.
async fn stream(client: &BenchClient, messages: u64, outstanding: usize) -> Result<(), String> {
    let (sender, mut replies) = client.stream().await.map_err(failed)?;
    let room = Arc::new(Semaphore::new(outstanding));
    let expected = request();
    let (sent, free) = (expected.clone(), room.clone());
    let sending = tokio::spawn(async move {
        for _ in 0..messages {
            free.acquire().await.map_err(|error| error.to_string())?.forget();
            sender.send(sent.clone()).await.map_err(failed)?;
        }
        sender.finish();
        Ok::<_, String>(())
    });
    let mut answered = 0;
    while let Some(reply) = replies.next().await.map_err(failed)? {
        verify(reply.payload == expected.payload)?;
        answered += 1;
        room.add_permits(1);
    }
    sending.await.map_err(|error| error.to_string())??;
    verify(answered == messages)
}

fn verify(is_right: bool) -> Result<(), String> {
    if is_right { Ok(()) } else { Err("a wrong reply".to_owned()) }
}

#[allow(clippy::needless_pass_by_value, reason = "made for map_err")]
fn failed(status: Status) -> String {
    status.to_string()
}
