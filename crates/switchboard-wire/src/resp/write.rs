//! Replies, pushes and commands as bytes, in both versions of the protocol.

use super::{SubscriptionKind, Value, Version};
use crate::{Outbox, Outgoing};
use bytes::BufMut;
use std::fmt::Write as _;

/// Appends the head of an aggregate or of a bulk string: its type, its count or length, CRLF.
pub(super) fn write_head(kind: u8, count: u64, out: &mut Outbox) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = count;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let tail = out.tail();
    tail.put_u8(kind);
    tail.put_slice(&digits[at..]);
    tail.put_slice(b"\r\n");
}

/// Appends a line of this type. A CR or LF in `text`, which would end the line, is written as a space.
pub(super) fn write_line(kind: u8, text: &[u8], out: &mut Outbox) {
    let tail = out.tail();
    tail.reserve(text.len() + 3);
    tail.put_u8(kind);
    tail.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    tail.put_slice(b"\r\n");
}

/// Appends an error: its class, such as `ERR`, a space and its text.
pub(super) fn write_error(class: &str, text: &str, out: &mut Outbox) {
    write_line(b'-', format!("{class} {text}").as_bytes(), out);
}

/// Appends an integer.
pub(super) fn write_integer(integer: i64, out: &mut Outbox) {
    match u64::try_from(integer) {
        Ok(integer) => write_head(b':', integer, out),
        Err(_) => write_line(b':', integer.to_string().as_bytes(), out),
    }
}

/// Appends a bulk string, or another type with its layout.
pub(super) fn write_bulk<'a>(kind: u8, content: impl Into<Outgoing<'a>>, out: &mut Outbox) {
    let content = content.into();
    write_head(kind, content.len() as u64, out);
    out.put(content);
    out.tail().put_slice(b"\r\n");
}

/// Appends a bulk string of borrowed bytes.
pub(super) fn write_text(content: &[u8], out: &mut Outbox) {
    write_bulk(b'$', Outgoing::Lent(content), out);
}

/// Appends a null.
pub(super) fn write_null(version: Version, out: &mut Outbox) {
    let null = if version == Version::Resp3 { &b"_\r\n"[..] } else { b"$-1\r\n" };
    out.tail().put_slice(null);
}

/// Appends the head of a map of `entries` entries, which RESP2 has as an array.
pub(super) fn write_map_head(version: Version, entries: usize, out: &mut Outbox) {
    match version {
        Version::Resp2 => write_head(b'*', entries as u64 * 2, out),
        Version::Resp3 => write_head(b'%', entries as u64, out),
    }
}

/// Appends the head of a push, which RESP2 has as an array.
pub(super) fn write_push_head(version: Version, elements: usize, out: &mut Outbox) {
    let kind = if version == Version::Resp3 { b'>' } else { b'*' };
    write_head(kind, elements as u64, out);
}

/// Appends a confirmation of a subscription or of its end: the name, or null, and the count.
pub(super) fn write_confirmation(
    version: Version,
    word: &str,
    name: Option<&[u8]>,
    count: usize,
    out: &mut Outbox,
) {
    write_push_head(version, 3, out);
    write_text(word.as_bytes(), out);
    match name {
        Some(name) => write_text(name, out),
        None => write_null(version, out),
    }
    write_head(b':', count as u64, out);
}

/// Appends a message to a subscriber of a channel or of a shard channel.
///
/// The bytes depend on the version and the kind only, so a publisher can encode a message once and send it on many
/// connections.
pub fn write_message<'a>(
    version: Version,
    kind: SubscriptionKind,
    channel: &[u8],
    payload: impl Into<Outgoing<'a>>,
    out: &mut Outbox,
) {
    write_push_head(version, 3, out);
    write_text(if kind == SubscriptionKind::Shard { b"smessage" } else { b"message" }, out);
    write_text(channel, out);
    write_bulk(b'$', payload, out);
}

/// Appends a message to a subscriber of `pattern`.
pub fn write_pattern_message<'a>(
    version: Version,
    pattern: &[u8],
    channel: &[u8],
    payload: impl Into<Outgoing<'a>>,
    out: &mut Outbox,
) {
    write_push_head(version, 4, out);
    write_text(b"pmessage", out);
    write_text(pattern, out);
    write_text(channel, out);
    write_bulk(b'$', payload, out);
}

/// Appends a command as an array of bulk strings; nothing if there are no arguments.
pub fn write_command<'a, I>(arguments: I, out: &mut Outbox)
where
    I: IntoIterator,
    I::IntoIter: ExactSizeIterator,
    I::Item: Into<Outgoing<'a>>,
{
    let arguments = arguments.into_iter();
    if arguments.len() > 0 {
        write_head(b'*', arguments.len() as u64, out);
    }
    for argument in arguments {
        write_bulk(b'$', argument, out);
    }
}

/// Appends a value. RESP2 has no types for some: a double, a big number, a verbatim string and a bulk error become
/// text, a boolean becomes 0 or 1, a map, a set and a push become arrays, and attributes are left out.
pub fn write_value(version: Version, value: &Value, out: &mut Outbox) {
    let is_new = version == Version::Resp3;
    match value {
        Value::Array(elements) => {
            write_head(b'*', elements.len() as u64, out);
            elements.iter().for_each(|element| write_value(version, element, out));
        }
        Value::Attributed { attributes, value } => {
            if is_new {
                write_head(b'|', attributes.len() as u64, out);
                write_entries(version, attributes, out);
            }
            write_value(version, value, out);
        }
        Value::BigNumber(digits) if is_new => write_line(b'(', digits, out),
        Value::Boolean(is_true) if is_new => {
            out.tail().put_slice(if *is_true { b"#t\r\n" } else { b"#f\r\n" });
        }
        Value::Boolean(is_true) => write_integer((*is_true).into(), out),
        Value::Bulk(content) | Value::BigNumber(content) => write_bulk(b'$', content, out),
        Value::BulkError(text) if is_new => write_bulk(b'!', text, out),
        Value::BulkError(text) | Value::Error(text) => write_line(b'-', text, out),
        Value::Double(double) => {
            let mut text = String::new();
            // A string can always be written to.
            let _ = write!(text, "{double}");
            match is_new {
                true => write_line(b',', text.to_lowercase().as_bytes(), out),
                false => write_text(text.to_lowercase().as_bytes(), out),
            }
        }
        Value::Integer(integer) => write_integer(*integer, out),
        Value::Map(entries) => {
            write_map_head(version, entries.len(), out);
            write_entries(version, entries, out);
        }
        Value::Null => write_null(version, out),
        Value::Push(elements) => {
            write_push_head(version, elements.len(), out);
            elements.iter().for_each(|element| write_value(version, element, out));
        }
        Value::Set(elements) => {
            write_head(if is_new { b'~' } else { b'*' }, elements.len() as u64, out);
            elements.iter().for_each(|element| write_value(version, element, out));
        }
        Value::Simple(text) => write_line(b'+', text, out),
        Value::Verbatim { format, text } if is_new => {
            write_head(b'=', text.len() as u64 + 4, out);
            out.tail().put_slice(format);
            out.tail().put_u8(b':');
            out.put(text);
            out.tail().put_slice(b"\r\n");
        }
        Value::Verbatim { text, .. } => write_bulk(b'$', text, out),
    }
}

fn write_entries(version: Version, entries: &[(Value, Value)], out: &mut Outbox) {
    for (key, value) in entries {
        write_value(version, key, out);
        write_value(version, value, out);
    }
}
