//! Layouts of brpc's older protocols beside baidu_std: they differ in headers and metas only.

use super::{
    META_BYTES_MAX, fields, hulu,
    meta::{Meta, put_nonzero},
    sofa,
};
use crate::{
    Fatal, Metadata,
    proto::{self, Malformed},
};
use bytes::BytesMut;

/// Frame layout of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
// closed: the machine of the wire lays out each of them
pub enum Layout {
    /// The layout of baidu_std.
    #[default]
    Standard,
    /// hulu_pbrpc: little-endian sizes, and methods by their index in the service.
    Hulu,
    /// sofa_pbrpc: a header of 24 bytes, and a meta with little more than the method.
    Sofa,
}

/// The sizes in a header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sizes {
    pub(super) header: usize,
    pub(super) meta: u32,
    /// Bytes behind the header.
    pub(super) body: u64,
}

/// Values that a meta declares about its own frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) correlation_id: u64,
    /// The compress type in the numbering of baidu_std.
    pub(super) compress_type: u64,
    /// Bytes of the message, and of the attachment behind it.
    pub(super) message: usize,
    pub(super) attachment: usize,
}

impl Layout {
    /// Returns the name of the wire.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Standard => "baidu_std",
            Layout::Hulu => "hulu",
            Layout::Sofa => "sofa",
        }
    }

    /// Returns the first bytes of every request and response.
    #[inline]
    pub const fn magic(self) -> [u8; 4] {
        match self {
            Layout::Standard => *b"PRPC",
            Layout::Hulu => *b"HULU",
            Layout::Sofa => *b"SOFA",
        }
    }

    /// Reads the header at the front of these bytes; `None` if it is incomplete.
    ///
    /// # Errors
    /// Returns an error for a meta that is larger than its frame or than [`META_BYTES_MAX`], and for invalid sizes.
    #[inline]
    pub(super) fn sizes(self, bytes: &[u8]) -> Result<Option<Sizes>, Fatal> {
        let sizes = match self {
            Layout::Standard => bytes.first_chunk::<12>().map(|header| Sizes {
                header: header.len(),
                meta: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
                body: u32::from_be_bytes([header[4], header[5], header[6], header[7]]).into(),
            }),
            Layout::Hulu => hulu::sizes(bytes),
            Layout::Sofa => sofa::sizes(bytes),
        };
        match sizes {
            Some(Sizes { meta, body, .. })
                if u64::from(meta) > body || meta > META_BYTES_MAX || body > u32::MAX.into() =>
            {
                Err(Fatal(format!(
                    "a frame of {body} bytes with a meta of {meta}, the limit is {META_BYTES_MAX}"
                )))
            }
            sizes => Ok(sizes),
        }
    }

    /// Writes the sizes into the header at the front of these bytes.
    #[inline]
    pub(super) fn set_sizes(self, header: &mut [u8], meta: usize, payload: usize) {
        match self {
            Layout::Standard => {
                header[4..8].copy_from_slice(&((meta + payload) as u32).to_be_bytes());
                header[8..12].copy_from_slice(&(meta as u32).to_be_bytes());
            }
            Layout::Hulu => hulu::set_sizes(header, meta, payload),
            Layout::Sofa => sofa::set_sizes(header, meta, payload),
        }
    }

    /// Reads the meta of a request with `payload` bytes behind it.
    #[inline]
    pub(super) fn request(self, meta: &[u8], payload: usize) -> Result<Meta<'_>, Malformed> {
        match self {
            Layout::Standard => Meta::read(meta),
            Layout::Hulu => hulu::request(meta, payload),
            Layout::Sofa => sofa::read(meta),
        }
    }

    /// Reads the meta of a response with `payload` bytes behind it.
    #[inline]
    pub(super) fn response(self, meta: &[u8], payload: usize) -> Result<Meta<'_>, Malformed> {
        match self {
            Layout::Standard => Meta::read(meta),
            Layout::Hulu => hulu::response(meta, payload),
            Layout::Sofa => sofa::read(meta),
        }
    }

    /// Encodes the request fields that name its method.
    pub(super) fn named(self, service: &str, method: &str, index: Option<u16>) -> BytesMut {
        let mut named = BytesMut::with_capacity(16 + service.len() + method.len());
        match self {
            Layout::Standard => {
                proto::put_bytes(&mut named, 1, service.as_bytes());
                proto::put_bytes(&mut named, 2, method.as_bytes());
            }
            Layout::Hulu => hulu::put_named(&mut named, service, method, index.unwrap_or_default()),
            Layout::Sofa => sofa::put_named(&mut named, service, method),
        }
        named
    }

    /// Appends the fields that a request has in every layout, and the metadata that this layout supports.
    pub(super) fn put_request(
        self,
        into: &mut BytesMut,
        named: &[u8],
        sent: &Sent,
        timeout_ms: u64,
        metadata: &Metadata,
    ) {
        match self {
            Layout::Standard => {
                fields::put_request(into, named, timeout_ms, metadata);
                sent.put(into);
            }
            Layout::Hulu => hulu::put_request(into, named, sent, metadata),
            Layout::Sofa => sofa::put_request(into, named, sent),
        }
    }

    /// Appends the fields that a response has in every layout; a failed call has a number and a text.
    #[inline]
    pub(super) fn put_response(self, into: &mut BytesMut, failure: Option<(i32, &str)>, sent: &Sent) {
        match self {
            Layout::Standard => {
                match failure {
                    None => into.extend_from_slice(&SUCCESS),
                    Some((number, text)) => proto::put_message(into, 2, |response| {
                        put_failure(response, [1, 2], number, text);
                    }),
                }
                sent.put(into);
            }
            Layout::Hulu => hulu::put_response(into, failure, sent),
            Layout::Sofa => sofa::put_response(into, failure, sent),
        }
    }
}

/// Field `response` of a meta, without an error.
const SUCCESS: [u8; 4] = [0x12, 0x02, 0x08, 0x00];

impl Sent {
    /// Appends the values as fields of `RpcMeta`.
    #[inline]
    fn put(&self, into: &mut BytesMut) {
        put_nonzero(into, 3, self.compress_type);
        proto::put_number(into, 4, self.correlation_id);
        put_nonzero(into, 5, self.attachment as u64);
    }
}

/// Appends the number and the text of a failure with these field numbers.
pub(super) fn put_failure(into: &mut BytesMut, fields: [u32; 2], number: i32, text: &str) {
    // Encoded as 64 bits, so that a negative number keeps its sign.
    proto::put_number(into, fields[0], i64::from(number) as u64);
    proto::put_bytes(into, fields[1], text.as_bytes());
}
