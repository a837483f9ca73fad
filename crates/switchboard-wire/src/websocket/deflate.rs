//! Compression of messages: the extension permessage-deflate of RFC 7692.
//!
//! [`Deflate`] is the result of the negotiation in the handshake. Neither side keeps its window from one message to the
//! next (`server_no_context_takeover` and `client_no_context_takeover` are always negotiated). A connection therefore
//! holds no compressor, and a decompressor of about 50 KiB only while a compressed message is arriving. Compressors
//! belong to the thread.
//!
//! The size of a compressed message depends on its content. If secrets and attacker-controlled data are in one message,
//! the size can reveal the secrets, so compression is off by default.

#[cfg(test)]
mod messages;
mod offer;
mod streams;

pub(super) use streams::{Inflate, OUT_MAX};

use offer::Parameters;

/// Extension that a client offers. It also accepts a limit on its own window.
pub(super) const OFFER: &str =
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits";
/// Smallest message that is compressed, in bytes; shorter ones would gain next to nothing.
const COMPRESS_MIN: usize = 256;
/// Smallest window for compression, in bits. A side that agreed on less sends its messages uncompressed.
const WINDOW_BITS_MIN: u8 = 9;
const WINDOW_BITS_MAX: u8 = 15;

/// Negotiated parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deflate {
    /// Window of the compressor of this side: the base-2 logarithm of its size.
    window_bits: u8,
}

impl Deflate {
    /// Negotiates at a server: takes the first acceptable offer in the headers `Sec-WebSocket-Extensions` of a request,
    /// and returns it with the header of the response. `None` if there is none; the connection then has no compression.
    pub fn answer<'a>(headers: impl Iterator<Item = &'a str>) -> Option<(Deflate, String)> {
        let wanted = headers.flat_map(offer::split).find_map(|text| Parameters::read(text).ok()?)?;
        let mut answer =
            String::from("permessage-deflate; server_no_context_takeover; client_no_context_takeover");
        if let Some(bits) = wanted.server_max_window_bits {
            answer.push_str(&format!("; server_max_window_bits={bits}"));
        }
        Some((Deflate { window_bits: wanted.server_max_window_bits.unwrap_or(WINDOW_BITS_MAX) }, answer))
    }

    /// Negotiates at a client: reads the headers `Sec-WebSocket-Extensions` of the response to its offer; `None` if the
    /// server declines compression.
    ///
    /// # Errors
    /// Returns an error if the response does not match the offer.
    pub(super) fn accepted<'a>(headers: impl Iterator<Item = &'a str>) -> Result<Option<Deflate>, String> {
        let mut agreed = None;
        for text in headers.flat_map(offer::split) {
            let wrong = |why: &str| format!("extension {text:?} in the response of the server: {why}");
            let Some(parameters) = Parameters::read(text).map_err(|why| wrong(&why))? else {
                return Err(wrong("it was not offered"));
            };
            if !parameters.server_no_context_takeover {
                return Err(wrong("server_no_context_takeover is missing"));
            }
            let window_bits = match parameters.client_max_window_bits {
                None => WINDOW_BITS_MAX,
                Some(None) => return Err(wrong("client_max_window_bits has no value")),
                Some(Some(bits)) => bits,
            };
            if agreed.replace(Deflate { window_bits }).is_some() {
                return Err(wrong("it is repeated"));
            }
        }
        Ok(agreed)
    }

    /// Returns true if messages of `len` bytes are worth compressing.
    pub(super) fn compresses(self, len: usize) -> bool {
        len >= COMPRESS_MIN && self.window_bits >= WINDOW_BITS_MIN
    }

    /// Passes the compressed payload of a message of these parts to `write`, unless it would not be shorter.
    pub(super) fn compress(self, parts: &[&[u8]], write: impl FnOnce(&[u8])) -> bool {
        let len = parts.iter().map(|part| part.len()).sum();
        self.compresses(len) && streams::compress(self.window_bits, parts, len, write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_takes_the_first_offer_that_it_can() {
        let plain = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        for (offers, answer) in [
            ("permessage-deflate", Some((15, ""))),
            ("Permessage-Deflate ; client_max_window_bits", Some((15, ""))),
            ("permessage-deflate; client_max_window_bits=10", Some((15, ""))),
            ("permessage-deflate; server_no_context_takeover; client_no_context_takeover", Some((15, ""))),
            ("permessage-deflate; server_max_window_bits=9", Some((9, "; server_max_window_bits=9"))),
            ("permessage-deflate; server_max_window_bits=8", Some((8, "; server_max_window_bits=8"))),
            ("permessage-deflate; server_max_window_bits=\"10\"", Some((10, "; server_max_window_bits=10"))),
            ("x-webkit-deflate-frame, permessage-deflate", Some((15, ""))),
            (
                "permessage-deflate; server_max_window_bits=16, permessage-deflate; server_max_window_bits=12",
                Some((12, "; server_max_window_bits=12")),
            ),
            ("permessage-deflate; server_max_window_bits=08", None),
            ("permessage-deflate; server_max_window_bits", None),
            ("permessage-deflate; server_max_window_bits=7", None),
            ("permessage-deflate; client_max_window_bits=x", None),
            ("permessage-deflate; server_no_context_takeover=1", None),
            ("permessage-deflate; client_no_context_takeover; client_no_context_takeover", None),
            ("permessage-deflate; unheard_of", None),
            ("permessage-deflate;", None),
            ("permessage-bzip2", None),
            ("", None),
        ] {
            let expected =
                answer.map(|(window_bits, more)| (Deflate { window_bits }, format!("{plain}{more}")));
            assert_eq!(Deflate::answer([offers].into_iter()), expected, "{offers}");
        }
        let two = ["permessage-deflate; server_max_window_bits=1", "permessage-deflate"];
        assert!(Deflate::answer(two.into_iter()).is_some());
    }

    #[test]
    fn a_client_accepts_responses_that_match_its_offer() {
        let accepted = |answer: &str| Deflate::accepted([answer].into_iter());
        assert_eq!(Deflate::accepted([].into_iter()), Ok(None));
        for (answer, window_bits) in [
            ("permessage-deflate; server_no_context_takeover", 15),
            ("permessage-deflate; server_no_context_takeover; client_no_context_takeover", 15),
            ("permessage-deflate; server_no_context_takeover; server_max_window_bits=8", 15),
            ("permessage-deflate; client_max_window_bits=9; server_no_context_takeover", 9),
            ("permessage-deflate; client_max_window_bits=8; server_no_context_takeover", 8),
        ] {
            assert_eq!(accepted(answer), Ok(Some(Deflate { window_bits })), "{answer}");
        }
        for (answer, why) in [
            ("permessage-deflate", "server_no_context_takeover is missing"),
            ("permessage-deflate; server_no_context_takeover; client_max_window_bits", "has no value"),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits",
                "server_max_window_bits",
            ),
            ("permessage-deflate; server_no_context_takeover; more=1", "more"),
            ("x-other", "not offered"),
            (
                "permessage-deflate; server_no_context_takeover, permessage-deflate; server_no_context_takeover",
                "repeated",
            ),
        ] {
            assert!(accepted(answer).unwrap_err().contains(why), "{answer}");
        }
    }
}
