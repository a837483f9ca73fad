//! The protocols of Switchboard as pure state machines.
//!
//! A *wire* turns bytes into [events](wire::ServerEvent) and commands into bytes. It knows no socket, clock, task or
//! random source, so the same code runs in a server, in a test, in a fuzzer and in a simulator. The crate that
//! drives wires is `switchboard`; most users want that one.
//!
//! Reading order: [`status`] and [`metadata`] (the data of every call), [`method`] (names and numbers), [`http_rule`]
//! (paths of methods), [`http_text`] (conversion of text in paths), [`input`], [`outbox`] and [`outgoing`] (bytes in,
//! bytes out), [`wire`] (the traits), [`spec`] (descriptors of wires) and [`wires`] (their list), [`native`] (the
//! protocol of Switchboard), [`sniff`] (detection of the protocol of
//! a connection), [`websocket`] (frames of RFC 6455), [`centrifuge`], [`goim`], [`mqtt`], [`nats`], [`resp`] (Redis),
//! [`zmtp`] (ZeroMQ), [`jsonrpc`], and the wires of other frameworks: [`baidu`], [`erpc`], [`kiss`], [`rpcx`],
//! [`thrift`].
// Disallowed methods of time types, see clippy.toml: no peer can choose a time that makes them panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Machines read no clock: time is handed in, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(feature = "baidu")]
pub mod baidu;
mod base64;
#[cfg(feature = "centrifuge")]
pub mod centrifuge;
pub mod codec;
#[cfg(feature = "erpc")]
pub mod erpc;
pub mod flatbuffers;
#[cfg_attr(
    not(all(feature = "baidu", feature = "erpc", feature = "kiss")),
    allow(dead_code, unused_imports, reason = "the wires that are left out use the rest")
)]
mod foreign;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "goim")]
pub mod goim;
#[cfg_attr(
    not(all(feature = "baidu", feature = "erpc", feature = "kiss")),
    allow(dead_code, unused_imports, reason = "the wires that are left out use the rest")
)]
mod gzip;
#[doc(hidden)]
pub mod http;
// Public for its fuzz targets.
#[doc(hidden)]
pub mod http2;
pub mod http_rule;
pub mod http_text;
pub mod http_wires;
pub mod input;
pub mod jsonrpc;
#[cfg(feature = "kiss")]
pub mod kiss;
pub mod limits;
pub mod metadata;
pub mod method;
#[cfg(feature = "mqtt")]
pub mod mqtt;
pub mod native;
#[cfg(feature = "nats")]
pub mod nats;
pub mod outbox;
pub mod outgoing;
#[cfg_attr(
    not(all(feature = "baidu", feature = "erpc", feature = "kiss")),
    allow(dead_code, unused_imports, reason = "the wires that are left out use the rest")
)]
mod pending;
#[cfg_attr(
    not(all(feature = "baidu", feature = "erpc", feature = "kiss")),
    allow(dead_code, unused_imports, reason = "the wires that are left out use the rest")
)]
mod proto;
#[cfg(any(
    feature = "centrifuge",
    feature = "goim",
    feature = "mqtt",
    feature = "nats",
    feature = "resp",
    feature = "zmtp"
))]
#[cfg_attr(
    not(any(
        feature = "centrifuge",
        feature = "goim",
        feature = "mqtt",
        feature = "resp",
        feature = "zmtp"
    )),
    allow(dead_code, reason = "NATS has no such text")
)]
mod protocol_error;
#[cfg(feature = "resp")]
pub mod resp;
pub mod rpcx;
#[cfg_attr(
    not(all(feature = "baidu", feature = "erpc", feature = "kiss")),
    allow(dead_code, unused_imports, reason = "the wires that are left out use the rest")
)]
mod snappy;
pub mod sniff;
pub mod spec;
pub mod status;
pub mod thrift;
pub mod websocket;
pub mod wire;
pub mod wires;
mod work;
#[cfg(feature = "zmtp")]
pub mod zmtp;

pub use codec::{Codec, Encoding, Encodings};
pub use http_rule::HttpRule;
pub use http_text::{HttpText, TextKind, TextParam};
pub use input::Input;
pub use limits::Limits;
pub use metadata::Metadata;
pub use method::{
    Found, Idempotency, Kind, MethodId, MethodInfo, MethodTable, Params, SchemaId, ServiceInfo,
    UndeclaredName,
};
pub use outbox::Outbox;
pub use outgoing::Outgoing;
pub use spec::WireSpec;
pub use status::{Code, Detail, OrStatus, Origin, Retry, Status};
pub use wire::Fatal;
pub use wires::{WireId, WireSet};
