//! Envelope of a request: the frames that lead its reply back through any number of ROUTER and DEALER sockets.

use bytes::Bytes;

/// The frames of a request up to its first empty frame, that one included. They are written before the reply, byte for
/// byte and in order. It is empty for a request without an envelope.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Envelope {
    frames: Vec<Bytes>,
}

impl Envelope {
    /// Removes the envelope from the front of a request; the rest is the body, which has at least one frame. Without an
    /// envelope it returns `None` and changes nothing: a REP discards such a message.
    pub fn split(message: &mut Vec<Bytes>) -> Option<Envelope> {
        let delimiter = message.iter().position(Bytes::is_empty)?;
        if delimiter + 1 == message.len() {
            return None;
        }
        let body = message.split_off(delimiter + 1);
        Some(Envelope { frames: std::mem::replace(message, body) })
    }

    /// Removes the envelope if there is one; otherwise the whole message is the body, as a DEALER may send it to a
    /// ROUTER.
    pub fn split_or_bare(message: &mut Vec<Bytes>) -> Envelope {
        Envelope::split(message).unwrap_or_default()
    }

    /// Returns the reply with its envelope.
    pub fn wrap(self, body: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
        let mut message = self.frames;
        message.extend(body);
        message
    }

    /// Returns the frames.
    pub fn frames(&self) -> &[Bytes] {
        &self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(frames: &[&'static str]) -> Vec<Bytes> {
        frames.iter().map(|frame| Bytes::from_static(frame.as_bytes())).collect()
    }

    #[test]
    fn replies_have_the_envelope_of_their_request() {
        for (frames, envelope) in [
            (&["", "body"][..], 1),
            (&["a", "b", "c", "", "body", "", "more"], 4),
            // The body of a request may begin with an empty frame.
            (&["a", "", ""], 2),
        ] {
            let mut request = message(frames);
            let split = Envelope::split(&mut request).unwrap();
            assert_eq!(split.frames(), &message(frames)[..envelope]);
            assert_eq!(request, message(frames)[envelope..]);
            let reply = split.wrap(message(&["r1", "r2"]));
            assert_eq!(reply, [&message(frames)[..envelope], &message(&["r1", "r2"])].concat());
        }
    }

    #[test]
    fn a_message_without_an_envelope_is_unchanged() {
        for frames in [&["body"][..], &["a", "b"], &[""], &["a", ""], &[]] {
            let mut request = message(frames);
            assert_eq!(Envelope::split(&mut request), None);
            assert_eq!(Envelope::split_or_bare(&mut request), Envelope::default());
            assert_eq!(request, message(frames));
        }
    }
}
