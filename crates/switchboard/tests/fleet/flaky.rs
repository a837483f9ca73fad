//! A service with configured failures that counts its calls.
#![allow(missing_docs, unreachable_pub, reason = "for these tests")]

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard::{
    Call, Channel, ClientMethod, Codec, Idempotency, Kind, MethodInfo, Reply, Result, Retry, Running, Sender,
    Server, ServerStreamCall, Service, ServiceInfo, Status, UnaryCall,
    codec::serde::{decode, encode},
    stream::stream_reply,
};
use tokio::sync::Notify;

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Flaky",
    methods: &[
        MethodInfo::new("Read", Kind::Unary).idempotency(Idempotency::NoSideEffects),
        MethodInfo::new("Write", Kind::Unary),
        MethodInfo::new("List", Kind::ServerStream).idempotency(Idempotency::NoSideEffects),
        MethodInfo::new("Note", Kind::Unary).oneway(),
    ],
    descriptor: &[],
};

pub static READ: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Flaky/Read" };
pub static WRITE: ClientMethod = ClientMethod { service: &INFO, index: 1, path: "test.Flaky/Write" };
pub static LIST: ClientMethod = ClientMethod { service: &INFO, index: 2, path: "test.Flaky/List" };
pub static NOTE: ClientMethod = ClientMethod { service: &INFO, index: 3, path: "test.Flaky/Note" };

/// Behaviour of a server for its calls.
#[derive(Clone, Copy, Debug)]
pub enum Mood {
    Fine,
    /// Fails so, before anything was done.
    Fails(switchboard::Code, Retry),
    /// Never answers.
    Hangs,
    /// Sends one message of a stream, then fails.
    Breaks,
}

pub struct Flaky {
    name: String,
    mood: Mutex<Mood>,
    pub calls: AtomicU64,
    pub hanging: AtomicU64,
    pub changed: Notify,
    /// Values of the metadata with the number of the attempt.
    pub attempts: Mutex<VecDeque<Option<String>>>,
}

/// One of several, and its server.
pub struct Node {
    pub flaky: Arc<Flaky>,
    pub running: Running,
}

pub async fn node(name: &str) -> Node {
    let flaky = Arc::new(Flaky {
        name: name.to_owned(),
        mood: Mutex::new(Mood::Fine),
        calls: AtomicU64::new(0),
        hanging: AtomicU64::new(0),
        changed: Notify::new(),
        attempts: Mutex::default(),
    });
    let server = Server::new().add(Shared(flaky.clone())).listen("tcp://127.0.0.1:0");
    Node { flaky, running: server.start().await.expect("start") }
}

/// Nodes `a`, `b` …
pub async fn nodes(count: u8) -> Vec<Node> {
    let mut nodes = Vec::new();
    for at in 0..count {
        nodes.push(node(&char::from(b'a' + at).to_string()).await);
    }
    nodes
}

/// A channel to all of them with these options, connected to each.
pub async fn channel(nodes: &[Node], options: &str) -> Channel {
    let urls: Vec<_> = nodes.iter().map(|node| node.running.url()).collect();
    let channel = Channel::connect(&format!("{}{options}", urls.join(","))).await.expect("connect");
    all_connected(&channel).await;
    channel
}

/// Ends once every endpoint of the channel is connected.
pub async fn all_connected(channel: &Channel) {
    crate::support::raw::soon(async {
        while channel.endpoints().iter().any(|endpoint| endpoint.state != "up") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

impl Node {
    pub fn set(&self, mood: Mood) {
        *self.flaky.mood.lock().unwrap() = mood;
    }

    pub fn flaky_name(&self) -> String {
        self.flaky.name.clone()
    }

    pub fn calls(&self) -> u64 {
        self.flaky.calls.load(Ordering::SeqCst)
    }

    pub async fn until_hanging(&self, count: u64) {
        crate::support::raw::soon(async {
            loop {
                let changed = self.flaky.changed.notified();
                if self.flaky.hanging.load(Ordering::SeqCst) == count {
                    return;
                }
                let _ = tokio::time::timeout(Duration::from_millis(50), changed).await;
            }
        })
        .await;
    }
}

struct Shared(Arc<Flaky>);

struct Hanging(Arc<Flaky>);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.hanging.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

impl Service for Shared {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, method) = (call.codec(), call.method());
        let (_, cx) = call.into_one()?;
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let attempt = cx.metadata().text("switchboard-attempt").map(str::to_owned);
        self.0.attempts.lock().unwrap().push_back(attempt);
        let mood = *self.0.mood.lock().unwrap();
        match mood {
            Mood::Fine => {}
            Mood::Fails(code, retry) => {
                return Err(Status::new(code, format!("{} fails", self.0.name)).with_retry(retry));
            }
            Mood::Hangs => {
                self.0.hanging.fetch_add(1, Ordering::SeqCst);
                let _hanging = Hanging(self.0.clone());
                self.0.changed.notify_waiters();
                std::future::pending::<()>().await;
            }
            Mood::Breaks => {}
        }
        let name = self.0.name.clone();
        if method == 2 {
            return Ok(stream_reply(cx, codec, encode::<String>, move |_, out: Sender<String>| async move {
                out.send(name.clone()).await?;
                match mood {
                    Mood::Breaks => Err(Status::unavailable("broken off").with_retry(Retry::Safe)),
                    _ => out.send(name).await,
                }
            }));
        }
        Ok(Reply::one(encode(&name, codec)?, cx))
    }
}

/// A call whose repetition does no harm.
pub fn read(channel: &Channel) -> UnaryCall<String> {
    let codec = channel.codec(Codec::Postcard);
    channel.unary(&READ, codec, encode(&0u8, codec), decode)
}

/// A call that must not be repeated unless its server says so.
pub fn write(channel: &Channel) -> UnaryCall<String> {
    let codec = channel.codec(Codec::Postcard);
    channel.unary(&WRITE, codec, encode(&0u8, codec), decode)
}

pub fn list(channel: &Channel) -> ServerStreamCall<String> {
    let codec = channel.codec(Codec::Postcard);
    channel.server_stream(&LIST, codec, encode(&0u8, codec), decode)
}

pub fn note(channel: &Channel) -> switchboard::OnewayCall {
    let codec = channel.codec(Codec::Postcard);
    channel.oneway(&NOTE, codec, encode(&0u8, codec))
}
