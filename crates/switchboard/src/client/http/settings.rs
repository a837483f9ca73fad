//! The options of a channel on HTTP, and what its calls have in common.

use super::{compression::Compression, http2::Calm};
#[cfg(feature = "tls")]
use crate::net::tls;
use crate::{Codec, Limit, Limits, Result, Status, http::convert::MetadataLimits};
use switchboard_wire::thrift;

/// What is written to call a method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::client) enum Dialect {
    Connect,
    Grpc,
    GrpcWeb,
    JsonRpc,
    Thrift,
}

impl Dialect {
    /// Whether all calls go to one path, by POST.
    pub(super) fn posts(self) -> bool {
        matches!(self, Dialect::JsonRpc | Dialect::Thrift)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// The options as they were set.
#[derive(Clone, Debug, Default)]
pub(in crate::client) struct Settings {
    /// None means the native wire.
    pub(in crate::client) dialect: Option<Dialect>,
    version: Option<Version>,
    codec: Option<Codec>,
    get: bool,
    /// gRPC-Web in base64.
    text: bool,
    /// Where JSON-RPC or Thrift is posted to.
    path: Option<String>,
    /// How Thrift is written.
    thrift: thrift::Settings,
    /// Messages of WebSockets are compressed, if the server agrees.
    deflate: bool,
    pub(super) calm: Calm,
}

impl Settings {
    /// Sets one of `wire`, `http`, `codec`, `deflate`, `get` and `path`.
    ///
    /// # Errors
    /// What was expected instead of `value`.
    pub(in crate::client) fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match (name, value) {
            ("wire", "native") => self.dialect = None,
            ("wire", "connect") => self.dialect = Some(Dialect::Connect),
            ("wire", "grpc") => self.dialect = Some(Dialect::Grpc),
            ("wire", "grpc-web") => (self.dialect, self.text) = (Some(Dialect::GrpcWeb), false),
            ("wire", "grpc-web-text") => (self.dialect, self.text) = (Some(Dialect::GrpcWeb), true),
            ("wire", "jsonrpc") => self.dialect = Some(Dialect::JsonRpc),
            ("wire", _) => return Err("native, grpc, grpc-web, grpc-web-text, connect or jsonrpc"),
            ("http", "1") => self.version = Some(Version::Http1),
            ("http", "2") => self.version = Some(Version::Http2),
            ("http", _) => return Err("1 or 2"),
            ("codec", "proto") => self.codec = Some(Codec::Proto),
            ("codec", "json") => self.codec = Some(Codec::Json),
            ("codec", _) => return Err("proto or json"),
            ("deflate", "true") => self.deflate = true,
            ("deflate", "false") => self.deflate = false,
            ("path", path) if path.starts_with('/') => self.path = Some(path.to_owned()),
            ("path", _) => return Err("a path that begins with a slash"),
            ("get", "true") => self.get = true,
            ("get", "false") => self.get = false,
            _ => return Err("true or false"),
        }
        Ok(())
    }

    /// Calls by Thrift, written so.
    pub(in crate::client) fn post_thrift(&mut self, written: thrift::Settings) {
        (self.dialect, self.thrift) = (Some(Dialect::Thrift), written);
    }

    /// Whether messages of WebSockets are to be compressed.
    pub(in crate::client) fn deflates(&self) -> bool {
        self.deflate
    }

    /// Whether the options fit together, and with the compression of calls.
    ///
    /// # Errors
    /// `InvalidArgument` that names those that do not.
    pub(in crate::client) fn check(
        &self,
        over_websocket: bool,
        compression: crate::Compression,
    ) -> Result<()> {
        use crate::Compression;
        let wrong = |text: &str| Err(Status::invalid_argument(text));
        match self.dialect {
            _ if self.deflate && !over_websocket => wrong("deflate=true is for ws:// and wss://"),
            None if self.version.is_some()
                || self.get
                || self.path.is_some()
                || self.codec == Some(Codec::Json) =>
            {
                wrong(
                    "http, codec, get and path are options of HTTP: add wire=grpc, grpc-web, connect or jsonrpc",
                )
            }
            Some(dialect) if over_websocket && dialect != Dialect::JsonRpc => {
                wrong("WebSockets carry the native wire or wire=jsonrpc; others go to tcp:// or tls://")
            }
            Some(Dialect::JsonRpc) if self.codec == Some(Codec::Proto) || self.get => {
                wrong("JSON-RPC knows neither codec=proto nor get=true")
            }
            Some(Dialect::Thrift) if self.codec.is_some() || self.get => {
                wrong("Thrift knows neither codec nor get=true")
            }
            Some(Dialect::Thrift) if compression != Compression::None => {
                wrong("Thrift on HTTP is not compressed: leave compression away")
            }
            Some(Dialect::JsonRpc) if over_websocket && (self.version.is_some() || self.path.is_some()) => {
                wrong("http and path are for JSON-RPC by POST; a WebSocket has its path in the address")
            }
            Some(_) if compression.is_native() => wrong(NATIVE_ALONE),
            Some(Dialect::JsonRpc) if over_websocket && compression != Compression::None => {
                wrong("JSON-RPC in a WebSocket is compressed by deflate=true")
            }
            Some(Dialect::JsonRpc) if ![Compression::None, Compression::Replies].contains(&compression) => {
                wrong("no server of JSON-RPC takes compressed requests: use compression=replies")
            }
            Some(dialect) if self.path.is_some() && !dialect.posts() => {
                wrong("path=PATH is for wire=jsonrpc and thrift; the others have theirs from the method")
            }
            Some(Dialect::Grpc) if self.version == Some(Version::Http1) => {
                wrong("gRPC needs HTTP/2: leave http=1 out, or use wire=grpc-web or connect")
            }
            Some(Dialect::Grpc | Dialect::GrpcWeb) if self.get => wrong("get=true needs wire=connect"),
            _ => Ok(()),
        }
    }

    pub(super) fn version(&self) -> Version {
        // Few servers of JSON-RPC or Thrift speak HTTP/2.
        let usual = if self.posts() { Version::Http1 } else { Version::Http2 };
        self.version.unwrap_or(usual)
    }

    fn posts(&self) -> bool {
        self.dialect.is_some_and(Dialect::posts)
    }

    /// Where all calls go; none for dialects whose methods have paths.
    pub(super) fn path(&self) -> Option<String> {
        self.posts().then(|| self.path.clone().unwrap_or_else(|| "/".to_owned()))
    }

    /// What is asked for inside TLS.
    #[cfg(feature = "tls")]
    pub(in crate::client) fn alpn(&self) -> &'static [u8] {
        match self.version() {
            Version::Http1 => tls::ALPN_HTTP1,
            Version::Http2 => tls::ALPN_HTTP2,
        }
    }

    /// How messages are written where generated code would write them as `preferred`.
    pub(in super::super) fn codec(&self, preferred: Codec) -> Codec {
        match self.dialect {
            Some(Dialect::JsonRpc) => return Codec::Json,
            Some(Dialect::Thrift) => return Codec::Thrift,
            _ => {}
        }
        match (self.codec, preferred) {
            // What nobody on HTTP reads.
            (_, Codec::MsgPack | Codec::Postcard | Codec::Thrift | Codec::ThriftStruct) => Codec::Json,
            // Which gRPC alone has a name for.
            (_, Codec::FlatBuffers) if self.dialect != Some(Dialect::Grpc) => Codec::Json,
            (Some(codec), _) => codec,
            // It has no name for bytes of which nobody says what they are.
            (None, Codec::Raw) => Codec::Proto,
            (None, preferred) => preferred,
        }
    }

    pub(super) fn terms(&self, dialect: Dialect, limits: &Limits) -> Terms {
        Terms {
            dialect,
            announce: false,
            compression: None,
            get: self.get,
            text: self.text,
            thrift: self.thrift,
            message_bytes_max: limits.get(Limit::MessageBytesMax) as usize,
            metadata: MetadataLimits::new(limits),
        }
    }
}

const NATIVE_ALONE: &str =
    "lz4 and snappy are compressions of the native wire: on HTTP use gzip, zstd or deflate";

/// What every call of a channel needs to be written and read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) dialect: Dialect,
    /// Replies may be compressed.
    pub(super) announce: bool,
    /// How requests are compressed.
    pub(super) compression: Option<Compression>,
    /// Methods without side effects are called by GET.
    pub(super) get: bool,
    /// gRPC-Web goes in base64, both ways.
    pub(super) text: bool,
    pub(super) thrift: thrift::Settings,
    pub(super) message_bytes_max: usize,
    pub(super) metadata: MetadataLimits,
}

impl Terms {
    /// The same for a call that is compressed so.
    ///
    /// # Errors
    /// `InvalidArgument` for what HTTP does not have.
    pub(super) fn compressed(self, compression: crate::Compression) -> Result<Terms> {
        let announce = compression != crate::Compression::None;
        let compression = match compression {
            crate::Compression::None | crate::Compression::Replies => None,
            crate::Compression::Deflate => Some(Compression::Deflate),
            crate::Compression::Gzip => Some(Compression::Gzip),
            crate::Compression::Lz4 | crate::Compression::Snappy => {
                return Err(Status::invalid_argument(NATIVE_ALONE));
            }
            crate::Compression::Zstd => Some(Compression::Zstd),
        };
        Ok(Terms { announce, compression, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_do_not_fit_are_named() {
        let check = |options: &[(&str, &str)]| {
            let mut settings = Settings::default();
            for (name, value) in options {
                settings.set(name, value).unwrap();
            }
            settings.check(false, crate::Compression::None).map_err(|status| status.message().to_owned())
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
        use crate::Compression;
        assert!(json_rpc(true, Compression::None) && !json_rpc(true, Compression::Deflate));
        assert!(json_rpc(false, Compression::Replies) && !json_rpc(false, Compression::Gzip));
        assert!(check(&[("deflate", "true")]).unwrap_err().contains("ws://"));
        assert_eq!(
            Settings::default().set("wire", "soap"),
            Err("native, grpc, grpc-web, grpc-web-text, connect or jsonrpc")
        );
    }

    #[test]
    fn codecs_are_those_that_http_knows() {
        let mut settings = Settings::default();
        assert_eq!(settings.codec(Codec::Proto), Codec::Proto);
        assert_eq!(settings.codec(Codec::Postcard), Codec::Json);
        assert_eq!(settings.codec(Codec::MsgPack), Codec::Json);
        settings.set("codec", "json").unwrap();
        assert_eq!(settings.codec(Codec::Proto), Codec::Json);
    }
}
