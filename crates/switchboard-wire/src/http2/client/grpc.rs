//! gRPC on HTTP/2, the client's half: content types, timeouts, and statuses from heads, trailers and resets.

use super::super::{frame::ErrorCode, hpack::Field};
use crate::{Code, Codec, Encoding, Metadata, Origin, Retry, Status, base64, foreign};
use bytes::Bytes;
use std::time::Duration;

/// Detail of a status with the server's delay before a retry.
const RETRY_INFO: &str = "google.rpc.RetryInfo";

/// Returns the content type of messages in this codec, if gRPC has one.
pub(super) fn content_type(codec: Codec) -> Option<&'static str> {
    match codec {
        Codec::Proto => Some("application/grpc"),
        Codec::Json => Some("application/grpc+json"),
        Codec::FlatBuffers => Some("application/grpc+flatbuffers"),
        _ => None,
    }
}

/// Returns the codec of a content type; parameters are ignored.
fn codec_of(content_type: &[u8]) -> Option<Codec> {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    let kind = content_type[..end].trim_ascii().to_ascii_lowercase();
    match kind.strip_prefix(b"application/grpc")? {
        b"" | b"+proto" => Some(Codec::Proto),
        b"+json" => Some(Codec::Json),
        b"+flatbuffers" => Some(Codec::FlatBuffers),
        _ => None,
    }
}

/// Returns the name of a compression in gRPC; `None` for no compression and those that gRPC does not have.
pub(super) fn encoding_name(encoding: Encoding) -> Option<&'static str> {
    match encoding {
        Encoding::Gzip => Some("gzip"),
        Encoding::Zstd => Some("zstd"),
        Encoding::Deflate => Some("deflate"),
        _ => None,
    }
}

/// Formats the time that is left, in the finest unit that fits into eight digits, rounded up.
pub(super) fn timeout(left: Duration) -> String {
    const DIGITS: u128 = 99_999_999;
    let nanos = left.as_nanos();
    let units = [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    let counted = units.iter().map(|(unit, name)| (nanos.div_ceil(*unit), name));
    match counted.into_iter().find(|(count, _)| *count <= DIGITS) {
        Some((count, name)) => format!("{count}{name}"),
        None => format!("{}H", nanos.div_ceil(3_600_000_000_000).min(DIGITS)),
    }
}

/// Names that belong to HTTP or to gRPC, not to the application, sorted.
const RESERVED: [&str; 21] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "x-grpc-web",
    "x-user-agent",
];

/// Returns true for names that are not metadata.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with("grpc-")
        || name.starts_with("connect-")
        || name.starts_with("sec-websocket-")
        || RESERVED.binary_search(&name).is_ok()
}

/// Creates a status that arose between the caller and the service.
pub(super) fn from_path(code: Code, text: impl Into<String>) -> Status {
    Status::new(code, text).with_origin(Origin::Connection).with_retry(hint(code))
}

/// Creates the status of a response that breaks the rules of gRPC.
pub(super) fn protocol_error(text: impl Into<String>) -> Status {
    from_path(Code::Internal, text)
}

/// Returns the retry property of a code, where the server sends none.
fn hint(code: Code) -> Retry {
    if code == Code::Unavailable { Retry::IfIdempotent } else { Retry::No }
}

/// Returns the code for an HTTP status without a status of gRPC: from a proxy, or from a server of another protocol.
fn of_http(status: u16) -> Code {
    match status {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// Returns the name of an error code, as in RFC 9113.
pub(super) fn name_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NO_ERROR => "NO_ERROR",
        ErrorCode::PROTOCOL_ERROR => "PROTOCOL_ERROR",
        ErrorCode::INTERNAL_ERROR => "INTERNAL_ERROR",
        ErrorCode::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
        ErrorCode::SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
        ErrorCode::STREAM_CLOSED => "STREAM_CLOSED",
        ErrorCode::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
        ErrorCode::REFUSED_STREAM => "REFUSED_STREAM",
        ErrorCode::CANCEL => "CANCEL",
        ErrorCode::COMPRESSION_ERROR => "COMPRESSION_ERROR",
        ErrorCode::CONNECT_ERROR => "CONNECT_ERROR",
        ErrorCode::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
        ErrorCode::INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
        ErrorCode::HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
        _ => "an unknown error code",
    }
}

/// Returns the status of a call whose stream the server has reset.
pub(super) fn of_reset(code: ErrorCode, peer: &str) -> Status {
    let name = name_of(code);
    let (status, what) = match code {
        ErrorCode::REFUSED_STREAM => {
            let text = format!("{peer} refused the call before it began: {name}");
            return from_path(Code::Unavailable, text).with_retry(Retry::Safe);
        }
        ErrorCode::CANCEL => (Code::Canceled, "canceled the call"),
        ErrorCode::ENHANCE_YOUR_CALM => (Code::ResourceExhausted, "reset the call"),
        ErrorCode::INADEQUATE_SECURITY => (Code::PermissionDenied, "reset the call"),
        _ => (Code::Internal, "reset the call"),
    };
    from_path(status, format!("{peer} {what}: {name}"))
}

/// The fields of one header block of a response.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// `:status`; 0 if there is none.
    pub(super) http_status: u16,
    content_type: Option<Bytes>,
    /// Codec of the content type, if it is one of gRPC.
    pub(super) codec: Option<Codec>,
    /// Value of `grpc-encoding`.
    encoding: Option<Bytes>,
    /// Value of `grpc-status`; an invalid one is `Unknown`.
    pub(super) grpc_status: Option<u16>,
    message: Bytes,
    details: Option<Bytes>,
    /// Delay before a retry in milliseconds; `None` inside for a value that forbids retries.
    pushback: Option<Option<u32>>,
    retry_after: Option<u32>,
    pub(super) metadata: Metadata,
    /// First field that is not valid metadata.
    invalid: Option<Status>,
    /// Rule of HTTP/2 that the block breaks.
    pub(super) malformed: Option<&'static str>,
    has_regular: bool,
}

impl Fields {
    /// Adds one field; at most `entries_max` are metadata.
    pub(super) fn add(&mut self, field: Field<'_>, entries_max: usize) {
        let Field { name, value, .. } = field;
        if name.first() == Some(&b':') {
            return self.add_pseudo(name, value);
        }
        self.has_regular = true;
        match name {
            b"content-type" => {
                self.codec = codec_of(value);
                self.content_type = Some(Bytes::copy_from_slice(value));
            }
            b"grpc-status" => {
                let number = std::str::from_utf8(value).ok().and_then(|number| number.parse().ok());
                self.grpc_status = Some(number.unwrap_or(Code::Unknown.number()));
            }
            b"grpc-message" => self.message = Bytes::copy_from_slice(value),
            b"grpc-encoding" => self.encoding = Some(Bytes::copy_from_slice(value)),
            b"grpc-status-details-bin" => {
                let text = std::str::from_utf8(value).unwrap_or_default();
                self.details = base64::decode(text.trim()).map(Bytes::from);
            }
            b"grpc-retry-pushback-ms" => self.pushback = Some(number(value)),
            b"retry-after" => self.retry_after = number(value),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                self.malformed = Some("a field of a connection in a response of HTTP/2");
            }
            _ => self.add_metadata(name, value, entries_max),
        }
        if name == b"retry-after" {
            self.add_metadata(name, value, entries_max);
        }
    }

    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) {
        let status = number(value).filter(|status| (100..=999).contains(status));
        match status {
            Some(status) if name == b":status" && self.http_status == 0 && !self.has_regular => {
                self.http_status = status as u16;
            }
            _ => self.malformed = Some("an invalid pseudo-field in a response"),
        }
    }

    fn add_metadata(&mut self, name: &[u8], value: &[u8], entries_max: usize) {
        if name.is_empty() || name.iter().any(u8::is_ascii_uppercase) {
            self.malformed = Some("a field name in a response is empty or has upper-case letters");
            return;
        }
        let Ok(name) = std::str::from_utf8(name) else { return };
        if is_reserved(name) || self.invalid.is_some() {
            return;
        }
        if name.ends_with("-bin") {
            // Proxies join repeated fields with commas.
            for part in String::from_utf8_lossy(value).split(',') {
                let Some(bytes) = base64::decode(part.trim()) else {
                    let text = format!("the server sent invalid metadata: metadata {name} is not base64");
                    self.invalid = Some(protocol_error(text));
                    return;
                };
                // A name that is not valid metadata is left out.
                let _ = self.metadata.insert(name, bytes);
            }
        } else {
            let _ = self.metadata.insert(name, Bytes::copy_from_slice(value));
        }
        if self.metadata.len() > entries_max {
            let text = format!("more than {entries_max} metadata entries (limit metadata_entries_max)");
            self.invalid = Some(Status::resource_exhausted(text));
        }
    }

    /// Returns the metadata.
    ///
    /// # Errors
    /// `Internal` for binary values that are not base64, `ResourceExhausted` for too many entries.
    pub(super) fn take_metadata(&mut self) -> Result<Metadata, Status> {
        match self.invalid.take() {
            Some(status) => Err(status),
            None => Ok(std::mem::take(&mut self.metadata)),
        }
    }

    /// Checks HTTP status and content type of a head.
    ///
    /// # Errors
    /// Returns the status of a response that is not one of gRPC in this codec.
    pub(super) fn check_head(&self, wanted: Codec, peer: &str) -> Result<(), Status> {
        if self.http_status == 200 && self.codec == Some(wanted) {
            return Ok(());
        }
        if self.grpc_status.is_some() && self.http_status != 200 && self.codec.is_some() {
            return Ok(());
        }
        let kind = self.content_type.as_ref().map_or("none".into(), |kind| String::from_utf8_lossy(kind));
        if self.http_status == 200 {
            let wanted = content_type(wanted).unwrap_or_default();
            let text = format!("{peer} responded with content type {kind}, expected {wanted}");
            let same_family =
                kind.starts_with("application/grpc") && !kind.starts_with("application/grpc-web");
            return Err(from_path(if same_family { Code::Internal } else { Code::Unknown }, text));
        }
        let status = self.http_status;
        let text = format!("{peer} responded with HTTP status {status}, content type {kind}");
        let failure = from_path(of_http(status), text);
        Err(match self.retry_after {
            Some(seconds) if matches!(status, 429 | 503) => {
                failure.with_retry(Retry::After(Duration::from_secs(u64::from(seconds))))
            }
            _ => failure,
        })
    }

    /// Returns the encoding of compressed replies.
    ///
    /// # Errors
    /// `Internal` for a compression that the call did not offer.
    pub(super) fn reply_encoding(&self, offered: Encoding) -> Result<Encoding, Status> {
        let name = match &self.encoding {
            None => return Ok(Encoding::Identity),
            Some(name) => &name[..],
        };
        if name.is_empty() || name == b"identity" {
            return Ok(Encoding::Identity);
        }
        match encoding_name(offered) {
            Some(known) if known.as_bytes() == name => Ok(offered),
            known => {
                let (name, known) = (String::from_utf8_lossy(name), known.unwrap_or("identity"));
                let text = format!("the reply is compressed with {name}; the call offered {known}");
                Err(protocol_error(text))
            }
        }
    }

    /// Returns true for a head without anything that a later equal block may have differently.
    pub(super) fn is_plain_head(&self) -> bool {
        self.http_status == 200
            && self.grpc_status.is_none()
            && self.encoding.as_ref().is_none_or(|name| name.is_empty() || &name[..] == b"identity")
            && self.has_nothing_else()
    }

    /// Returns true for trailers of a success without metadata.
    pub(super) fn is_plain_end(&self) -> bool {
        self.http_status == 0 && self.grpc_status == Some(0) && self.has_nothing_else()
    }

    fn has_nothing_else(&self) -> bool {
        self.metadata.is_empty() && self.invalid.is_none() && self.malformed.is_none()
    }

    /// Returns the end of the call: its trailers, or its status.
    pub(super) fn end(&mut self) -> Result<Metadata, Status> {
        let code = match self.grpc_status {
            None => {
                return Err(from_path(Code::Unknown, "the server ended the call without a grpc-status"));
            }
            Some(0) => return self.take_metadata(),
            Some(number) => Code::from_number(number),
        };
        let mut status = Status::new(code, percent_decoded(&self.message))
            .with_origin(Origin::Peer)
            .with_retry(hint(code));
        for detail in self.details.iter().flat_map(foreign::read_details) {
            status = status.with_detail(detail.type_name, detail.value);
        }
        let metadata = self.take_metadata().unwrap_or_default();
        Err(self.pushed_back(status.with_metadata(metadata)))
    }

    /// Adds the server's retry advice. It applies only to codes with which a server rejects calls: with others the call
    /// may have begun.
    fn pushed_back(&self, status: Status) -> Status {
        match self.pushback {
            Some(None) => return status.with_retry(Retry::No),
            Some(Some(millis)) => {
                let rejects =
                    matches!(status.code(), Code::Aborted | Code::ResourceExhausted | Code::Unavailable);
                let pause = Duration::from_millis(u64::from(millis));
                return if rejects { status.with_retry(Retry::After(pause)) } else { status };
            }
            None => {}
        }
        if !matches!(status.code(), Code::ResourceExhausted | Code::Unavailable) {
            return status;
        }
        let info = status.details().iter().find(|detail| detail.type_name == RETRY_INFO);
        match info.and_then(|detail| retry_delay(&detail.value)) {
            Some(pause) => status.with_retry(Retry::After(pause)),
            None => status,
        }
    }
}

fn number(value: &[u8]) -> Option<u32> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Reads the delay of a `google.rpc.RetryInfo`: field 1, a `google.protobuf.Duration`. `None` for an invalid one.
fn retry_delay(info: &[u8]) -> Option<Duration> {
    let mut fields = crate::proto::Fields(info);
    while let Ok(Some((field, value))) = fields.next() {
        if field != 1 {
            continue;
        }
        let (mut parts, mut seconds, mut nanos) = (crate::proto::Fields(value.bytes()), 0, 0);
        while let Ok(Some((field, value))) = parts.next() {
            match field {
                1 => seconds = u32::try_from(value.number()).ok()?,
                2 => nanos = u32::try_from(value.number()).ok().filter(|nanos| *nanos < 1_000_000_000)?,
                _ => return None,
            }
        }
        return Some(Duration::new(u64::from(seconds), nanos));
    }
    None
}

/// Decodes `%XX`; anything else stays as it is.
fn percent_decoded(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let byte = match tail.first_chunk::<2>() {
            Some(digits) if *first == b'%' => {
                std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok())
            }
            _ => None,
        };
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in pairs {
            let field = Field { name: name.as_bytes(), value: value.as_bytes(), never_indexed: false };
            fields.add(field, 8);
        }
        fields
    }

    #[test]
    fn statuses_carry_text_details_and_metadata() {
        // google.rpc.Status{code: 5, message: "m", details: [Any{"type.googleapis.com/a.B", 08 01}]}.
        let message = b"\x08\x05\x12\x01m\x1a\x1d\x0a\x17type.googleapis.com/a.B\x12\x02\x08\x01";
        let details = base64::encode(message);
        let status = fields(&[
            ("grpc-status", "5"),
            ("grpc-message", "no %C3%A9%25 %zz%"),
            ("grpc-status-details-bin", &details),
            ("x-why", "because"),
            ("x-some-bin", "AA, AQ=="),
        ])
        .end()
        .unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no \u{e9}% %zz%"));
        assert_eq!((status.origin(), status.retry()), (Origin::Peer, Retry::No));
        assert_eq!(status.details()[0].type_name, "a.B");
        assert_eq!(&status.details()[0].value[..], b"\x08\x01");
        assert_eq!(status.metadata().text("x-why"), Some("because"));
        let binary: Vec<_> = status.metadata().iter().filter(|(name, _)| *name == "x-some-bin").collect();
        assert_eq!(binary.iter().map(|(_, value)| value.to_vec()).collect::<Vec<_>>(), [[0], [1]]);
    }

    #[test]
    fn invalid_ends_have_the_code_unknown() {
        for pairs in [&[][..], &[("grpc-status", "x")], &[("grpc-status", "99")]] {
            assert_eq!(fields(pairs).end().unwrap_err().code(), Code::Unknown);
        }
        let broken = fields(&[("grpc-status", "3"), ("grpc-status-details-bin", "!")]).end().unwrap_err();
        assert_eq!(broken.code(), Code::InvalidArgument);
    }

    #[test]
    fn servers_set_the_retry_delay() {
        let after = |millis| Retry::After(Duration::from_millis(millis));
        let status = |code: &str, pushback: &str| {
            fields(&[("grpc-status", code), ("grpc-retry-pushback-ms", pushback)]).end().unwrap_err()
        };
        assert_eq!(status("8", "40").retry(), after(40));
        assert_eq!(status("14", "-1").retry(), Retry::No);
        assert_eq!(status("13", "40").retry(), Retry::No);
        // google.rpc.Status{details: [Any{"google.rpc.RetryInfo", RetryInfo{2.5 s}}]}.
        let info = b"\x0a\x08\x08\x02\x10\x80\xca\xb5\xee\x01";
        let mut any = b"\x0a\x14google.rpc.RetryInfo\x12\x0a".to_vec();
        any.extend_from_slice(info);
        let details = base64::encode(&[&[0x1a, any.len() as u8][..], &any].concat());
        let status = fields(&[("grpc-status", "14"), ("grpc-status-details-bin", &details)]).end();
        assert_eq!(status.unwrap_err().retry(), after(2500));
    }

    #[test]
    fn responses_of_other_protocols_are_named() {
        let page = fields(&[(":status", "502"), ("content-type", "text/html")]);
        let status = page.check_head(Codec::Proto, "tcp://a:1").unwrap_err();
        assert_eq!((status.code(), status.origin()), (Code::Unavailable, Origin::Connection));
        assert_eq!(status.message(), "tcp://a:1 responded with HTTP status 502, content type text/html");
        let json = fields(&[(":status", "200"), ("content-type", "application/grpc+json")]);
        assert_eq!(json.check_head(Codec::Proto, "a").unwrap_err().code(), Code::Internal);
        let proto = fields(&[(":status", "200"), ("content-type", "Application/gRPC+proto; a=b")]);
        assert!(proto.check_head(Codec::Proto, "a").is_ok() && proto.is_plain_head());
        for bad in [&[("a", "b"), (":status", "200")][..], &[(":status", "2x")], &[("A", "b")], &[("te", "")]]
        {
            let is_reserved = bad[0].0 == "te";
            assert_eq!(fields(bad).malformed.is_none(), is_reserved, "{bad:?}");
        }
    }

    #[test]
    fn timeouts_use_the_finest_unit_that_fits() {
        assert_eq!(timeout(Duration::from_nanos(1)), "1n");
        assert_eq!(timeout(Duration::from_millis(99)), "99000000n");
        assert_eq!(timeout(Duration::from_nanos(100_000_001)), "100001u");
        assert_eq!(timeout(Duration::from_secs(100)), "100000m");
        assert_eq!(timeout(Duration::MAX), "99999999H");
    }

    #[test]
    fn reserved_names_are_sorted_for_the_search() {
        assert!(RESERVED.is_sorted() && is_reserved("te") && is_reserved("grpc-x") && !is_reserved("x-a"));
    }
}
