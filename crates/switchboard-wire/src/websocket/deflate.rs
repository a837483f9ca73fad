//! Compression of messages: the extension permessage-deflate of RFC 7692.
//!
//! [`Deflate`] is what two sides have agreed on in their handshake. Neither ever keeps its window from one message to
//! the next (`server_no_context_takeover` and `client_no_context_takeover` are always part of it), so that a connection
//! holds no compressor at all and a decompressor only while a compressed message is arriving: some 50 KiB. What
//! compresses belongs to the thread.
//!
//! The sizes of compressed messages tell something about their content. Where secrets and what an attacker can choose
//! travel in one message, that may be too much, so nothing of this happens unless it is asked for.

#[cfg(test)]
mod messages;
mod offer;
mod streams;

pub(super) use streams::{Inflate, OUT_MAX};

use offer::Parameters;

/// What a client offers. It takes a limit on its own window too.
pub(super) const OFFER: &str =
    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits";
/// Shorter messages would gain next to nothing.
const COMPRESS_MIN: usize = 256;
/// The smallest window that can be compressed with. A side that agreed on less sends its messages as they are.
const WINDOW_BITS_MIN: u8 = 9;
const WINDOW_BITS_MAX: u8 = 15;

/// What two sides agreed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deflate {
    /// The window for what this side sends, a power of two.
    window_bits: u8,
}

impl Deflate {
    /// What a server makes of the headers `Sec-WebSocket-Extensions` of a request, and the same header of its answer:
    /// the first offer that it can take. None if there is none; the connection then goes without compression.
    pub fn answer<'a>(headers: impl Iterator<Item = &'a str>) -> Option<(Deflate, String)> {
        let wanted = headers.flat_map(offer::split).find_map(|text| Parameters::read(text).ok()?)?;
        let mut answer =
            String::from("permessage-deflate; server_no_context_takeover; client_no_context_takeover");
        if let Some(bits) = wanted.server_max_window_bits {
            answer.push_str(&format!("; server_max_window_bits={bits}"));
        }
        Some((Deflate { window_bits: wanted.server_max_window_bits.unwrap_or(WINDOW_BITS_MAX) }, answer))
    }

    /// What a client makes of the headers `Sec-WebSocket-Extensions` of the answer to its offer; none if the server
    /// goes without compression.
    ///
    /// # Errors
    /// An answer that does not fit the offer.
    pub(super) fn accepted<'a>(headers: impl Iterator<Item = &'a str>) -> Result<Option<Deflate>, String> {
        let mut agreed = None;
        for text in headers.flat_map(offer::split) {
            let wrong = |why: &str| format!("the server answers with the extension {text:?}: {why}");
            let Some(parameters) = Parameters::read(text).map_err(|why| wrong(&why))? else {
                return Err(wrong("it was not offered"));
            };
            if !parameters.server_no_context_takeover {
                return Err(wrong("server_no_context_takeover was asked for"));
            }
            let window_bits = match parameters.client_max_window_bits {
                None => WINDOW_BITS_MAX,
                Some(None) => return Err(wrong("client_max_window_bits has no value")),
                Some(Some(bits)) => bits,
            };
            if agreed.replace(Deflate { window_bits }).is_some() {
                return Err(wrong("it comes twice"));
            }
        }
        Ok(agreed)
    }

    /// Whether messages of `len` bytes are worth the work.
    pub(super) fn compresses(self, len: usize) -> bool {
        len >= COMPRESS_MIN && self.window_bits >= WINDOW_BITS_MIN
    }

    /// Hands the compressed payload of a message of these parts to `write`, unless it would not be shorter.
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
    fn a_client_takes_what_fits_its_offer() {
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
            ("permessage-deflate", "server_no_context_takeover was asked for"),
            ("permessage-deflate; server_no_context_takeover; client_max_window_bits", "has no value"),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits",
                "server_max_window_bits",
            ),
            ("permessage-deflate; server_no_context_takeover; more=1", "more"),
            ("x-other", "not offered"),
            (
                "permessage-deflate; server_no_context_takeover, permessage-deflate; server_no_context_takeover",
                "twice",
            ),
        ] {
            assert!(accepted(answer).unwrap_err().contains(why), "{answer}");
        }
    }
}
