//! A service written by hand, as generated code would write it, and a client for it.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses its part")]

pub mod certificates;
pub mod gate;
pub mod mirror;
pub mod proxy;
pub mod raw;
pub mod resources;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use switchboard::{
    Call, Channel, ClientMethod, Code, Codec, Kind, Limit, MethodInfo, Receiver, Reply, Result, Running,
    Sender, Server, Service, ServiceInfo, Status,
    codec::serde::{decode, encode, encode_payload},
    stream::stream_reply,
};
use tokio::sync::Notify;

/// A service with a method for each kind of call and each kind of fault.
pub static PROBE: ServiceInfo = ServiceInfo {
    name: "test.Probe",
    methods: &[
        MethodInfo::new("Echo", Kind::Unary),
        MethodInfo::new("Fail", Kind::Unary),
        MethodInfo::new("Hang", Kind::Unary),
        MethodInfo::new("Panic", Kind::Unary),
        MethodInfo::new("Note", Kind::Unary).oneway(),
        MethodInfo::new("Count", Kind::ServerStream),
        MethodInfo::new("Sum", Kind::ClientStream),
        MethodInfo::new("Chat", Kind::Bidi),
        MethodInfo::new("Where", Kind::Unary).spawn(),
        MethodInfo::new("Relay", Kind::Unary),
        MethodInfo::new("Block", Kind::Unary),
        MethodInfo::new("Tally", Kind::ClientStream),
        MethodInfo::new("Mirror", Kind::Unary),
        MethodInfo::new("Meta", Kind::Unary),
    ],
    descriptor: &[],
};

macro_rules! methods {
    ($($name:ident $index:literal $path:literal;)*) => {
        $(pub static $name: ClientMethod = ClientMethod { service: &PROBE, index: $index, path: $path };)*
    };
}

methods! {
    ECHO 0 "test.Probe/Echo";
    FAIL 1 "test.Probe/Fail";
    HANG 2 "test.Probe/Hang";
    PANIC 3 "test.Probe/Panic";
    NOTE 4 "test.Probe/Note";
    COUNT 5 "test.Probe/Count";
    SUM 6 "test.Probe/Sum";
    CHAT 7 "test.Probe/Chat";
    WHERE 8 "test.Probe/Where";
    RELAY 9 "test.Probe/Relay";
    BLOCK 10 "test.Probe/Block";
    TALLY 11 "test.Probe/Tally";
    MIRROR 12 "test.Probe/Mirror";
    UNKNOWN 0 "test.Probe/Unknown";
}

static NOWHERE_INFO: ServiceInfo =
    ServiceInfo { name: "test.Nowhere", methods: &[MethodInfo::new("Echo", Kind::Unary)], descriptor: &[] };

/// A method of a service that no test serves.
pub static NOWHERE: ClientMethod =
    ClientMethod { service: &NOWHERE_INFO, index: 0, path: "test.Nowhere/Echo" };

/// Events of the handlers, for the test.
#[derive(Default)]
pub struct Seen {
    pub notes: AtomicU64,
    /// Handlers that are hanging now: dropped futures count down.
    pub hanging: AtomicUsize,
    /// Notified whenever one of the above changes.
    pub changed: Notify,
}

#[derive(Clone, Default)]
pub struct Probe {
    pub seen: Arc<Seen>,
    /// Where `Relay` calls on.
    pub next: Option<Channel>,
}

/// Bytes, on the wire as a vector of them; written and read in one piece, where builds without optimisation take a
/// vector element by element.
pub struct Blob(pub Vec<u8>);

impl serde::Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Blob;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob(bytes.to_vec()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut numbers: A) -> Result<Blob, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = numbers.next_element()? {
                    bytes.push(byte);
                }
                Ok(Blob(bytes))
            }
        }

        deserializer.deserialize_bytes(Visitor)
    }
}

struct Hanging(Arc<Seen>);

impl Hanging {
    fn new(seen: &Arc<Seen>) -> Hanging {
        seen.hanging.fetch_add(1, Ordering::SeqCst);
        seen.changed.notify_waiters();
        Hanging(seen.clone())
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.hanging.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

impl Seen {
    /// Waits until `condition` holds.
    pub async fn until(&self, condition: impl Fn(&Seen) -> bool) {
        loop {
            let changed = self.changed.notified();
            if condition(self) {
                return;
            }
            // The pause only covers a change between the check and the wait.
            let _ = tokio::time::timeout(Duration::from_millis(50), changed).await;
        }
    }

    pub fn hanging(&self) -> usize {
        self.hanging.load(Ordering::SeqCst)
    }
}

impl Service for Probe {
    fn info(&self) -> &'static ServiceInfo {
        &PROBE
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        match call.method() {
            0 => {
                let (bytes, cx) = call.into_one()?;
                let Blob(text) = decode(codec, bytes)?;
                for (name, value) in cx.metadata().iter() {
                    if name.starts_with("x-head") {
                        cx.reply_metadata(name, value.clone())?;
                    }
                    if name.starts_with("x-tail") {
                        cx.reply_trailer(name, value.clone())?;
                    }
                }
                Ok(Reply::one(encode_payload(&Blob(text), codec)?, cx))
            }
            1 => {
                let (bytes, _) = call.into_one()?;
                let text: String = decode(codec, bytes)?;
                let mut status = Status::not_found(text).with_detail("test.Detail", &b"\x08\x01"[..]);
                status.metadata_mut().insert("x-why", "because")?;
                Err(status)
            }
            2 => {
                let (_, _cx) = call.into_one()?;
                let _hanging = Hanging::new(&self.seen);
                std::future::pending().await
            }
            3 => panic!("a handler that panics"),
            4 => {
                let (bytes, cx) = call.into_one()?;
                self.seen.notes.fetch_add(decode::<u64>(codec, bytes)?, Ordering::SeqCst);
                self.seen.changed.notify_waiters();
                Ok(Reply::one(bytes::Bytes::new(), cx))
            }
            5 => {
                let (bytes, cx) = call.into_one()?;
                let (count, size): (u32, usize) = decode(codec, bytes)?;
                let seen = self.seen.clone();
                Ok(stream_reply(cx, codec, encode::<Blob>, move |cx, out: Sender<Blob>| async move {
                    let _hanging = Hanging::new(&seen);
                    cx.reply_metadata("x-head", "first")?;
                    for n in 0..count {
                        assert_ne!(count, 666, "a stream that panics");
                        out.send(Blob(vec![n as u8; size])).await?;
                    }
                    cx.reply_trailer("x-tail", "last")?;
                    if count == 13 { Err(Status::aborted("13 is unlucky")) } else { Ok(()) }
                }))
            }
            6 => {
                let (raw, cx) = call.into_many();
                let mut input = Receiver::of_request(raw, codec, decode::<u64>);
                let mut sum = 0u64;
                while let Some(n) = input.next().await? {
                    assert_ne!(n, 666_666, "a reader that panics");
                    sum += n;
                }
                Ok(Reply::one(encode_payload(&sum, codec)?, cx))
            }
            7 => {
                let (raw, cx) = call.into_many();
                let mut input = Receiver::of_request(raw, codec, decode::<String>);
                let seen = self.seen.clone();
                Ok(stream_reply(cx, codec, encode::<String>, move |_, out: Sender<String>| async move {
                    let _hanging = Hanging::new(&seen);
                    while let Some(text) = input.next().await? {
                        out.send(text.to_uppercase()).await?;
                    }
                    Ok(())
                }))
            }
            8 => {
                let (_, cx) = call.into_one()?;
                let name = std::thread::current().name().unwrap_or_default().to_owned();
                Ok(Reply::one(encode_payload(&name, codec)?, cx))
            }
            9 => {
                let (bytes, cx) = call.into_one()?;
                let next =
                    self.next.as_ref().ok_or_else(|| Status::failed_precondition("nowhere to relay to"))?;
                let text: Vec<u8> = decode(codec, bytes)?;
                let _: Vec<u8> = ask(next, &HANG, &text).await?;
                Ok(Reply::one(encode_payload(&text, codec)?, cx))
            }
            10 => {
                let (_, cx) = call.into_one()?;
                std::thread::sleep(Duration::from_millis(15));
                Ok(Reply::one(encode_payload(&cx.peer().wire(), codec)?, cx))
            }
            11 => {
                let (raw, cx) = call.into_many();
                let mut input = Receiver::of_request(raw, codec, |_, message| Ok(message.len()));
                let (mut messages, mut bytes) = (0u64, 0u64);
                while let Some(len) = input.next().await? {
                    messages += 1;
                    bytes += len as u64;
                }
                Ok(Reply::one(encode_payload(&(messages, bytes), codec)?, cx))
            }
            12 => {
                let (bytes, cx) = call.into_one()?;
                Ok(Reply::one(bytes, cx))
            }
            13 => {
                let (_, cx) = call.into_one()?;
                let names: Vec<String> = cx.metadata().iter().map(|(name, _)| name.to_string()).collect();
                Ok(Reply::one(encode_payload(&names, codec)?, cx))
            }
            other => Err(Status::unimplemented(format!("no method number {other}"))),
        }
    }
}

/// A unary call on postcard.
pub fn call<Q: serde::Serialize, R: serde::de::DeserializeOwned>(
    channel: &Channel,
    method: &'static ClientMethod,
    request: &Q,
) -> switchboard::UnaryCall<R> {
    channel.unary(method, Codec::Postcard, encode_payload(request, Codec::Postcard), decode::<R>)
}

/// The same, awaited.
pub async fn ask<Q: serde::Serialize, R: serde::de::DeserializeOwned>(
    channel: &Channel,
    method: &'static ClientMethod,
    request: &Q,
) -> Result<R> {
    call(channel, method, request).await.map(switchboard::Response::into_inner)
}

/// Calls a method that returns its bytes without decoding them.
pub async fn mirror(channel: &Channel, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let call = channel.unary(&MIRROR, Codec::Postcard, Ok(bytes), |_, reply| Ok(reply));
    call.await.map(|reply| reply.to_vec())
}

pub fn count(channel: &Channel, count: u32, size: usize) -> switchboard::ServerStreamCall<Vec<u8>> {
    let bytes = |codec, message| decode(codec, message).map(|Blob(bytes)| bytes);
    channel.server_stream(&COUNT, Codec::Postcard, encode(&(count, size), Codec::Postcard), bytes)
}

pub fn sum(channel: &Channel) -> switchboard::ClientStreamCall<u64, u64> {
    channel.client_stream(&SUM, Codec::Postcard, encode, decode)
}

/// Counts messages and bytes; the argument of `send` is the length of each message.
pub fn tally(channel: &Channel) -> switchboard::ClientStreamCall<usize, (u64, u64)> {
    channel.client_stream(&TALLY, Codec::Postcard, |len, _| Ok(vec![0u8; *len].into()), decode)
}

pub fn chat(channel: &Channel) -> switchboard::BidiCall<String, String> {
    channel.bidi(&CHAT, Codec::Postcard, encode, decode)
}

/// A name for `memory://` that no other test uses.
pub fn memory() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("memory://{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A served probe and a channel to it, on `address`.
pub async fn served(address: &str) -> (switchboard::Running, Channel, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let running = switchboard::Server::new().add(probe).listen(address).start().await.expect("start");
    let channel = Channel::connect(&running.url()).await.expect("connect");
    (running, channel, seen)
}

/// A served probe and a channel to it over a WebSocket.
#[cfg(feature = "http")]
pub async fn served_over_websocket() -> (switchboard::Running, Channel, Arc<Seen>) {
    served_over_websocket_with("").await
}

/// The same, with options of the channel; the server takes compression.
#[cfg(feature = "http")]
pub async fn served_over_websocket_with(options: &str) -> (switchboard::Running, Channel, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = switchboard::Server::new().add(probe).listen("tcp://127.0.0.1:0").websocket_deflate();
    let running = server.start().await.expect("start");
    let url = running.url().replace("tcp://", "ws://") + "/some/path" + options;
    let channel = Channel::connect(&url).await.expect("connect");
    (running, channel, seen)
}

/// A served probe and a channel to it over a WebSocket inside TLS, with an authority of its own.
#[cfg(all(feature = "http", feature = "tls"))]
pub async fn served_over_websocket_tls(
    options: &str,
) -> (switchboard::Running, Channel, certificates::Authority) {
    let authority = certificates::Authority::new("test authority");
    let tls = authority.issue("127.0.0.1").tls();
    let server = switchboard::Server::new().add(Probe::default()).listen_tls("tcp://127.0.0.1:0", tls);
    let running = server.websocket_deflate().start().await.expect("start");
    let url = running.url().replace("tls://", "wss://") + "/some/path" + options;
    let channel = Channel::builder(&url).ca(authority.ca()).connect().await.expect("connect");
    (running, channel, authority)
}

/// A served probe and a channel to it inside TLS, with an authority of its own.
#[cfg(feature = "tls")]
pub async fn served_tls() -> (switchboard::Running, Channel, certificates::Authority) {
    let authority = certificates::Authority::new("test authority");
    let tls = authority.issue("127.0.0.1").tls();
    let server = switchboard::Server::new().add(Probe::default()).listen_tls("tcp://127.0.0.1:0", tls);
    let running = server.start().await.expect("start");
    let channel = Channel::builder(&running.url()).ca(authority.ca()).connect().await.expect("connect");
    (running, channel, authority)
}

/// A server of the probe on a port of its own.
pub async fn start(limits: &[(Limit, u64)]) -> (Running, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = Server::new().add(probe).listen_with("tcp://127.0.0.1:0", limits);
    (server.start().await.expect("start"), seen)
}

/// So many bytes, there and back.
pub async fn echo_of(channel: &Channel, codec: Codec, size: usize) -> Result<Vec<u8>> {
    let call = channel.unary(&ECHO, codec, encode_payload(&Blob(vec![7; size]), codec), decode::<Blob>);
    raw::soon(call).await.map(|reply| reply.into_inner().0)
}

/// A one-way call that the probe hears, and a failure that comes back whole, in JSON.
pub async fn note_and_fail(channel: &Channel, seen: &Seen) {
    channel.oneway(&NOTE, Codec::Json, encode(&5u64, Codec::Json)).await.expect("it is sent");
    seen.until(|seen| seen.notes.load(Ordering::SeqCst) == 5).await;
    let failed = channel.unary(&FAIL, Codec::Json, encode_payload(&"why", Codec::Json), decode::<()>);
    let status = failed.await.expect_err("it fails");
    assert_eq!((status.code(), status.message()), (Code::NotFound, "why"));
    assert_eq!(status.details().len(), 1, "{status:?}");
    assert_eq!(status.details()[0].type_name, "test.Detail");
    assert_eq!(status.metadata().text("x-why"), Some("because"));
}
