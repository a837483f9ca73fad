//! The options of a channel on HTTP, and the settings of its calls.

use super::{compression::Compression, http2::PingBackoff};
use crate::client::connection::NATIVE_ALONE;
use std::sync::Arc;
use switchboard_core::{Limit, Limits, Result};
use switchboard_net::http_fields::MetadataLimits;
#[cfg(feature = "tls")]
use switchboard_net::net::tls;
use switchboard_wire::{
    Codec, Status, WireId, http2,
    spec::{ClientSetup, PostedMachine, ServerName},
    wire::ClientWire,
};

/// Protocol of calls over HTTP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::client) enum Dialect {
    Connect,
    Grpc,
    GrpcWeb,
    JsonRpc,
    Thrift,
}

impl Dialect {
    /// Returns true when all calls go to one path, by POST.
    pub(super) fn posts(self) -> bool {
        matches!(self, Dialect::JsonRpc | Dialect::Thrift)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// The options as set.
#[derive(Clone, Debug)]
pub(in crate::client) struct Settings {
    /// `None` for the native wire.
    pub(in crate::client) dialect: Option<Dialect>,
    version: Option<Version>,
    codec: Option<Codec>,
    get: bool,
    /// True for gRPC-Web in base64.
    text: bool,
    /// Path of JSON-RPC or Thrift.
    path: Option<String>,
    /// The machine of calls in the bodies of requests, for Thrift.
    posted: Option<PostedMachine>,
    /// True to compress messages of WebSockets, if the server agrees.
    deflate: bool,
    pub(super) ping_backoff: PingBackoff,
    /// True for calls of gRPC on the state machine of this product instead of `h2`.
    own_engine: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            dialect: None,
            version: None,
            codec: None,
            get: false,
            text: false,
            path: None,
            posted: None,
            deflate: false,
            ping_backoff: PingBackoff::default(),
            // While there are two engines, a test build selects the other one.
            own_engine: matches!(option_env!("SWITCHBOARD_GRPC_ENGINE"), Some("own")),
        }
    }
}

/// The state machine of gRPC, with the options of a channel.
#[derive(Debug)]
struct OwnEngine(Settings);

impl ClientSetup for OwnEngine {
    fn set(&mut self, _name: &str, _value: &str) -> Result<bool, &'static str> {
        Ok(false)
    }

    fn codec(&self, preferred: Codec) -> Codec {
        self.0.codec(preferred)
    }

    fn machine(&self, limits: &switchboard_wire::Limits) -> Box<dyn ClientWire> {
        self.machine_for(limits, ServerName::new("the server", "localhost"))
    }

    fn machine_for(&self, limits: &switchboard_wire::Limits, server: ServerName<'_>) -> Box<dyn ClientWire> {
        let ServerName { address, authority, is_secure, .. } = server;
        Box::new(http2::client::Client::new(*limits, address, authority, is_secure))
    }
}

impl Settings {
    /// Sets one of `wire`, `http`, `codec`, `deflate`, `get` and `path`.
    ///
    /// # Errors
    /// The values that were expected instead of `value`.
    pub(in crate::client) fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match (name, value) {
            ("wire", name) => {
                self.dialect = match WireId::named(name) {
                    Some(WireId::NATIVE) => None,
                    Some(WireId::CONNECT) => Some(Dialect::Connect),
                    Some(WireId::GRPC) => Some(Dialect::Grpc),
                    Some(WireId::GRPC_WEB) => Some(Dialect::GrpcWeb),
                    Some(WireId::JSON_RPC) => Some(Dialect::JsonRpc),
                    _ => return Err("a wire of channels"),
                };
                self.text = name == "grpc-web-text";
            }
            ("http", "1") => self.version = Some(Version::Http1),
            ("http", "2") => self.version = Some(Version::Http2),
            ("http", _) => return Err("1 or 2"),
            ("codec", "proto") => self.codec = Some(Codec::Proto),
            ("codec", "json") => self.codec = Some(Codec::Json),
            ("codec", _) => return Err("proto or json"),
            ("deflate", "true") => self.deflate = true,
            ("deflate", "false") => self.deflate = false,
            ("engine", "own") => self.own_engine = true,
            ("engine", "h2") => self.own_engine = false,
            ("engine", _) => return Err("own or h2"),
            ("path", path) if path.starts_with('/') => self.path = Some(path.to_owned()),
            ("path", _) => return Err("a path that begins with a slash"),
            ("get", "true") => self.get = true,
            ("get", "false") => self.get = false,
            _ => return Err("true or false"),
        }
        Ok(())
    }

    /// Returns the state machine of gRPC, if the options select it.
    pub(in crate::client) fn own_engine(&self) -> Option<Arc<dyn ClientSetup>> {
        let is_own = self.own_engine && self.dialect == Some(Dialect::Grpc);
        is_own.then(|| Arc::new(OwnEngine(self.clone())) as Arc<dyn ClientSetup>)
    }

    /// Selects Thrift, with the machine for its messages.
    pub(in crate::client) fn post_thrift(&mut self, machine: PostedMachine) {
        (self.dialect, self.posted) = (Some(Dialect::Thrift), Some(machine));
    }

    /// Returns true when messages of WebSockets are to be compressed.
    pub(in crate::client) fn deflates(&self) -> bool {
        self.deflate
    }

    /// Checks that the options are compatible with each other, and with the compression of calls.
    ///
    /// # Errors
    /// `InvalidArgument` that names the options in conflict.
    pub(in crate::client) fn check(
        &self,
        over_websocket: bool,
        compression: switchboard_core::Compression,
    ) -> Result<()> {
        use switchboard_core::Compression;
        let config_error = |text: &str| Err(Status::invalid_argument(text));
        match self.dialect {
            _ if self.deflate && !over_websocket => config_error("deflate=true is for ws:// and wss://"),
            None if self.version.is_some()
                || self.get
                || self.path.is_some()
                || self.codec == Some(Codec::Json) =>
            {
                config_error(
                    "http, codec, get and path are options of HTTP: add wire=grpc, grpc-web, connect or jsonrpc",
                )
            }
            Some(dialect) if over_websocket && dialect != Dialect::JsonRpc => config_error(
                "WebSockets support the native wire and wire=jsonrpc; use tcp:// or tls:// for others",
            ),
            Some(Dialect::JsonRpc) if self.codec == Some(Codec::Proto) || self.get => {
                config_error("JSON-RPC supports neither codec=proto nor get=true")
            }
            Some(Dialect::Thrift) if self.codec.is_some() || self.get => {
                config_error("Thrift supports neither codec nor get=true")
            }
            Some(Dialect::Thrift) if compression != Compression::None => {
                config_error("Thrift on HTTP does not support compression: remove compression")
            }
            Some(Dialect::JsonRpc) if over_websocket && (self.version.is_some() || self.path.is_some()) => {
                config_error(
                    "http and path are for JSON-RPC by POST; a WebSocket has its path in the address",
                )
            }
            Some(_) if compression.is_native() => config_error(NATIVE_ALONE),
            Some(Dialect::JsonRpc) if over_websocket && compression != Compression::None => {
                config_error("JSON-RPC in a WebSocket is compressed by deflate=true")
            }
            Some(Dialect::JsonRpc) if ![Compression::None, Compression::Replies].contains(&compression) => {
                config_error("JSON-RPC does not support compressed requests: use compression=replies")
            }
            Some(dialect) if self.path.is_some() && !dialect.posts() => config_error(
                "path=PATH is for wire=jsonrpc and thrift; other wires use the name of the method",
            ),
            Some(Dialect::Grpc) if self.version == Some(Version::Http1) => {
                config_error("gRPC needs HTTP/2: remove http=1, or use wire=grpc-web or connect")
            }
            Some(Dialect::Grpc | Dialect::GrpcWeb) if self.get => config_error("get=true needs wire=connect"),
            _ => Ok(()),
        }
    }

    pub(super) fn version(&self) -> Version {
        // Few servers of JSON-RPC or Thrift support HTTP/2.
        let usual = if self.posts() { Version::Http1 } else { Version::Http2 };
        self.version.unwrap_or(usual)
    }

    fn posts(&self) -> bool {
        self.dialect.is_some_and(Dialect::posts)
    }

    /// The path of all calls; `None` for dialects whose methods have paths.
    pub(super) fn path(&self) -> Option<String> {
        self.posts().then(|| self.path.clone().unwrap_or_else(|| "/".to_owned()))
    }

    /// Protocol names for ALPN.
    #[cfg(feature = "tls")]
    pub(in crate::client) fn alpn(&self) -> &'static [u8] {
        match self.version() {
            Version::Http1 => tls::ALPN_HTTP1,
            Version::Http2 => tls::ALPN_HTTP2,
        }
    }

    /// The codec that calls use where generated code prefers `preferred`.
    pub(in super::super) fn codec(&self, preferred: Codec) -> Codec {
        match self.dialect {
            Some(Dialect::JsonRpc) => return Codec::Json,
            Some(Dialect::Thrift) => return Codec::Thrift,
            _ => {}
        }
        match (self.codec, preferred) {
            // Not supported by servers on HTTP.
            (_, Codec::MsgPack | Codec::Postcard | Codec::Thrift | Codec::ThriftStruct) => Codec::Json,
            // Only gRPC has a content type for it.
            (_, Codec::FlatBuffers) if self.dialect != Some(Dialect::Grpc) => Codec::Json,
            (Some(codec), _) => codec,
            // HTTP has no content type for bytes of an unknown format.
            (None, Codec::Raw) => Codec::Proto,
            (None, preferred) => preferred,
        }
    }

    pub(super) fn terms(&self, dialect: Dialect, limits: &Limits) -> Terms {
        Terms {
            dialect,
            advertise: false,
            compression: None,
            get: self.get,
            text: self.text,
            posted: self.posted,
            message_bytes_max: limits.get(Limit::MessageBytesMax) as usize,
            metadata: MetadataLimits::new(limits),
        }
    }
}

/// Settings that every call of a channel needs for encoding and decoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) dialect: Dialect,
    /// True when replies may be compressed.
    pub(super) advertise: bool,
    /// Compression of requests.
    pub(super) compression: Option<Compression>,
    /// True when methods without side effects are called by GET.
    pub(super) get: bool,
    /// True for gRPC-Web in base64, in both directions.
    pub(super) text: bool,
    /// The machine of calls in the bodies of requests, for Thrift.
    pub(super) posted: Option<PostedMachine>,
    pub(super) message_bytes_max: usize,
    pub(super) metadata: MetadataLimits,
}

impl Terms {
    /// Returns these settings for a call with this compression.
    ///
    /// # Errors
    /// `InvalidArgument` for compressions that HTTP does not support.
    pub(super) fn compressed(self, compression: switchboard_core::Compression) -> Result<Terms> {
        let advertise = compression != switchboard_core::Compression::None;
        let compression = match compression {
            switchboard_core::Compression::None | switchboard_core::Compression::Replies => None,
            switchboard_core::Compression::Deflate => Some(Compression::Deflate),
            switchboard_core::Compression::Gzip => Some(Compression::Gzip),
            switchboard_core::Compression::Zstd => Some(Compression::Zstd),
            // LZ4 and Snappy.
            _ => return Err(Status::invalid_argument(NATIVE_ALONE)),
        };
        Ok(Terms { advertise, compression, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incompatible_options_are_named() {
        let check = |options: &[(&str, &str)]| {
            let mut settings = Settings::default();
            for (name, value) in options {
                settings.set(name, value).unwrap();
            }
            settings
                .check(false, switchboard_core::Compression::None)
                .map_err(|status| status.message().to_owned())
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[("wire", "connect"), ("http", "1"), ("get", "true"), ("codec", "json")]), Ok(()));
        assert!(check(&[("http", "1")]).unwrap_err().contains("add wire="));
        assert!(check(&[("http", "1"), ("wire", "grpc")]).unwrap_err().contains("needs HTTP/2"));
        assert!(check(&[("wire", "grpc-web"), ("get", "true")]).unwrap_err().contains("wire=connect"));
        let json_rpc = |over_websocket, compression| {
            let mut settings = Settings::default();
            settings.set("wire", "jsonrpc").unwrap();
            settings.set("deflate", if over_websocket { "true" } else { "false" }).unwrap();
            settings.check(over_websocket, compression).is_ok()
        };
        use switchboard_core::Compression;
        assert!(json_rpc(true, Compression::None) && !json_rpc(true, Compression::Deflate));
        assert!(json_rpc(false, Compression::Replies) && !json_rpc(false, Compression::Gzip));
        assert!(check(&[("deflate", "true")]).unwrap_err().contains("ws://"));
        for wire in ["soap", "http-json", "local", "websocket"] {
            assert!(Settings::default().set("wire", wire).is_err(), "{wire}");
        }
    }

    #[test]
    fn codecs_are_replaced_by_those_of_http() {
        let mut settings = Settings::default();
        assert_eq!(settings.codec(Codec::Proto), Codec::Proto);
        assert_eq!(settings.codec(Codec::Postcard), Codec::Json);
        assert_eq!(settings.codec(Codec::MsgPack), Codec::Json);
        settings.set("codec", "json").unwrap();
        assert_eq!(settings.codec(Codec::Proto), Codec::Json);
    }
}
