//! The opening handshake of section 4: the client's request and what it accepts as an answer.

use super::{
    deflate::{self, Deflate},
    sha1::sha1,
};
use crate::{Input, base64};

const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Longest head of an answer.
const HEAD_MAX: usize = 8 << 10;

/// What a server answers to the key of a client.
pub fn accept_key(key: &str) -> String {
    base64::encode(&sha1(format!("{key}{GUID}").as_bytes()))
}

/// Whether `key` is 16 bytes in base64, as a `Sec-WebSocket-Key` must be.
pub fn is_key(key: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == 24 && key.ends_with("==") && key.bytes().take(22).all(is_base64)
}

/// The client's side of an opening handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    key: String,
    protocol: Option<&'static str>,
    /// A server may leave the protocol out.
    lenient: bool,
    origin: Option<String>,
    deflate: bool,
}

/// An answer that opened the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Accepted {
    /// Compression that was offered and is taken.
    pub deflate: Option<Deflate>,
}

impl Handshake {
    /// Asks for `protocol`; `nonce` must be random.
    pub fn new(nonce: [u8; 16], protocol: &'static str) -> Handshake {
        Handshake { protocol: Some(protocol), ..Handshake::without_protocol(nonce) }
    }

    /// Asks for no sub-protocol; `nonce` must be random.
    pub fn without_protocol(nonce: [u8; 16]) -> Handshake {
        let key = base64::encode(&nonce);
        Handshake { key, protocol: None, lenient: false, origin: None, deflate: false }
    }

    /// Says where the caller comes from, as in `http://localhost:8080`: some servers let only those in who do, though
    /// section 4.1 wants it of browsers alone.
    #[must_use]
    pub fn with_origin(mut self, origin: &str) -> Handshake {
        self.origin = Some(origin.to_owned());
        self
    }

    /// Takes a server that speaks no sub-protocols.
    #[must_use]
    pub fn protocol_optional(mut self) -> Handshake {
        self.lenient = true;
        self
    }

    /// Offers to compress messages.
    #[must_use]
    pub fn offer_deflate(mut self) -> Handshake {
        self.deflate = true;
        self
    }

    /// The request to `path` of `host`, which has the port that is not 80.
    pub fn request(&self, host: &str, path: &str) -> String {
        let key = &self.key;
        let mut request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        );
        for (name, value) in [
            ("Origin", self.origin.as_deref()),
            ("Sec-WebSocket-Protocol", self.protocol),
            ("Sec-WebSocket-Extensions", self.deflate.then_some(deflate::OFFER)),
        ] {
            if let Some(value) = value {
                request.extend([name, ": ", value, "\r\n"]);
            }
        }
        request + "\r\n"
    }

    /// Takes the answer from `input`; none means that more bytes are needed.
    ///
    /// # Errors
    /// Why the answer opens no connection.
    pub fn answer(&self, input: &mut Input) -> Result<Option<Accepted>, String> {
        let rest = input.rest();
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
            if rest.len() > HEAD_MAX {
                return Err(format!("the head of the answer has more than {HEAD_MAX} bytes"));
            }
            return Ok(None);
        };
        let head = std::str::from_utf8(&rest[..end]).map_err(|_| "the answer is not text")?;
        let accepted = self.check(head)?;
        input.skip(end + 4);
        Ok(Some(accepted))
    }

    fn check(&self, head: &str) -> Result<Accepted, String> {
        let (status, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        if !(status.starts_with("HTTP/1.1 101 ") || status == "HTTP/1.1 101") {
            let status: String = status.chars().take(100).collect();
            return Err(format!("the answer is {status:?}, not 101"));
        }
        let headers: Vec<(&str, &str)> = headers
            .split("\r\n")
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim()))
            .collect();
        let all = |wanted: &'static str| {
            headers.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value)
        };
        let has = |name, token: &str| {
            all(name).flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
        };
        if !has("upgrade", "websocket") || !has("connection", "upgrade") {
            return Err("the answer upgrades to no websocket".into());
        }
        if all("sec-websocket-accept").next() != Some(&accept_key(&self.key)) {
            return Err("Sec-WebSocket-Accept does not fit the key".into());
        }
        let mut extensions = all("sec-websocket-extensions").peekable();
        let deflate = match self.deflate {
            true => Deflate::accepted(extensions)?,
            false if extensions.peek().is_some() => {
                return Err("the server uses an extension that was not offered".into());
            }
            false => None,
        };
        match (all("sec-websocket-protocol").next(), self.protocol) {
            (Some(other), asked) if asked != Some(other) => {
                let asked = asked.unwrap_or("none");
                Err(format!("the server chose the sub-protocol {other:?}, not {asked}"))
            }
            (None, Some(asked)) if !self.lenient => {
                Err(format!("the server does not know the sub-protocol {asked}"))
            }
            _ => Ok(Accepted { deflate }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_answered_as_in_the_rfc() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(
            is_key("dGhlIHNhbXBsZSBub25jZQ==") && !is_key("short") && !is_key("dGhlIHNhbXBsZSBub25jZQ=a")
        );
    }

    #[test]
    fn requests_say_what_was_asked_for_and_no_more() {
        let bare = Handshake::without_protocol(*b"the sample nonce");
        let head = "GET /x HTTP/1.1\r\nHost: a:1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
        for (handshake, rest) in [
            (bare.clone(), ""),
            (bare.with_origin("http://a:1"), "Origin: http://a:1\r\n"),
            (
                Handshake::new(*b"the sample nonce", "swb.1").offer_deflate(),
                &*format!(
                    "Sec-WebSocket-Protocol: swb.1\r\nSec-WebSocket-Extensions: {}\r\n",
                    deflate::OFFER
                ),
            ),
        ] {
            assert_eq!(handshake.request("a:1", "/x"), format!("{head}{rest}\r\n"));
        }
    }

    #[test]
    fn answers_are_checked_and_what_follows_stays() {
        let handshake = Handshake::new(*b"the sample nonce", "swb.1");
        let good = "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nconnection: keep-alive, Upgrade\r\n\
                    sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: swb.1\r\n\r\n";
        for end in 0..good.len() {
            let mut input = Input::default();
            input.extend(&good.as_bytes()[..end]);
            assert_eq!(handshake.answer(&mut input), Ok(None));
        }
        let mut input = Input::default();
        input.extend(good.as_bytes());
        input.extend(b"\x82\0");
        assert_eq!(handshake.answer(&mut input), Ok(Some(Accepted { deflate: None })));
        assert_eq!(input.rest(), b"\x82\0");
        for (from, to, why) in [
            ("101 Switching Protocols", "403 Forbidden", "not 101"),
            ("WebSocket", "h2c", "no websocket"),
            ("keep-alive, Upgrade", "close", "no websocket"),
            ("s3pP", "S3pP", "Sec-WebSocket-Accept"),
            ("swb.1", "jsonrpc", "\"jsonrpc\""),
            ("sec-websocket-protocol: swb.1", "x: y", "does not know"),
            ("sec-websocket-protocol", "Sec-WebSocket-Extensions", "extension"),
        ] {
            let mut input = Input::default();
            input.extend(good.replace(from, to).as_bytes());
            let error = handshake.answer(&mut input).unwrap_err();
            assert!(error.contains(why), "{from}: {error}");
        }
        let bare = Handshake::without_protocol(*b"the sample nonce");
        let mut input = Input::default();
        input.extend(good.as_bytes());
        let error = bare.answer(&mut input).unwrap_err();
        assert!(error.contains("\"swb.1\", not none"), "{error}");
        input = Input::default();
        input.extend(good.replace("sec-websocket-protocol: swb.1\r\n", "").as_bytes());
        assert_eq!(bare.answer(&mut input), Ok(Some(Accepted { deflate: None })));
        let mut input = Input::default();
        input.extend(&[b'x'; HEAD_MAX + 1]);
        assert!(handshake.answer(&mut input).is_err());
    }
}
