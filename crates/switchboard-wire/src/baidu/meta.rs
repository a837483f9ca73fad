//! `RpcMeta`, the meta of a frame.

use super::stream::Settings;
use crate::proto::{self, Fields, Malformed};
use bytes::BytesMut;

/// Field number of `user_fields`.
pub(super) const USER_FIELDS: u32 = 9;

/// The fields of a meta that are used here; all others are skipped.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Meta<'a> {
    pub(super) request: Option<Request<'a>>,
    pub(super) response: Option<Response<'a>>,
    pub(super) compress_type: i32,
    pub(super) correlation_id: u64,
    pub(super) attachment_size: i32,
    pub(super) authentication_data: &'a [u8],
    /// The stream that the call opens.
    pub(super) stream: Option<Settings>,
    pub(super) user_fields: Pairs<'a>,
    pub(super) content_type: i32,
    pub(super) checksum_type: i32,
    pub(super) checksum_value: &'a [u8],
    pub(super) checksum_with_attachment: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Request<'a> {
    pub(super) service_name: &'a [u8],
    pub(super) method_name: &'a [u8],
    /// Index of the method in its service, in layouts that have one.
    pub(super) method_index: Option<i32>,
    pub(super) log_id: i64,
    pub(super) trace_id: i64,
    pub(super) span_id: i64,
    pub(super) parent_span_id: i64,
    pub(super) request_id: &'a [u8],
    /// Metadata pairs of brpc-java, under the field number of the request id.
    pub(super) pairs: Pairs<'a>,
    pub(super) timeout_ms: i32,
}

/// Pairs of a name and a value: all fields with number `number` in `fields`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Pairs<'a> {
    pub(super) fields: &'a [u8],
    pub(super) number: u32,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Response<'a> {
    pub(super) error_code: i32,
    pub(super) error_text: &'a [u8],
}

impl<'a> Meta<'a> {
    /// Reads a meta.
    #[inline]
    pub(super) fn read(bytes: &'a [u8]) -> Result<Meta<'a>, Malformed> {
        let mut meta = Meta::default();
        let mut fields = Fields(bytes);
        while let Some((field, value)) = fields.next()? {
            // Negative numbers arrive as 64 bits; the truncation drops only the sign extension.
            match field {
                1 => meta.request = Some(Request::read(value.bytes())?),
                2 => meta.response = Some(Response::read(value.bytes())?),
                3 => meta.compress_type = value.number() as i32,
                4 => meta.correlation_id = value.number(),
                5 => meta.attachment_size = value.number() as i32,
                7 => meta.authentication_data = value.bytes(),
                8 => meta.stream = Some(Settings::read(value.bytes())?),
                USER_FIELDS => meta.user_fields = Pairs { fields: bytes, number: USER_FIELDS },
                10 => meta.content_type = value.number() as i32,
                11 => meta.checksum_type = value.number() as i32,
                12 => meta.checksum_value = value.bytes(),
                13 => meta.checksum_with_attachment = value.number() != 0,
                _ => {}
            }
        }
        Ok(meta)
    }
}

impl<'a> Request<'a> {
    fn read(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let mut request = Request::default();
        let mut fields = Fields(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => request.service_name = value.bytes(),
                2 => request.method_name = value.bytes(),
                3 => request.log_id = value.number() as i64,
                4 => request.trace_id = value.number() as i64,
                5 => request.span_id = value.number() as i64,
                6 => request.parent_span_id = value.number() as i64,
                // The first tag of a pair is a line feed. No request id begins with one.
                7 if value.bytes().starts_with(b"\n") => request.pairs = Pairs { fields: bytes, number: 7 },
                7 => request.request_id = value.bytes(),
                8 => request.timeout_ms = value.number() as i32,
                _ => {}
            }
        }
        Ok(request)
    }

    /// Returns true if the request has no fields beside the method and the timeout.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        (self.log_id | self.trace_id | self.span_id | self.parent_span_id) == 0
            && self.request_id.is_empty()
            && self.pairs.is_empty()
    }
}

impl<'a> Response<'a> {
    fn read(bytes: &'a [u8]) -> Result<Response<'a>, Malformed> {
        let mut response = Response::default();
        let mut fields = Fields(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => response.error_code = value.number() as i32,
                2 => response.error_text = value.bytes(),
                _ => {}
            }
        }
        Ok(response)
    }
}

impl<'a> Pairs<'a> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Iterates over the pairs in order; malformed ones are skipped.
    pub(super) fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut fields = Fields(self.fields);
        std::iter::from_fn(move || {
            loop {
                let (field, value) = fields.next().ok().flatten()?;
                if field != self.number {
                    continue;
                }
                let (mut name, mut text) = (&b""[..], &b""[..]);
                let mut pair = Fields(value.bytes());
                while let Ok(Some((field, value))) = pair.next() {
                    match field {
                        1 => name = value.bytes(),
                        2 => text = value.bytes(),
                        _ => {}
                    }
                }
                return Some((name, text));
            }
        })
    }
}

/// Appends a pair of `user_fields`.
pub(super) fn put_user_field(into: &mut BytesMut, name: &str, text: &[u8]) {
    put_pair(into, USER_FIELDS, name, text);
}

/// Appends a pair with this field number.
pub(super) fn put_pair(into: &mut BytesMut, field: u32, name: &str, text: &[u8]) {
    proto::put_message(into, field, |pair| {
        proto::put_bytes(pair, 1, name.as_bytes());
        proto::put_bytes(pair, 2, text);
    });
}

/// Appends a number unless it is zero.
#[inline]
pub(super) fn put_nonzero(into: &mut BytesMut, field: u32, number: u64) {
    if number != 0 {
        proto::put_number(into, field, number);
    }
}
