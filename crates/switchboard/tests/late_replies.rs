//! A reply that comes after its caller gave up reaches no other caller, on every wire that many callers share.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use bytes::Bytes;
use std::sync::Arc;
use support::raw::soon;
use switchboard::{
    Call, Channel, ClientMethod, Codec, Kind, MethodInfo, Reply, Result, Server, Service, ServiceInfo,
};
use tokio::sync::{Notify, Semaphore};

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Gate",
    methods: &[MethodInfo::new("Pass", Kind::Unary), MethodInfo::new("Wait", Kind::Unary)],
    descriptor: &[],
};
static PASS: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Gate/Pass" };
static WAIT: ClientMethod = ClientMethod { service: &INFO, index: 1, path: "test.Gate/Wait" };

/// Replies with the message of the call: at once, or when the gate is opened.
#[derive(Clone)]
struct Gate {
    arrived: Arc<Notify>,
    open: Arc<Semaphore>,
}

impl Service for Gate {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let waits = call.method() == 1;
        let (message, cx) = call.into_one()?;
        if waits {
            self.arrived.notify_one();
            self.open.acquire().await.unwrap().forget();
        }
        Ok(Reply::one(message, cx))
    }
}

/// Options of channels; one connection each.
const WIRES: [&str; 14] = [
    "tcp://ADDRESS?",
    "tcp://ADDRESS?wire=baidu_std",
    "tcp://ADDRESS?wire=erpc",
    "tcp://ADDRESS?wire=erpc&framing=json",
    "tcp://ADDRESS?wire=hulu&index=test.Gate/Pass:0&index=test.Gate/Wait:1",
    "tcp://ADDRESS?wire=kiss&function=test.Gate/Pass:1&function=test.Gate/Wait:2",
    "tcp://ADDRESS?wire=rpcx",
    "tcp://ADDRESS?wire=sofa",
    "tcp://ADDRESS?wire=thrift",
    "tcp://ADDRESS?wire=thrift&protocol=header",
    "tcp://ADDRESS?wire=grpc",
    "tcp://ADDRESS?wire=connect&http=1",
    "ws://ADDRESS?",
    "ws://ADDRESS?wire=jsonrpc",
];

/// Calls of those who give up, and of those who come after them.
const CALLS: u64 = 8;

/// A message with a number in it, in every codec.
fn message(number: u64, codec: Codec) -> Bytes {
    match codec {
        Codec::Json => format!("{{\"n\":{number}}}").into(),
        Codec::Thrift => [&[10, 0, 1][..], &number.to_be_bytes(), &[0]].concat().into(),
        _ => [&[9][..], &number.to_le_bytes()].concat().into(),
    }
}

#[tokio::test]
async fn late_replies_reach_no_other_caller() {
    let gate = Gate { arrived: Arc::default(), open: Arc::new(Semaphore::new(0)) };
    let server = Server::new().add(gate.clone()).alias("kiss/1", PASS.path).alias("kiss/2", WAIT.path);
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let address = running.url().trim_start_matches("tcp://").to_owned();
    for wire in WIRES {
        let url = format!("{}&connections=1", wire.replace("ADDRESS", &address));
        let channel = Channel::connect(&url).await.unwrap();
        let codec = channel.codec(Codec::Proto);
        let call = |method, number| {
            let channel = channel.clone();
            async move {
                let sent = message(number, codec);
                let call = channel.unary(method, codec, Ok(sent.clone()), |_, bytes| Ok(bytes));
                (sent, call.await.map(switchboard::client::Response::into_inner))
            }
        };
        // Callers give up once the server has their calls.
        for number in 0..CALLS {
            let first = tokio::spawn(call(&WAIT, number));
            soon(gate.arrived.notified()).await;
            first.abort();
            assert!(first.await.is_err());
        }
        let mut second = Vec::new();
        for number in CALLS..2 * CALLS {
            second.push(tokio::spawn(call(&WAIT, number)));
            soon(gate.arrived.notified()).await;
        }
        // Handlers end in the order in which they came: those of the first callers first, where they still run.
        let permits = 2 * CALLS as usize;
        gate.open.add_permits(permits);
        for second in second {
            let (sent, reply) = soon(second).await.unwrap();
            assert_eq!(reply.unwrap(), sent, "{wire}: the reply of another caller");
        }
        let (sent, reply) = soon(call(&PASS, 7777)).await;
        assert_eq!(reply.unwrap(), sent, "{wire}: the reply of another caller");
        gate.open.forget_permits(permits);
    }
}
