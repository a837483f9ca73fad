//! Query strings: `name=value&name=value` with `%` escapes.

use bytes::{BufMut, BytesMut};

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
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'*' | b'-' | b'.' | b'_' => into.put_u8(byte),
            _ => into.put_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'+', _) => plain.push(b' '),
            (b'%', [high, low, behind @ ..]) => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => {
                    plain.push((high << 4 | low) as u8);
                    rest = behind;
                }
                _ => plain.push(b'%'),
            },
            (byte, _) => plain.push(*byte),
        }
    }
    plain
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
