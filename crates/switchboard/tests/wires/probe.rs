//! The service under test: it returns its requests and records its calls.

use crate::spec::{Pairs, pairs};
use buffa_types::google::protobuf::StringValue;
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use switchboard::{
    Call, ClientMethod, Codec, Cx, Kind, MethodInfo, Receiver, Reply, Result, Service, ServiceInfo, Status,
    codec::{proto, serde},
    codegen::stream_reply,
};

pub(crate) static INFO: ServiceInfo =
    ServiceInfo { name: "test.v1.Wires", methods: KNOWN.split_at(4).0, descriptor: &[] };

/// The service in a client of another version.
static NEWER: ServiceInfo = ServiceInfo { name: "test.v1.Wires", methods: KNOWN, descriptor: &[] };

const KNOWN: &[MethodInfo] = &[
    MethodInfo::new("Say", Kind::Unary),
    MethodInfo::new("Count", Kind::ServerStream),
    MethodInfo::new("Join", Kind::ClientStream),
    MethodInfo::new("Chat", Kind::Bidi),
    MethodInfo::new("Missing", Kind::Unary),
];

const fn method(index: u16, path: &'static str) -> ClientMethod {
    ClientMethod { service: &NEWER, index, path }
}

/// The methods of clients; the service does not have the last one.
pub(crate) static METHODS: [ClientMethod; 5] = [
    method(0, "test.v1.Wires/Say"),
    method(1, "test.v1.Wires/Count"),
    method(2, "test.v1.Wires/Join"),
    method(3, "test.v1.Wires/Chat"),
    method(4, "test.v1.Wires/Missing"),
];

/// A request with this text fails.
pub(crate) const FAIL: &str = "fail";
/// A request with this text fails after the handler has set head and trailers of its reply.
pub(crate) const FAIL_LATE: &str = "fail late";

/// Metadata that every reply has before its messages.
pub(crate) const HEAD: [(&str, &[u8]); 3] =
    [("x-head", b"first"), ("x-head", b"second, with a comma"), ("x-head-bin", b"\0\xff")];
/// Metadata that every reply has after its messages.
pub(crate) const TAIL: [(&str, &[u8]); 2] = [("x-tail", b"last"), ("x-tail-bin", b"")];

/// One call as its handler saw it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) method: &'static str,
    pub(crate) messages: Vec<String>,
    pub(crate) metadata: Pairs,
    pub(crate) has_deadline: bool,
    pub(crate) wire: &'static str,
}

/// The handler and its notes.
#[derive(Clone, Default)]
pub(crate) struct Probe(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    seen: Vec<Seen>,
    time_left: Option<Duration>,
}

impl Probe {
    /// Takes the calls since the last call of this method.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().unwrap().seen)
    }

    /// Time that the last handler had left when it began.
    pub(crate) fn last_time_left(&self) -> Option<Duration> {
        self.0.lock().unwrap().time_left
    }

    fn begin(&self, cx: &Cx) -> Seen {
        self.0.lock().unwrap().time_left = cx.time_left();
        Seen {
            method: cx.method().name,
            messages: Vec::new(),
            metadata: pairs(cx.metadata()),
            has_deadline: cx.deadline().is_some(),
            wire: cx.peer().wire(),
        }
    }

    /// Records a call that ends now; fails it if its last message requests that.
    fn end(&self, seen: Seen, cx: &Cx) -> Result<()> {
        let text = seen.messages.last().cloned().unwrap_or_default();
        self.0.lock().unwrap().seen.push(seen);
        if text != FAIL {
            for (name, value) in TAIL {
                cx.reply_trailer(name, value)?;
            }
        }
        if text == FAIL || text == FAIL_LATE { Err(failure()) } else { Ok(()) }
    }
}

/// The failure of every call that is to fail.
pub(crate) fn failure() -> Status {
    let mut status = Status::not_found("no such thing: \u{e9} % \u{1f980}\nline two")
        .with_detail("test.v1.Why", &b"\x08\x01"[..])
        .with_detail("test.v1.Why", &b""[..]);
    status.metadata_mut().insert("x-why", "because").unwrap();
    status.metadata_mut().insert("x-why", "so").unwrap();
    status.metadata_mut().insert("x-why-bin", &b"\0\xff"[..]).unwrap();
    status
}

/// Messages are texts: a `StringValue` in protobuf, and in JSON an object with the member `text`, since JSON-RPC takes
/// objects only.
pub(crate) fn encode(text: &String, codec: Codec) -> Result<Bytes> {
    match codec {
        Codec::Json => serde::encode(&BTreeMap::from([("text", text)]), codec),
        _ => proto::encode(&StringValue { value: text.clone(), ..Default::default() }, codec),
    }
}

pub(crate) fn decode(codec: Codec, bytes: Bytes) -> Result<String> {
    match codec {
        Codec::Json => {
            let mut members: BTreeMap<String, String> = serde::decode(codec, bytes)?;
            Ok(members.remove("text").unwrap_or_default())
        }
        _ => proto::decode::<StringValue>(codec, bytes).map(|text| text.value),
    }
}

fn head(cx: &Cx, text: &str) -> Result<()> {
    for (name, value) in HEAD.iter().filter(|_| text != FAIL) {
        cx.reply_metadata(name, *value)?;
    }
    Ok(())
}

impl Service for Probe {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, probe) = (call.codec(), self.clone());
        match call.method() {
            0 => {
                let (bytes, cx) = call.into_one()?;
                let mut seen = self.begin(&cx);
                let text: String = decode(codec, bytes)?;
                head(&cx, &text)?;
                seen.messages.push(text.clone());
                self.end(seen, &cx).map_err(|status| cx.failed(status))?;
                Ok(Reply::one(encode(&text, codec)?, cx))
            }
            1 => {
                let (bytes, cx) = call.into_one()?;
                let mut seen = self.begin(&cx);
                let text: String = decode(codec, bytes)?;
                Ok(stream_reply(cx, codec, encode, move |cx, out| async move {
                    head(&cx, &text)?;
                    for number in 1..=3 {
                        out.send(format!("{number} {text}")).await?;
                    }
                    seen.messages.push(text);
                    probe.end(seen, &cx)
                }))
            }
            2 => {
                let (raw, cx) = call.into_many();
                let mut seen = self.begin(&cx);
                let mut input = Receiver::of_request(raw, codec, decode);
                while let Some(text) = input.next().await? {
                    seen.messages.push(text);
                }
                head(&cx, seen.messages.last().map_or("", String::as_str))?;
                let all = seen.messages.concat();
                self.end(seen, &cx).map_err(|status| cx.failed(status))?;
                Ok(Reply::one(encode(&all, codec)?, cx))
            }
            _ => {
                let (raw, cx) = call.into_many();
                let mut seen = self.begin(&cx);
                let mut input = Receiver::of_request(raw, codec, decode);
                Ok(stream_reply(cx, codec, encode, move |cx, out| async move {
                    head(&cx, "")?;
                    while let Some(text) = input.next().await? {
                        out.send(format!("<{text}>")).await?;
                        seen.messages.push(text);
                    }
                    probe.end(seen, &cx)
                }))
            }
        }
    }
}
