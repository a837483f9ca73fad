//! Links that drop and servers that die, on every wire that our channels speak: every call ends and says why, no reply
//! goes to another call, and callers come back.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use bytes::Bytes;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use support::{proxy::Proxy, raw::soon};
use switchboard::{
    Call, Channel, ClientMethod, Code, Codec, Kind, MethodInfo, Origin, Reply, Result, Retry, Running,
    Server, Service, ServiceInfo, Status,
};

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Holder",
    methods: &[MethodInfo::new("Show", Kind::Unary), MethodInfo::new("Hold", Kind::Unary)],
    descriptor: &[],
};
static SHOW: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Holder/Show" };
static HOLD: ClientMethod = ClientMethod { service: &INFO, index: 1, path: "test.Holder/Hold" };

/// Schemes and options of channels.
const WIRES: [(&str, &str); 24] = [
    ("tcp", ""),
    ("tcp", "wire=baidu_std"),
    ("tcp", "wire=connect"),
    ("tcp", "wire=connect&http=1"),
    ("tcp", "wire=erpc"),
    ("tcp", "wire=erpc&framing=proto&filter=gzip"),
    ("tcp", "wire=grpc"),
    ("tcp", "wire=grpc&engine=own"),
    ("tcp", "wire=grpc-web"),
    ("tcp", "wire=grpc-web&http=1"),
    ("tcp", "wire=grpc-web-text"),
    ("tcp", "wire=hulu&index=test.Holder/Show:0&index=test.Holder/Hold:1"),
    ("tcp", "wire=jsonrpc"),
    ("tcp", "wire=kiss&function=test.Holder/Show:1&function=test.Holder/Hold:2"),
    ("tcp", "wire=rpcx"),
    ("tcp", "wire=rpcx&network=http"),
    ("tcp", "wire=sofa"),
    ("tcp", "wire=thrift"),
    ("tcp", "wire=thrift&framed=false"),
    ("tcp", "wire=thrift&protocol=compact"),
    ("tcp", "wire=thrift&protocol=header"),
    ("ws", ""),
    ("ws", "wire=jsonrpc"),
    ("ws", "wire=rpcx"),
];
/// Calls at a time.
const CALLERS: u64 = 4;

/// Answers with the bytes that it gets, or never.
#[derive(Clone, Default)]
struct Holder {
    held: Arc<AtomicUsize>,
}

impl Service for Holder {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let held = (call.method() == HOLD.index).then(|| Held::new(&self.held));
        let (message, cx) = call.into_one()?;
        if held.is_some() {
            std::future::pending::<()>().await;
        }
        Ok(Reply::one(message, cx))
    }
}

/// A call that is held; dropped with it.
struct Held(Arc<AtomicUsize>);

impl Held {
    fn new(held: &Arc<AtomicUsize>) -> Held {
        held.fetch_add(1, Ordering::SeqCst);
        Held(held.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Holder {
    /// Waits until so many calls are held.
    async fn holds(&self, calls: usize) {
        soon(async {
            while self.held.load(Ordering::SeqCst) != calls {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn start(&self, address: &str) -> std::result::Result<Running, switchboard::Error> {
        let server = Server::new().add(self.clone()).alias("kiss/1", SHOW.path).alias("kiss/2", HOLD.path);
        server.listen(address).start().await
    }
}

/// A message with a number in it.
fn message(number: u64, codec: Codec) -> Bytes {
    match codec {
        Codec::Json => format!("{{\"n\":{number}}}").into(),
        // Field 1 of a struct, 64 bits, and its end.
        Codec::Thrift => [&[10, 0, 1][..], &number.to_be_bytes(), &[0]].concat().into(),
        // Field 1 of a message, 64 bits.
        _ => [&[9][..], &number.to_le_bytes()].concat().into(),
    }
}

/// Calls with a number, which must be that of the reply.
async fn call(channel: &Channel, method: &'static ClientMethod, number: u64) -> Result<()> {
    let codec = channel.codec(Codec::Proto);
    let sent = message(number, codec);
    let reply = channel.unary(method, codec, Ok(sent.clone()), |_, bytes| Ok(bytes)).await?;
    assert_eq!(*reply, sent, "the reply to another call");
    Ok(())
}

async fn channel(scheme: &str, address: &str, options: &str) -> Channel {
    let url = format!("{scheme}://{address}?{options}");
    let builder = Channel::builder(url.trim_end_matches('?')).backoff_max(Duration::from_millis(20));
    builder.connections(1).connect().await.unwrap()
}

async fn recovered(channel: &Channel, number: u64) {
    soon(async {
        while call(channel, &SHOW, number).await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn cut_link_ends_calls_on_every_wire_and_callers_come_back() {
    for (scheme, options) in WIRES {
        let holder = Holder::default();
        let running = holder.start("tcp://127.0.0.1:0").await.unwrap();
        let proxy = Proxy::to(&running).await;
        let address = proxy.address.to_string();
        let channel = channel(scheme, &address, options).await;
        let calls: Vec<_> = (0..CALLERS)
            .map(|number| {
                let channel = channel.clone();
                tokio::spawn(async move { call(&channel, &HOLD, number).await })
            })
            .collect();
        holder.holds(CALLERS as usize).await;
        proxy.cut();
        for call in calls {
            let status = soon(call).await.unwrap().unwrap_err();
            let known = (status.code(), status.origin(), status.retry());
            let lost = (Code::Unavailable, Origin::Connection, Retry::IfIdempotent);
            assert_eq!(known, lost, "{scheme} {options}: {status}");
            assert!(status.message().contains(&address), "{scheme} {options}: {status}");
        }
        // The server drops the calls as well: no caller waits for the replies.
        holder.holds(0).await;
        recovered(&channel, 7).await;
    }
}

#[tokio::test]
async fn killed_under_load_every_call_ends_on_every_wire_and_callers_come_back() {
    for (scheme, options) in WIRES {
        let mut running = Holder::default().start("tcp://127.0.0.1:0").await.unwrap();
        let url = running.url();
        let address = url.trim_start_matches("tcp://");
        let channel = channel(scheme, address, options).await;
        let stop = Arc::new(AtomicBool::new(false));
        let caller = |caller: u64| {
            let (channel, stop) = (channel.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut made, mut failed) = (0, Vec::<Status>::new());
                while !stop.load(Ordering::Relaxed) {
                    made += 1;
                    if let Err(status) = soon(call(&channel, &SHOW, caller << 32 | made)).await {
                        failed.push(status);
                    }
                    tokio::task::yield_now().await;
                }
                (made, failed)
            })
        };
        let callers: Vec<_> = (1..=CALLERS).map(caller).collect();
        for _ in 0..2 {
            recovered(&channel, 7).await;
            running.kill();
            soon(async { while call(&channel, &SHOW, 8).await.is_ok() {} }).await;
            // Connections of the old server keep the port for a moment.
            running = soon(async {
                loop {
                    match Holder::default().start(&url).await {
                        Ok(running) => return running,
                        Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                }
            })
            .await;
        }
        recovered(&channel, 9).await;
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            let (made, failed) = soon(caller).await.unwrap();
            assert!(made > failed.len() as u64, "{scheme} {options}");
            for status in failed {
                assert_eq!(status.code(), Code::Unavailable, "{scheme} {options}: {status}");
                assert!(status.message().contains(address), "{scheme} {options}: {status}");
            }
        }
    }
}
