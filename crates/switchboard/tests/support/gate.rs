//! A service whose replies wait until the test opens a gate, on every wire.

use bytes::Bytes;
use std::sync::Arc;
use switchboard::{Call, ClientMethod, Codec, Kind, MethodInfo, Reply, Result, Service, ServiceInfo};
use tokio::sync::{Notify, Semaphore};

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Gate",
    methods: &[MethodInfo::new("Pass", Kind::Unary), MethodInfo::new("Wait", Kind::Unary)],
    descriptor: &[],
};
/// Replies at once.
pub static PASS: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Gate/Pass" };
/// Replies when the gate is opened.
pub static WAIT: ClientMethod = ClientMethod { service: &INFO, index: 1, path: "test.Gate/Wait" };

/// Addresses of channels on every wire that many callers share. For KISS the methods are `kiss/1` and
/// `kiss/2`.
pub const WIRES: [&str; 14] = [
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

/// Replies with the message of the call.
#[derive(Clone)]
pub struct Gate {
    /// Notified when a call of [`WAIT`] has started.
    pub arrived: Arc<Notify>,
    /// Each permit lets one call of [`WAIT`] reply.
    pub open: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { arrived: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }
}

impl Service for Gate {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let waits = call.method() == WAIT.index;
        let (message, cx) = call.into_one()?;
        if waits {
            self.arrived.notify_one();
            self.open.acquire().await.expect("the gate is never closed").forget();
        }
        Ok(Reply::one(message, cx))
    }
}

/// Encodes a message with a number in it.
pub fn message(number: u64, codec: Codec) -> Bytes {
    match codec {
        Codec::Json => format!("{{\"n\":{number}}}").into(),
        Codec::Thrift => [&[10, 0, 1][..], &number.to_be_bytes(), &[0]].concat().into(),
        // Field 1 of a message, 64 bits.
        _ => [&[9][..], &number.to_le_bytes()].concat().into(),
    }
}
