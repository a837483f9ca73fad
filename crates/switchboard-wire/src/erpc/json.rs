//! The framing in which a message is a JSON object, and its body a string in it.
//!
//! erpc for Go puts a backslash before the quotes of a body and escapes nothing else: backslashes, line feeds and any
//! other bytes are written unchanged. The characters of such a string do not distinguish it from a correct one, but its
//! position does: Go writes the body last. Switchboard writes correct JSON, with the body before the codec, so that it
//! is read as JSON.

use super::message::{Glance, Message, codec};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, de::IgnoredAny};
use std::{borrow::Cow, str};

/// All fields but the body.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Head {
    seq: i32,
    mtype: u8,
    service_method: String,
    status: String,
    meta: String,
    body_codec: u8,
}

/// Reads the payload behind length and filters.
pub(super) fn read(payload: &[u8]) -> Option<Message<'static>> {
    let Some(at) = body_at(payload) else { return Some(message(serde_json::from_slice(payload).ok()?)) };
    let (before, rest) = payload.split_at(at);
    let go = rest.strip_suffix(b"\"}").filter(|text| is_of_go(text));
    let (text, after) = match go {
        Some(text) => (text, &rest[text.len()..]),
        None => rest.split_at(string_end(rest)?),
    };
    // Without the body both forms are JSON.
    let message = message(serde_json::from_slice(&[before, after].concat()).ok()?);
    let body = if go.is_some() { of_go(text, message.codec) } else { unescaped(text)? };
    Some(Message { body: body.into(), ..message })
}

fn message(head: Head) -> Message<'static> {
    let owned = |text: String| Cow::Owned(text.into_bytes());
    Message {
        sequence: head.seq,
        kind: head.mtype,
        name: owned(head.service_method),
        status: owned(head.status),
        metadata: owned(head.meta),
        codec: head.body_codec,
        body: Bytes::new(),
    }
}

/// Returns the position at which the body begins, behind its quote.
fn body_at(payload: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"body\"";
    let blanks = |at: usize| {
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        at + payload[at..].iter().take_while(is_blank).count()
    };
    payload.windows(KEY.len()).enumerate().filter(|(_, key)| *key == KEY).find_map(|(at, _)| {
        let colon = blanks(at + KEY.len());
        let quote = blanks(colon + usize::from(payload.get(colon) == Some(&b':')));
        (quote > colon && payload.get(quote) == Some(&b'"')).then_some(quote + 1)
    })
}

/// Returns the position of the closing quote of a string whose first byte is at 0.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns true if every quote has a backslash before it, as Go writes it.
fn is_of_go(text: &[u8]) -> bool {
    text.first() != Some(&b'"') && text.windows(2).all(|pair| pair[1] != b'"' || pair[0] == b'\\')
}

/// Decodes a string as Go wrote it; if that is impossible, as a correct writer with Go's field order wrote it.
fn of_go(text: &[u8], codec: u8) -> Vec<u8> {
    let mut body = Vec::with_capacity(text.len());
    for &byte in text {
        if byte == b'"' {
            body.pop();
        }
        body.push(byte);
    }
    let is_json = |body: &[u8]| serde_json::from_slice::<IgnoredAny>(body).is_ok();
    if codec != codec::JSON || !body.contains(&b'\\') || is_json(&body) {
        return body;
    }
    unescaped(text).filter(|other| is_json(other)).unwrap_or(body)
}

/// Decodes a JSON string between its quotes.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (kind, after) = rest.split_first()?;
        rest = after;
        match kind {
            b'"' | b'\\' | b'/' => bytes.push(*kind),
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'u' => {
                let mut unit = u32::from(code_unit(&mut rest)?);
                // The first half of a surrogate pair, if the second follows.
                if let (0xD800..0xDC00, Some(mut second)) = (unit, rest.strip_prefix(b"\\u"))
                    && let Some(low @ 0xDC00..0xE000) = code_unit(&mut second)
                {
                    unit = 0x10000 + ((unit - 0xD800) << 10) + u32::from(low - 0xDC00);
                    rest = second;
                }
                let character = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// Takes the four digits of an escape.
fn code_unit(rest: &mut &[u8]) -> Option<u16> {
    let (digits, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Reads the available fields from the first bytes of a message.
pub(super) fn glance(prefix: &[u8]) -> Option<Glance> {
    let behind = |key: &[u8]| {
        let at = prefix.windows(key.len()).position(|part| part == key)?;
        Some(&prefix[at + key.len()..])
    };
    let number = |key: &[u8]| {
        let text = behind(key)?.trim_ascii_start();
        let is_digit = |byte: &&u8| byte.is_ascii_digit() || **byte == b'-';
        str::from_utf8(&text[..text.iter().take_while(is_digit).count()]).ok()?.parse::<i32>().ok()
    };
    let name = behind(b"\"serviceMethod\":\"").and_then(|name| name.split(|byte| *byte == b'"').next());
    Some(Glance {
        sequence: number(b"\"seq\":")?,
        kind: u8::try_from(number(b"\"mtype\":")?).ok()?,
        name: name.unwrap_or_default().to_vec(),
    })
}

/// Writes a message.
pub(super) fn put(message: &Message<'_>, into: &mut BytesMut) {
    into.put_slice(format!("{{\"seq\":{},\"mtype\":{}", message.sequence, message.kind).as_bytes());
    let body = Cow::Borrowed(&message.body[..]);
    for (key, text) in [
        ("serviceMethod", &message.name),
        ("status", &message.status),
        ("meta", &message.metadata),
        ("body", &body),
    ] {
        into.put_slice(format!(",\"{key}\":\"").as_bytes());
        put_escaped(text, into);
        into.put_u8(b'"');
    }
    into.put_slice(format!(",\"bodyCodec\":{}}}", message.codec).as_bytes());
}

/// Writes bytes that are not text unchanged: JSON cannot express them, and peers accept them.
fn put_escaped(text: &[u8], into: &mut BytesMut) {
    for part in text.chunk_by(|one, other| is_plain(*one) && is_plain(*other)) {
        match part {
            [byte @ (b'"' | b'\\')] => into.put_slice(&[b'\\', *byte]),
            [byte @ 0..0x20] => into.put_slice(format!("\\u{byte:04x}").as_bytes()),
            plain => into.put_slice(plain),
        }
    }
}

fn is_plain(byte: u8) -> bool {
    !matches!(byte, b'"' | b'\\' | 0..0x20)
}
