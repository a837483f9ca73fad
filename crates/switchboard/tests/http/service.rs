//! The service that the tests call, and a server for it.

use buffa_types::google::protobuf::StringValue;
use std::sync::{Arc, LazyLock};
use switchboard::{
    Call, ClientMethod, Cx, Idempotency, Kind, Limit, MethodInfo, Receiver, Reply, Result, Running, Server,
    Service, ServiceInfo, Status,
    codec::proto::{decode, encode},
    codegen::stream_reply,
};
use tokio::sync::Semaphore;

static ECHO: LazyLock<ServiceInfo> =
    LazyLock::new(|| ServiceInfo { name: "test.v1.Echo", methods: METHODS, descriptor: descriptor().leak() });

const METHODS: &[MethodInfo] = &[
    MethodInfo::new("Say", Kind::Unary).idempotency(Idempotency::NoSideEffects),
    MethodInfo::new("Count", Kind::ServerStream),
    MethodInfo::new("Join", Kind::ClientStream),
    MethodInfo::new("Chat", Kind::Bidi),
    MethodInfo::new("Note", Kind::Unary).oneway(),
    MethodInfo::new("Write", Kind::Unary),
];

/// An encoded `FileDescriptorSet` of the service; its message `Text` has the bytes of a `StringValue`.
fn descriptor() -> Vec<u8> {
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let (low, high) = ((value.len() & 0x7F) as u8 | 0x80, (value.len() >> 7) as u8);
        [&[number << 3 | 2, low, high], value].concat()
    }
    let value = [&field(1, b"value")[..], b"\x18\x01\x20\x01\x28\x09"].concat();
    let text = [field(1, b"Text"), field(2, &value)].concat();
    let mut service = field(1, b"Echo");
    for method in METHODS {
        let (input, output) = (
            matches!(method.kind, Kind::Bidi | Kind::ClientStream),
            matches!(method.kind, Kind::Bidi | Kind::ServerStream),
        );
        let method = [
            field(1, method.name.as_bytes()),
            field(2, b".test.v1.Text"),
            field(3, b".test.v1.Text"),
            vec![0x28, input.into(), 0x30, output.into()],
        ];
        service.extend(field(2, &method.concat()));
    }
    let file = [
        field(1, b"test/v1/echo.proto"),
        field(2, b"test.v1"),
        field(4, &text),
        field(6, &service),
        field(12, b"proto3"),
    ];
    field(1, &file.concat())
}

/// Returns its request; the text of some requests selects another behaviour.
pub(crate) struct Echo {
    /// One permit for every handler that was dropped while it waited.
    pub(crate) dropped: Semaphore,
    /// One permit for every note that a handler has taken to its end.
    pub(crate) noted: Semaphore,
    /// A permit lets a note's handler go on.
    pub(crate) gate: Semaphore,
}

/// The methods of clients; the server does not have the last one.
pub(crate) fn methods() -> &'static [ClientMethod] {
    static ALL: LazyLock<Vec<ClientMethod>> = LazyLock::new(|| {
        let names = ["Say", "Count", "Join", "Chat", "Note", "Write"];
        let known = names.iter().zip(0..).map(|(name, index)| (*name, index)).chain([("Missing", 0)]);
        let path = |name: &str| &*format!("test.v1.Echo/{name}").leak();
        known.map(|(name, index)| ClientMethod { service: &ECHO, index, path: path(name) }).collect()
    });
    &ALL
}

pub(crate) fn echo() -> Arc<Echo> {
    Arc::new(Echo { dropped: Semaphore::new(0), noted: Semaphore::new(0), gate: Semaphore::new(0) })
}

/// A server on a port of its own.
pub(crate) async fn start(limits: &[(Limit, u64)]) -> (Arc<Echo>, Running) {
    let echo = echo();
    let server = Server::new().add(echo.clone()).listen_with("tcp://127.0.0.1:0", limits);
    (echo, server.start().await.unwrap())
}

pub(crate) fn text(value: impl Into<String>) -> StringValue {
    StringValue { value: value.into(), ..Default::default() }
}

struct Dropped<'a>(&'a Echo);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.dropped.add_permits(1);
    }
}

impl Echo {
    /// Calls with more and more time until a handler was dropped at its end: on a busy machine that may be over before
    /// the handler begins, and then there is none.
    pub(crate) async fn until_dropped(&self, call: impl AsyncFn(std::time::Duration)) {
        for millis in [30, 300, 3000, 30_000] {
            let time = std::time::Duration::from_millis(millis);
            call(time).await;
            if let Ok(dropped) = tokio::time::timeout(time.max(LATE * 10), self.dropped.acquire()).await {
                return dropped.unwrap().forget();
            }
        }
        panic!("the handler still hangs");
    }
}

/// A status with the words of a refusal for a message's size, and a detail.
fn resembling() -> Status {
    let status = Status::resource_exhausted("message size 12 exceeds limit 10");
    status.with_detail("test.v1.Why", &b"\x08\x01"[..])
}

/// A status whose text and metadata have spaces at their ends.
fn spaces() -> Status {
    let mut status = Status::aborted("  with spaces ");
    status.metadata_mut().insert("x-why", " because ").expect("text");
    status
}

/// How long "late" takes.
const LATE: std::time::Duration = std::time::Duration::from_millis(60);

impl Echo {
    async fn say(&self, input: &str, cx: &Cx) -> Result<StringValue> {
        match input {
            "fail" => {
                cx.reply_metadata("x-head", "first")?;
                cx.reply_trailer("x-end", "bye")?;
                let mut status =
                    Status::not_found("no such thing: \u{e9}%").with_detail("test.v1.Why", &b"\x08\x01"[..]);
                status.metadata_mut().insert("x-why", "because")?;
                status.metadata_mut().insert("x-why-bin", &b"\0\xff"[..])?;
                return Err(status);
            }
            "hang" => {
                let _dropped = Dropped(self);
                return std::future::pending().await;
            }
            "late" => {
                // Longer than its callers have time, in one turn; its answer is there in the next.
                std::thread::sleep(LATE);
                tokio::task::yield_now().await;
            }
            "panic" => panic!("ordered to"),
            "resemble" => return Err(resembling()),
            "spaces" => return Err(spaces()),
            "who" => return Ok(text(cx.peer().wire())),
            "metadata" => {
                let all = cx.metadata().iter();
                let lines = all.map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)));
                return Ok(text(lines.collect::<Vec<_>>().join("\n")));
            }
            "left" => return Ok(text(if cx.time_left().is_some() { "some" } else { "none" })),
            _ => {}
        }
        if let Some(tag) = cx.metadata().text("x-tag") {
            cx.reply_metadata("x-tag", tag.to_owned())?;
            cx.reply_trailer("x-end", "bye")?;
        }
        if let Some(tag) = cx.metadata().value("x-tag-bin") {
            cx.reply_metadata("x-tag-bin", tag.clone())?;
        }
        Ok(text(format!("hello {input}")))
    }
}

impl Service for Echo {
    fn info(&self) -> &'static ServiceInfo {
        &ECHO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        match call.method() {
            0 | 5 => {
                let (bytes, cx) = call.into_one()?;
                let input: StringValue = decode(codec, bytes)?;
                let reply = self.say(&input.value, &cx).await?;
                Ok(Reply::one(encode(&reply, codec)?, cx))
            }
            1 => {
                let (bytes, cx) = call.into_one()?;
                let input: StringValue = decode(codec, bytes)?;
                Ok(stream_reply(cx, codec, encode::<StringValue>, |cx, out| async move {
                    if input.value == "refuse plainly" {
                        return Err(Status::permission_denied("not you"));
                    }
                    cx.reply_metadata("x-head", "first")?;
                    match input.value.as_str() {
                        "late" => {
                            tokio::task::yield_now().await;
                            cx.reply_metadata("x-late", "yes")?;
                        }
                        "hang" => std::future::pending().await,
                        "resemble" => return Err(resembling()),
                        "resemble late" => {
                            // The head goes out meanwhile.
                            tokio::task::yield_now().await;
                            return Err(resembling());
                        }
                        "refuse" => {
                            cx.reply_trailer("x-end", "bye")?;
                            return Err(Status::permission_denied("not you"));
                        }
                        _ => {}
                    }
                    for number in 1..=3 {
                        out.send(text(number.to_string())).await?;
                    }
                    cx.reply_trailer("x-end", "bye")?;
                    cx.reply_trailer("x-end-bin", &b"\0"[..])?;
                    match input.value.as_str() {
                        "fail" => Err(Status::aborted("enough")),
                        "spaces" => Err(spaces()),
                        "hang after" => std::future::pending().await,
                        "panic" => panic!("ordered to"),
                        _ => Ok(()),
                    }
                }))
            }
            2 => {
                let (raw, cx) = call.into_many();
                let mut input = Receiver::of_request(raw, codec, decode::<StringValue>);
                let mut all = String::new();
                while let Some(word) = input.next().await? {
                    all.push_str(&word.value);
                }
                Ok(Reply::one(encode(&text(all), codec)?, cx))
            }
            3 => {
                let (raw, cx) = call.into_many();
                let mut input = Receiver::of_request(raw, codec, decode::<StringValue>);
                Ok(stream_reply(cx, codec, encode::<StringValue>, |cx, out| async move {
                    while let Some(word) = input.next().await? {
                        out.send(text(format!("<{}>", word.value))).await?;
                    }
                    cx.reply_trailer("x-end", "bye")
                }))
            }
            4 => {
                let (_, cx) = call.into_one()?;
                self.gate.acquire().await.unwrap().forget();
                self.noted.add_permits(1);
                Ok(Reply::one(bytes::Bytes::new(), cx))
            }
            other => Err(Status::unimplemented(format!("test.v1.Echo has no method number {other}"))),
        }
    }
}
