//! Parser for certificates: subject, issuer, names and validity, for messages and for selection by name.
//!
//! Reads the DER of RFC 5280 without verification: signatures and chains are verified elsewhere, and invalid
//! input yields `None`. Elements that are not needed are skipped, whatever they contain.

use der::{
    DateTime, Decode, Reader, SliceReader, Tag, TagNumber, Tagged,
    asn1::{AnyRef, GeneralizedTime, ObjectIdentifier, UtcTime},
};
use std::{
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// Parsed fields of a certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Summary {
    /// Distinguished name in the syntax of RFC 4514: `CN=alice,O=example`.
    pub(super) subject: String,
    pub(super) issuer: String,
    /// Alternative names with their kind: `dns:a.example`, `uri:spiffe://…`, `email:…`, `ip:…`.
    pub(super) names: Vec<String>,
    /// Seconds since 1970.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
}

impl Summary {
    /// Parses a certificate; returns `None` for invalid input.
    pub(super) fn of(der: &[u8]) -> Option<Summary> {
        let mut certificate = Elements::new(Elements::new(der)?.expect(Tag::Sequence)?)?;
        let mut body = Elements::new(certificate.expect(Tag::Sequence)?)?;
        let serial = match body.next()? {
            version if version.tag() == context(0, true) => body.next()?,
            serial => serial,
        };
        if serial.tag() != Tag::Integer {
            return None;
        }
        body.expect(Tag::Sequence)?;
        let issuer = distinguished_name(body.expect(Tag::Sequence)?)?;
        let mut validity = Elements::new(body.expect(Tag::Sequence)?)?;
        let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = distinguished_name(body.expect(Tag::Sequence)?)?;
        body.expect(Tag::Sequence)?;
        let mut names = Vec::new();
        while let Some(element) = body.next() {
            if element.tag() == context(3, true) {
                names = alternative_names(element.value())?;
            }
        }
        Some(Summary { subject, issuer, names, not_before, not_after })
    }

    /// Returns the DNS names among the alternative names, including wildcards.
    pub(super) fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter_map(|name| name.strip_prefix("dns:"))
    }
}

/// Parses a SubjectPublicKeyInfo; returns the content of the algorithm's OID and the key bits, or `None` for invalid
/// input.
#[cfg(feature = "auth")]
pub fn public_key(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut info = Elements::new(Elements::new(der)?.expect(Tag::Sequence)?)?;
    let kind = Elements::new(info.expect(Tag::Sequence)?)?.expect(Tag::ObjectIdentifier)?;
    // The first byte is the number of unused bits.
    let bits = info.expect(Tag::BitString)?.strip_prefix(&[0])?;
    Some((kind, bits))
}

/// Content of id-ce-subjectAltName, 2.5.29.17.
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// Attributes with a short name in RFC 4514, and the email attribute.
const ATTRIBUTES: [(&str, &str); 10] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Reader for consecutive DER elements.
struct Elements<'a>(SliceReader<'a>);

impl<'a> Elements<'a> {
    fn new(content: &'a [u8]) -> Option<Elements<'a>> {
        SliceReader::new(content).ok().map(Elements)
    }

    /// Returns the next element; `None` at the end and for an invalid one.
    fn next(&mut self) -> Option<AnyRef<'a>> {
        AnyRef::decode(&mut self.0).ok()
    }

    /// Returns the content of the next element, which must have this tag.
    fn expect(&mut self, tag: Tag) -> Option<&'a [u8]> {
        self.next().filter(|element| element.tag() == tag).map(AnyRef::value)
    }

    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

fn context(number: u32, constructed: bool) -> Tag {
    Tag::ContextSpecific { constructed, number: TagNumber(number) }
}

/// Formats a name with its last part first, as RFC 4514 requires.
fn distinguished_name(content: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    let mut sets = Elements::new(content)?;
    while !sets.is_finished() {
        let mut attributes = Elements::new(sets.expect(Tag::Set)?)?;
        let mut part = String::new();
        while !attributes.is_finished() {
            let mut attribute = Elements::new(attributes.expect(Tag::Sequence)?)?;
            // The crate limits identifiers to 39 bytes.
            let kind = ObjectIdentifier::<39>::from_bytes(attribute.expect(Tag::ObjectIdentifier)?)
                .map_or_else(|_| "?".to_owned(), |kind| kind.to_string());
            let value = attribute.next()?;
            if !part.is_empty() {
                part.push('+');
            }
            let short = ATTRIBUTES.iter().find(|(number, _)| *number == kind);
            part.push_str(short.map_or(kind.as_str(), |(_, name)| name));
            part.push('=');
            escape(&text(value), &mut part);
        }
        parts.push(part);
    }
    parts.reverse();
    Some(parts.join(","))
}

fn text(value: AnyRef<'_>) -> String {
    if value.tag() == Tag::BmpString {
        let units = value.value().chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        return char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    }
    String::from_utf8_lossy(value.value()).into_owned()
}

/// Escapes special characters with a backslash, and control characters as hexadecimal, because the text goes
/// into logs.
fn escape(text: &str, into: &mut String) {
    for (at, character) in text.char_indices() {
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' => into.extend(['\\', character]),
            '#' | ' ' if at == 0 => into.extend(['\\', character]),
            ' ' if at + 1 == text.len() => into.push_str("\\ "),
            _ => push_visible(character, into),
        }
    }
}

fn push_visible(character: char, into: &mut String) {
    if character.is_control() {
        let mut bytes = [0; 4];
        for byte in character.encode_utf8(&mut bytes).bytes() {
            // Writing to a string cannot fail.
            let _ = write!(into, "\\{byte:02x}");
        }
    } else {
        into.push(character);
    }
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut all = Elements::new(Elements::new(extensions)?.expect(Tag::Sequence)?)?;
    let mut found = Vec::new();
    while !all.is_finished() {
        let mut extension = Elements::new(all.expect(Tag::Sequence)?)?;
        if extension.expect(Tag::ObjectIdentifier)? != SUBJECT_ALT_NAME {
            continue;
        }
        let content = match extension.next()? {
            critical if critical.tag() == Tag::Boolean => extension.expect(Tag::OctetString)?,
            content => Some(content).filter(|content| content.tag() == Tag::OctetString)?.value(),
        };
        let mut names = Elements::new(Elements::new(content)?.expect(Tag::Sequence)?)?;
        while let Some(name) = names.next() {
            found.extend(alternative_name(name));
        }
    }
    Some(found)
}

fn alternative_name(name: AnyRef<'_>) -> Option<String> {
    let Tag::ContextSpecific { constructed: false, number } = name.tag() else { return None };
    let content = name.value();
    let kind = match number.value() {
        1 => "email:",
        2 => "dns:",
        6 => "uri:",
        7 => {
            let v4 = <[u8; 4]>::try_from(content).map(|bytes| Ipv4Addr::from(bytes).to_string());
            let v6 = <[u8; 16]>::try_from(content).map(|bytes| Ipv6Addr::from(bytes).to_string());
            return v4.or(v6).ok().map(|address| format!("ip:{address}"));
        }
        _ => return None,
    };
    let mut name = kind.to_owned();
    String::from_utf8_lossy(content).chars().for_each(|character| push_visible(character, &mut name));
    Some(name)
}

/// Parses a time of one of the types that RFC 5280 allows, to seconds since 1970; `None` for earlier ones.
fn time(value: AnyRef<'_>) -> Option<i64> {
    let since = match value.tag() {
        Tag::UtcTime => value.decode_as::<UtcTime>().ok()?.to_unix_duration(),
        _ => value.decode_as::<GeneralizedTime>().ok()?.to_unix_duration(),
    };
    i64::try_from(since.as_secs()).ok()
}

/// Formats seconds since 1970 as `2026-11-21 06:44:34 UTC`; times outside the years 1970 to 9999 stay numbers.
pub(super) fn date(seconds: i64) -> String {
    let since = u64::try_from(seconds).ok().map(Duration::from_secs);
    match since.and_then(|since| DateTime::from_unix_duration(since).ok()) {
        Some(date) => date.to_string().replace('T', " ").replace('Z', " UTC"),
        None => format!("{seconds} s after 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType, date_time_ymd};

    fn certificate() -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".into(), "*.b.example".into()]).unwrap();
        params.subject_alt_names.push(SanType::URI("spiffe://example/alice".try_into().unwrap()));
        params.subject_alt_names.push(SanType::Rfc822Name("alice@example".try_into().unwrap()));
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example, Inc");
        params.distinguished_name.push(DnType::CommonName, "alice\n");
        params.not_before = date_time_ymd(2024, 2, 29);
        params.not_after = date_time_ymd(2051, 3, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn subject_names_and_validity_are_read() {
        let summary = Summary::of(&certificate()).unwrap();
        assert_eq!(summary.subject, "CN=alice\\0a,O=Example\\, Inc");
        assert_eq!(summary.issuer, summary.subject);
        let names = ["dns:a.example", "dns:*.b.example", "uri:spiffe://example/alice", "email:alice@example"];
        assert_eq!(summary.names[..4], names);
        assert_eq!(summary.names[4], "ip:127.0.0.1");
        assert_eq!(summary.dns_names().collect::<Vec<_>>(), ["a.example", "*.b.example"]);
        assert_eq!(date(summary.not_before), "2024-02-29 00:00:00 UTC");
        assert_eq!(date(summary.not_after), "2051-03-01 00:00:00 UTC");
        assert_eq!(date(1_795_243_474), "2026-11-21 06:44:34 UTC");
    }

    #[test]
    fn unusual_certificates_are_read() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.serial_number = Some(vec![0x7f; 40].into());
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, DnValue::BmpString("\u{e4}\u{4e2d}".try_into().unwrap()));
        params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 311, 60, 2, 1, 3]), "DE");
        params.distinguished_name.push(DnType::OrganizationName, "# a=b ");
        params.not_before = date_time_ymd(1970, 1, 1);
        params.not_after = date_time_ymd(9999, 12, 31);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let summary = Summary::of(certificate.der()).unwrap();
        assert_eq!(summary.subject, "O=\\# a\\=b\\ ,1.3.6.1.4.1.311.60.2.1.3=DE,CN=\u{e4}\u{4e2d}");
        assert!(summary.names.is_empty());
        assert_eq!((summary.not_before, date(summary.not_after).as_str()), (0, "9999-12-31 00:00:00 UTC"));
    }

    #[test]
    fn bytes_that_are_no_certificate_give_none_or_something_but_no_panic() {
        let whole = certificate();
        for end in 0..whole.len() {
            assert_eq!(Summary::of(&whole[..end]), None);
        }
        let mut broken = whole.clone();
        for at in 0..whole.len() {
            for value in [0, 0x30, 0x7f, 0x84, 0xff] {
                broken[at] = value;
                let _ = Summary::of(&broken);
            }
            broken[at] = whole[at];
        }
    }
}
