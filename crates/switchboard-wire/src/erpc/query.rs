//! Query strings: `name=value&name=value` with `%` escapes.

use bytes::{BufMut, BytesMut};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// Bytes that are escaped: all but those that erpc for Go leaves.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

/// Reads the names and values of a query string, in order. Invalid escapes are kept unchanged, as in erpc for Go.
pub(super) fn pairs(query: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let mut next = || unescaped(parts.next().unwrap_or_default());
        (next(), next())
    })
}

/// Appends a name and a value.
pub(super) fn put(into: &mut BytesMut, name: &[u8], value: &[u8]) {
    if !into.is_empty() {
        into.put_u8(b'&');
    }
    put_escaped(into, name);
    into.put_u8(b'=');
    put_escaped(into, value);
}

fn put_escaped(into: &mut BytesMut, text: &[u8]) {
    for part in percent_encode(text, &ESCAPED) {
        into.put_slice(part.as_bytes());
    }
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let with_spaces: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&with_spaces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_go() {
        let mut query = BytesMut::new();
        put(&mut query, b"msg", "a b+c&d=%;\u{e9}\0".as_bytes());
        put(&mut query, b"", b"x");
        assert_eq!(&query[..], b"msg=a%20b%2Bc%26d%3D%25%3B%C3%A9%00&=x");
        let read: Vec<_> = pairs(&query).collect();
        assert_eq!(read[0].1, "a b+c&d=%;\u{e9}\0".as_bytes());
        assert_eq!(read[1], (vec![], b"x".to_vec()));
    }

    #[test]
    fn odd_strings_are_read_as_they_stand() {
        let read = |query: &[u8]| {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            pairs(query).map(|(name, value)| (text(name), text(value))).collect::<Vec<_>>()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read(b""), []);
        assert_eq!(read(b"&&a&b=&c=d=e"), [pair("a", ""), pair("b", ""), pair("c", "d=e")]);
        assert_eq!(read(b"a=%zz%4&b=%41+%"), [pair("a", "%zz%4"), pair("b", "A %")]);
        assert_eq!(read(b"a;b=1;2"), [pair("a;b", "1;2")]);
    }
}
