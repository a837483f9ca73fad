//! gRPC: the end of a call, in trailers or in a trailers-only response; also used by gRPC-Web.

use super::codes;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine;
use percent_encoding::percent_decode;
use std::time::Duration;
use switchboard_core::Result;
use switchboard_net::http_fields::{BASE64, MetadataLimits};
use switchboard_wire::{Code, Metadata, Origin, Status};

pub(super) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
pub(super) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
pub(super) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Reads the end of a call from its trailers: their metadata, or their status.
pub(super) fn end(trailers: &HeaderMap, limits: &MetadataLimits) -> Result<Metadata> {
    let Some(number) = trailers.get(STATUS) else {
        return Err(codes::from_path(
            Code::Unknown,
            "the server ended the call without a grpc-status".into(),
        ));
    };
    // Fast path: a successful call usually has no trailers but the status.
    if number == "0" {
        return if trailers.len() == 1 { Ok(Metadata::new()) } else { codes::metadata(trailers, limits) };
    }
    let number = number.to_str().ok().and_then(|number| number.parse::<u16>().ok());
    let code = match number {
        Some(0) => return codes::metadata(trailers, limits),
        Some(number) => Code::from_number(number),
        None => Code::Unknown,
    };
    let text = trailers
        .get(MESSAGE)
        .map_or_else(String::new, |text| percent_decode(text.as_bytes()).decode_utf8_lossy().into_owned());
    let mut status = Status::new(code, text).with_origin(Origin::Peer).with_retry(codes::hint(code));
    if let Some(details) = trailers.get(DETAILS)
        && let Ok(details) = BASE64.decode(details.as_bytes().trim_ascii())
    {
        for (type_name, value) in parse_details(&details) {
            status = status.with_detail(type_name, value);
        }
    }
    let metadata = codes::metadata(trailers, limits).unwrap_or_default();
    Err(codes::pushed_back(status.with_metadata(metadata), trailers))
}

/// Formats the remaining timeout, in the finest unit that fits into eight digits, rounded up.
pub(super) fn timeout(left: Duration) -> HeaderValue {
    const DIGITS: u128 = 99_999_999;
    let nanos = left.as_nanos();
    let units = [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    let fits =
        units.iter().map(|(unit, name)| (nanos.div_ceil(*unit), name)).find(|(count, _)| *count <= DIGITS);
    let text = match fits {
        Some((count, name)) => format!("{count}{name}"),
        None => format!("{}H", nanos.div_ceil(3_600_000_000_000).min(DIGITS)),
    };
    HeaderValue::try_from(text).expect("digits and a letter are a valid header")
}

/// Reads the details of a `google.rpc.Status`: field 3, each an `Any` of a type URL and a value. Invalid fields are
/// skipped.
fn parse_details(status: &[u8]) -> Vec<(String, Vec<u8>)> {
    let any = |bytes: &[u8]| {
        let (mut type_name, mut value) = (String::new(), Vec::new());
        for (number, field) in Fields(bytes) {
            match number {
                1 => type_name = String::from_utf8_lossy(field).into_owned(),
                2 => value = field.to_vec(),
                _ => {}
            }
        }
        // Only the name is kept: the host in the prefix of the URL is not used.
        let name = type_name.rsplit('/').next().unwrap_or_default().to_owned();
        (name, value)
    };
    Fields(status).filter(|(number, _)| *number == 3).map(|(_, bytes)| any(bytes)).collect()
}

/// Reads the delay of a `google.rpc.RetryInfo`: field 1, a `google.protobuf.Duration` of seconds and nanoseconds.
/// `None` for invalid or negative values.
pub(super) fn retry_delay(info: &[u8]) -> Option<Duration> {
    let (_, delay) = Fields(info).find(|(number, _)| *number == 1)?;
    let (mut fields, mut seconds, mut nanos) = (Fields(delay), 0, 0);
    while let Some(tag) = fields.varint() {
        match tag {
            0x08 => seconds = u32::try_from(fields.varint()?).ok()?,
            0x10 => nanos = u32::try_from(fields.varint()?).ok().filter(|nanos| *nanos < 1_000_000_000)?,
            _ => return None,
        }
    }
    Some(Duration::new(u64::from(seconds), nanos))
}

/// Iterates over the length-delimited fields of a protobuf message; stops at the first invalid byte.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let tag = self.varint()?;
            match tag & 7 {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.varint()?).ok()?;
                    return Some((tag >> 3, self.take(length)?));
                }
                5 => drop(self.take(4)?),
                _ => return None,
            }
        }
    }
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_core::Limits;
    use switchboard_wire::Retry;

    fn ended(pairs: &[(&'static str, &'static str)]) -> Result<Metadata> {
        let mut trailers = HeaderMap::new();
        for (name, value) in pairs {
            trailers.append(*name, HeaderValue::from_static(value));
        }
        end(&trailers, &MetadataLimits::new(&Limits::default()))
    }

    #[test]
    fn trailers_of_a_successful_call_carry_metadata() {
        assert!(ended(&[("grpc-status", "0")]).unwrap().is_empty());
        let metadata = ended(&[("grpc-status", "0"), ("grpc-message", ""), ("x-end", "bye")]).unwrap();
        assert_eq!(format!("{metadata:?}"), r#"{"x-end": b"bye"}"#);
    }

    #[test]
    fn statuses_carry_text_details_and_metadata() {
        // google.rpc.Status{code: 5, message: "m", details: [Any{"type.googleapis.com/a.B", 08 01}]}.
        let wanted = b"\x08\x05\x12\x01m\x1a\x1d\x0a\x17type.googleapis.com/a.B\x12\x02\x08\x01";
        let details: &'static str = BASE64.encode(wanted).leak();
        let status = ended(&[
            ("grpc-status", "5"),
            ("grpc-message", "no %C3%A9%25 %zz%"),
            ("grpc-status-details-bin", details),
            ("x-why", "because"),
        ])
        .unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no \u{e9}% %zz%"));
        assert_eq!((status.origin(), status.retry()), (Origin::Peer, Retry::No));
        assert_eq!(status.details()[0].type_name, "a.B");
        assert_eq!(&status.details()[0].value[..], b"\x08\x01");
        assert_eq!(status.metadata().text("x-why"), Some("because"));
    }

    #[test]
    fn invalid_ends_have_the_code_unknown() {
        for pairs in [&[][..], &[("grpc-status", "x")], &[("grpc-status", "99")]] {
            assert_eq!(ended(pairs).unwrap_err().code(), Code::Unknown);
        }
        let broken = ended(&[("grpc-status", "3"), ("grpc-status-details-bin", "!")]).unwrap_err();
        assert_eq!(broken.code(), Code::InvalidArgument);
        for cut in 0..8 {
            // Truncated input must not panic.
            let _ = parse_details(&b"\x1a\x06\x0a\x01a\x12\x01b"[..cut]);
        }
    }

    #[test]
    fn timeouts_use_the_finest_unit_that_fits() {
        let written = |left| timeout(left).to_str().unwrap().to_owned();
        assert_eq!(written(Duration::from_nanos(1)), "1n");
        assert_eq!(written(Duration::from_millis(99)), "99000000n");
        assert_eq!(written(Duration::from_nanos(100_000_001)), "100001u");
        assert_eq!(written(Duration::from_secs(100)), "100000m");
        assert_eq!(written(Duration::MAX), "99999999H");
    }
}
