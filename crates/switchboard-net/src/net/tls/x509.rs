//! Parser for certificates: subject, issuer, names and validity, for messages and for selection by name.
//!
//! Reads the DER of RFC 5280 without verification: signatures and chains are verified elsewhere, and invalid
//! input yields `None`.

use std::{
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
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
        let mut certificate = Reader(Reader(der).expect(SEQUENCE)?);
        let mut body = Reader(certificate.expect(SEQUENCE)?);
        body.skip_if(CONTEXT_0);
        body.expect(INTEGER)?;
        body.expect(SEQUENCE)?;
        let issuer = distinguished_name(body.expect(SEQUENCE)?)?;
        let mut validity = Reader(body.expect(SEQUENCE)?);
        let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = distinguished_name(body.expect(SEQUENCE)?)?;
        body.expect(SEQUENCE)?;
        let mut names = Vec::new();
        while let Some((tag, content)) = body.next() {
            if tag == CONTEXT_3 {
                names = alternative_names(content)?;
            }
        }
        Some(Summary { subject, issuer, names, not_before, not_after })
    }

    /// Returns the DNS names among the alternative names, including wildcards.
    pub(super) fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter_map(|name| name.strip_prefix("dns:"))
    }
}

/// Parses a SubjectPublicKeyInfo; returns the algorithm OID and the key bits, or `None` for invalid input.
#[cfg(feature = "auth")]
pub fn public_key(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut info = Reader(Reader(der).expect(SEQUENCE)?);
    let kind = Reader(info.expect(SEQUENCE)?).expect(OBJECT)?;
    // The first byte is the number of unused bits.
    let bits = info.expect(BITS)?.strip_prefix(&[0])?;
    Some((kind, bits))
}

const INTEGER: u8 = 0x02;
#[cfg(feature = "auth")]
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERAL_TIME: u8 = 0x18;
const BMP_STRING: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// Tags of the version and of the extensions.
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_3: u8 = 0xa3;

/// id-ce-subjectAltName, 2.5.29.17.
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// Attributes with a short name in RFC 4514, and the email attribute.
const ATTRIBUTES: [(&[u8], &str); 10] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// Reader for consecutive DER elements.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Returns tag and content of the next element; `None` at the end and for a length beyond the end.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    fn skip_if(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }
}

/// Formats a name with its last part first, as RFC 4514 requires.
fn distinguished_name(content: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    let mut sets = Reader(content);
    while !sets.0.is_empty() {
        let mut attributes = Reader(sets.expect(SET)?);
        let mut part = String::new();
        while !attributes.0.is_empty() {
            let mut attribute = Reader(attributes.expect(SEQUENCE)?);
            let kind = attribute.expect(OBJECT)?;
            let (tag, value) = attribute.next()?;
            if !part.is_empty() {
                part.push('+');
            }
            match ATTRIBUTES.iter().find(|(known, _)| *known == kind) {
                Some((_, name)) => part.push_str(name),
                None => part.push_str(&dotted(kind)),
            }
            part.push('=');
            escape(&text(tag, value), &mut part);
        }
        parts.push(part);
    }
    parts.reverse();
    Some(parts.join(","))
}

fn text(tag: u8, value: &[u8]) -> String {
    if tag == BMP_STRING {
        let units = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        return char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    }
    String::from_utf8_lossy(value).into_owned()
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

/// Formats an object identifier in dotted notation.
fn dotted(object: &[u8]) -> String {
    let mut numbers = Vec::new();
    let mut number = 0u64;
    for byte in object {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.extend([first.to_string(), (number - first * 40).to_string()]);
            } else {
                numbers.push(number.to_string());
            }
            number = 0;
        }
    }
    numbers.join(".")
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut all = Reader(Reader(extensions).expect(SEQUENCE)?);
    let mut found = Vec::new();
    while !all.0.is_empty() {
        let mut extension = Reader(all.expect(SEQUENCE)?);
        if extension.expect(OBJECT)? != SUBJECT_ALT_NAME {
            continue;
        }
        let (mut tag, mut content) = extension.next()?;
        if tag != OCTETS {
            // The element was the flag of a critical extension.
            (tag, content) = extension.next()?;
        }
        if tag != OCTETS {
            return None;
        }
        let mut names = Reader(Reader(content).expect(SEQUENCE)?);
        while let Some((tag, content)) = names.next() {
            found.extend(alternative_name(tag, content));
        }
    }
    Some(found)
}

fn alternative_name(tag: u8, content: &[u8]) -> Option<String> {
    let kind = match tag {
        0x81 => "email:",
        0x82 => "dns:",
        0x86 => "uri:",
        0x87 => {
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

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the formats that RFC 5280 allows, to seconds since 1970.
fn time((tag, content): (u8, &[u8])) -> Option<i64> {
    let digits = content.strip_suffix(b"Z")?;
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        std::str::from_utf8(digits.get(range)?).ok()?.parse::<u32>().ok().map(i64::from)
    };
    let (year, at) = match (tag, digits.len()) {
        // Two digits represent 1950 to 2049.
        (UTC_TIME, 12) => number(0..2).map(|year| (year + if year < 50 { 2000 } else { 1900 }, 2))?,
        (GENERAL_TIME, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    let part = |index: usize| number(at + 2 * index..at + 2 * index + 2);
    let days = days_from_civil(year, part(0)?, part(1)?);
    Some(days * 86_400 + part(2)? * 3600 + part(3)? * 60 + part(4)?)
}

/// Returns the days since 1970 of a Gregorian date; the computation starts years in March, so that leap days
/// come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Formats seconds since 1970 as `2026-11-21 06:44:34 UTC`.
pub(super) fn date(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

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
