//! The opening handshake of section 4: the client's request, and the check of the response.

use super::deflate::{self, Deflate};
use crate::{Input, base64};

const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Longest head of a response, in bytes.
const HEAD_MAX: usize = 8 << 10;

/// Computes the `Sec-WebSocket-Accept` for the key of a client.
pub fn accept_key(key: &str) -> String {
    base64::encode(&sha1_smol::Sha1::from(format!("{key}{GUID}")).digest().bytes())
}

/// Returns true if `key` is 16 bytes in base64, as a `Sec-WebSocket-Key` must be.
pub fn is_key(key: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == 24 && key.ends_with("==") && key.bytes().take(22).all(is_base64)
}

/// The client side of an opening handshake.
#[derive(Clone, Debug)]
pub struct Handshake {
    key: String,
    protocol: Option<&'static str>,
    /// The server may leave out the sub-protocol.
    lenient: bool,
    origin: Option<String>,
    deflate: bool,
}

/// A response that opened the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Accepted {
    /// Negotiated compression, if it was offered and accepted.
    pub deflate: Option<Deflate>,
}

impl Handshake {
    /// Requests the sub-protocol `protocol`; `nonce` must be random.
    pub fn new(nonce: [u8; 16], protocol: &'static str) -> Handshake {
        Handshake { protocol: Some(protocol), ..Handshake::without_protocol(nonce) }
    }

    /// Requests no sub-protocol; `nonce` must be random.
    pub fn without_protocol(nonce: [u8; 16]) -> Handshake {
        let key = base64::encode(&nonce);
        Handshake { key, protocol: None, lenient: false, origin: None, deflate: false }
    }

    /// Sends the origin of the caller, such as `http://localhost:8080`. Some servers require it, although section 4.1
    /// requires it only of browsers.
    #[must_use]
    pub fn with_origin(mut self, origin: &str) -> Handshake {
        self.origin = Some(origin.to_owned());
        self
    }

    /// Accepts a server that supports no sub-protocols.
    #[must_use]
    pub fn protocol_optional(mut self) -> Handshake {
        self.lenient = true;
        self
    }

    /// Offers compression of messages.
    #[must_use]
    pub fn offer_deflate(mut self) -> Handshake {
        self.deflate = true;
        self
    }

    /// Writes the request for `path`; `host` includes the port if it is not 80.
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

    /// Takes the response from `input`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns the reason why the response does not open a connection.
    pub fn answer(&self, input: &mut Input) -> Result<Option<Accepted>, String> {
        let rest = input.rest();
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
            if rest.len() > HEAD_MAX {
                return Err(format!("the head of the response has more than {HEAD_MAX} bytes"));
            }
            return Ok(None);
        };
        let head = std::str::from_utf8(&rest[..end]).map_err(|_| "the response is not text")?;
        let accepted = self.check(head)?;
        input.skip(end + 4);
        Ok(Some(accepted))
    }

    fn check(&self, head: &str) -> Result<Accepted, String> {
        let (status, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        if !(status.starts_with("HTTP/1.1 101 ") || status == "HTTP/1.1 101") {
            let status: String = status.chars().take(100).collect();
            return Err(format!("the response is {status:?}, not 101"));
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
            return Err("the response does not upgrade to websocket".into());
        }
        if all("sec-websocket-accept").next() != Some(&accept_key(&self.key)) {
            return Err("Sec-WebSocket-Accept does not match the key".into());
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
            (Some(other), requested) if requested != Some(other) => {
                let requested = requested.unwrap_or("none");
                Err(format!("the server chose the sub-protocol {other:?}, not {requested}"))
            }
            (None, Some(requested)) if !self.lenient => {
                Err(format!("the server does not support the sub-protocol {requested}"))
            }
            _ => Ok(Accepted { deflate }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_keys_are_those_of_the_rfc() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(
            is_key("dGhlIHNhbXBsZSBub25jZQ==") && !is_key("short") && !is_key("dGhlIHNhbXBsZSBub25jZQ=a")
        );
    }

    #[test]
    fn requests_have_only_the_configured_headers() {
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
    fn responses_are_checked_and_following_bytes_stay() {
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
            ("WebSocket", "h2c", "not upgrade to websocket"),
            ("keep-alive, Upgrade", "close", "not upgrade to websocket"),
            ("s3pP", "S3pP", "Sec-WebSocket-Accept"),
            ("swb.1", "jsonrpc", "\"jsonrpc\""),
            ("sec-websocket-protocol: swb.1", "x: y", "does not support"),
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
