//! Alternation of REQ: a request, then its reply from the same peer.

use bytes::Bytes;
use std::fmt;

/// Requests of a REQ to peers that are called `P`.
#[derive(Debug)]
pub struct Requests<P> {
    /// The number of the next request, if requests have one.
    number: Option<u32>,
    is_relaxed: bool,
    pending: Option<Pending<P>>,
}

#[derive(Debug)]
struct Pending<P> {
    peer: P,
    number: Option<u32>,
}

/// Result of a message from a peer.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: every REQ handles each outcome
pub enum Reply {
    /// The body of the expected reply.
    Body(Vec<Bytes>),
    /// The message belongs to no pending request: it is dropped.
    Late,
    /// The message does not begin with the envelope of REQ: libzmq closes its connection.
    Malformed,
}

/// A request is pending, and its reply must arrive first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AwaitsReply;

impl fmt::Display for AwaitsReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request is pending: receive its reply first, or allow several with `relaxed`")
    }
}

impl std::error::Error for AwaitsReply {}

impl<P: Copy + Eq> Requests<P> {
    /// Creates requests without numbers, one at a time.
    pub fn new() -> Requests<P> {
        Requests { number: None, is_relaxed: false, pending: None }
    }

    /// Puts a number before the envelope of each request, beginning with `first`; replies must have it too.
    #[must_use]
    pub fn with_numbers(mut self, first: u32) -> Requests<P> {
        self.number = Some(first);
        self
    }

    /// Lets a request replace the pending one, whose reply is then dropped. Without numbers a late reply of the same
    /// peer counts as the reply to the new request.
    #[must_use]
    pub fn relaxed(mut self) -> Requests<P> {
        self.is_relaxed = true;
        self
    }

    /// Returns a request with its envelope, to be sent to `peer`.
    ///
    /// # Errors
    /// Fails while a request is pending, unless requests are [relaxed](Self::relaxed).
    pub fn request(
        &mut self,
        peer: P,
        body: impl IntoIterator<Item = Bytes>,
    ) -> Result<Vec<Bytes>, AwaitsReply> {
        if self.pending.is_some() && !self.is_relaxed {
            return Err(AwaitsReply);
        }
        let number = self.number;
        self.number = number.map(|number| number.wrapping_add(1));
        self.pending = Some(Pending { peer, number });
        let mut message = Vec::new();
        message.extend(number.map(|number| Bytes::copy_from_slice(&number.to_be_bytes())));
        message.push(Bytes::new());
        message.extend(body);
        Ok(message)
    }

    /// Processes a message from `peer`.
    pub fn reply(&mut self, peer: P, mut message: Vec<Bytes>) -> Reply {
        let delimiter = usize::from(self.number.is_some());
        let is_numbered = delimiter == 0 || message.first().is_some_and(|number| number.len() == 4);
        let has_body = message.len() > delimiter + 1;
        if !is_numbered || !has_body || !message[delimiter].is_empty() {
            return Reply::Malformed;
        }
        let body = message.split_off(delimiter + 1);
        let is_expected = self.pending.as_ref().is_some_and(|pending| {
            let number = pending.number.map(u32::to_be_bytes);
            pending.peer == peer && number.is_none_or(|number| message[0][..] == number)
        });
        if !is_expected {
            return Reply::Late;
        }
        self.pending = None;
        Reply::Body(body)
    }

    /// Forgets the pending request if it was sent to `peer`, whose connection has ended; returns true if there was one.
    pub fn remove(&mut self, peer: P) -> bool {
        self.pending.take_if(|pending| pending.peer == peer).is_some()
    }
}

impl<P: Copy + Eq> Default for Requests<P> {
    fn default() -> Requests<P> {
        Requests::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(frames: &[&'static str]) -> Vec<Bytes> {
        frames.iter().map(|frame| Bytes::from_static(frame.as_bytes())).collect()
    }

    #[test]
    fn requests_and_replies_alternate() {
        let mut requests = Requests::new();
        assert_eq!(requests.reply(1, message(&["", "early"])), Reply::Late);
        assert_eq!(requests.request(1, message(&["q", "r"])), Ok(message(&["", "q", "r"])));
        assert_eq!(requests.request(1, message(&["q"])), Err(AwaitsReply));
        assert_eq!(requests.reply(2, message(&["", "of another peer"])), Reply::Late);
        for malformed in [&["a"][..], &["a", "b"], &[""], &[]] {
            assert_eq!(requests.reply(1, message(malformed)), Reply::Malformed);
        }
        assert_eq!(requests.reply(1, message(&["", "a", ""])), Reply::Body(message(&["a", ""])));
        assert_eq!(requests.reply(1, message(&["", "again"])), Reply::Late);
        assert!(requests.request(1, message(&["q"])).is_ok());
        assert!(!requests.remove(2) && requests.remove(1) && !requests.remove(1));
        assert!(requests.request(2, message(&["q"])).is_ok());
    }

    #[test]
    fn numbers_distinguish_relaxed_requests() {
        let mut requests = Requests::new().with_numbers(u32::MAX).relaxed();
        let [first, second] = [(); 2].map(|()| requests.request(1, message(&["q"])).unwrap());
        assert_eq!((&first[0][..], &second[0][..]), (&[0xFF; 4][..], &[0; 4][..]));
        let reply = |request: &[Bytes]| [&request[..2], &message(&["a"])].concat();
        assert_eq!(requests.reply(1, reply(&first)), Reply::Late);
        assert_eq!(requests.reply(1, message(&["", "a"])), Reply::Malformed);
        assert_eq!(requests.reply(1, reply(&second)), Reply::Body(message(&["a"])));
    }
}
