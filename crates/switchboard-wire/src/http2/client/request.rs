//! Heads of requests: header blocks of gRPC calls, stored per method.

use super::{
    super::hpack::{Encoder, Indexing},
    grpc,
};
use crate::{Codec, Encoding, Metadata, wire::Open};
use bytes::BytesMut;
use std::time::Duration;

const AGENT: &str = concat!("switchboard/", env!("CARGO_PKG_VERSION"));
const TIMEOUT: &[u8] = b"grpc-timeout";

/// The encoder of header blocks, and the methods that were named.
#[derive(Debug)]
pub(super) struct RequestHeads {
    encoder: Encoder,
    scheme: &'static str,
    authority: Box<str>,
    methods: Vec<Method>,
}

#[derive(Debug, Default)]
struct Method {
    path: Box<str>,
    streams: bool,
    block: Option<Block>,
}

/// Header block of a method, valid while the table of the encoder does not change.
#[derive(Debug)]
struct Block {
    generation: u64,
    codec: Codec,
    encoding: Encoding,
    bytes: Vec<u8>,
    /// Field of the last timeout.
    timeout: Option<(Duration, Vec<u8>)>,
}

impl RequestHeads {
    pub(super) fn new(authority: &str, is_secure: bool) -> RequestHeads {
        let scheme = if is_secure { "https" } else { "http" };
        RequestHeads { encoder: Encoder::new(), scheme, authority: authority.into(), methods: Vec::new() }
    }

    /// Applies the server's `SETTINGS_HEADER_TABLE_SIZE`.
    pub(super) fn limit_table(&mut self, bytes: u32) {
        self.encoder.limit(bytes as usize);
    }

    /// Declares the method with this number; `name` is `package.Service/Method`.
    pub(super) fn name(&mut self, number: u16, name: &str) {
        let at = usize::from(number);
        if at >= self.methods.len() {
            self.methods.resize_with(at + 1, Method::default);
        }
        self.methods[at] = Method { path: format!("/{name}").into(), streams: false, block: None };
    }

    pub(super) fn set_streams(&mut self, number: u16) {
        if let Some(method) = self.methods.get_mut(usize::from(number)) {
            method.streams = true;
        }
    }

    #[inline]
    pub(super) fn is_unary(&self, number: u16) -> bool {
        self.methods.get(usize::from(number)).is_some_and(|method| !method.streams)
    }

    /// Appends the header block of a call.
    #[inline]
    pub(super) fn put(&mut self, open: &Open<'_>, into: &mut BytesMut) {
        let RequestHeads { encoder, scheme, authority, methods } = self;
        let Some(method) = methods.get_mut(usize::from(open.method)) else { return };
        encoder.begin(into);
        let is_valid = |block: &Block| {
            block.generation == encoder.generation()
                && block.codec == open.codec
                && block.encoding == open.encoding
        };
        match &mut method.block {
            Some(block) if is_valid(block) => {
                into.extend_from_slice(&block.bytes);
                match &mut block.timeout {
                    Some((timeout, field)) if open.timeout == Some(*timeout) => {
                        into.extend_from_slice(field);
                    }
                    known => {
                        let before = into.len();
                        put_timeout(open.timeout, into);
                        *known = open.timeout.map(|timeout| (timeout, into[before..].to_vec()));
                    }
                }
            }
            _ => {
                let (start, generation) = (into.len(), encoder.generation());
                put_fields(encoder, scheme, authority, &method.path, open, into);
                // A block that changes the table is not the same the second time.
                method.block = (encoder.generation() == generation).then(|| Block {
                    generation,
                    codec: open.codec,
                    encoding: open.encoding,
                    bytes: into[start..].to_vec(),
                    timeout: None,
                });
                put_timeout(open.timeout, into);
            }
        }
        if !open.metadata.is_empty() {
            put_metadata(open.metadata, into);
        }
    }
}

/// Appends the fields that every call of a method has.
#[cold]
fn put_fields(
    encoder: &mut Encoder,
    scheme: &str,
    authority: &str,
    path: &str,
    open: &Open<'_>,
    into: &mut BytesMut,
) {
    let mut put = |name: &str, value: &str| {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Recurring, into);
    };
    put(":method", "POST");
    put(":scheme", scheme);
    put(":path", path);
    put(":authority", authority);
    put("content-type", grpc::content_type(open.codec).unwrap_or("application/grpc"));
    put("te", "trailers");
    put("user-agent", AGENT);
    if let Some(name) = grpc::encoding_name(open.encoding) {
        put("grpc-accept-encoding", name);
        put("grpc-encoding", name);
    }
}

fn put_timeout(timeout: Option<Duration>, into: &mut BytesMut) {
    if let Some(timeout) = timeout {
        Encoder::literal(TIMEOUT, grpc::timeout(timeout).as_bytes(), false, into);
    }
}

/// Appends metadata, never indexed where it is a secret. Names of HTTP and gRPC are left out.
#[cold]
fn put_metadata(metadata: &Metadata, into: &mut BytesMut) {
    for (name, value) in metadata.iter().filter(|(name, _)| !grpc::is_reserved(name)) {
        let is_secret = matches!(name, "authorization" | "cookie" | "proxy-authorization");
        if name.ends_with("-bin") {
            let text = crate::base64::encode(value);
            Encoder::literal(name.as_bytes(), text.trim_end_matches('=').as_bytes(), is_secret, into);
        } else {
            // HTTP allows no blanks at the ends of a value.
            Encoder::literal(name.as_bytes(), value.trim_ascii(), is_secret, into);
        }
    }
}
