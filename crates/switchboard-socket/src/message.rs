//! Messages: one or more frames that are sent and received as a whole.

use bytes::Bytes;
use std::{fmt, slice};

/// A message of one or more frames. Frames are reference-counted, so a clone copies no bytes.
///
/// A received message of a fast peer shares the buffer that it was read into, 64 KiB; [`detached`](Self::detached)
/// copies one that is kept for long.
///
/// ```
/// use switchboard_socket::Message;
///
/// let one = Message::from("task");
/// assert_eq!(one.body(), b"task");
/// let several = Message::from(["topic", "body"]);
/// assert_eq!(several.frames().len(), 2);
/// ```
#[derive(Clone, Eq)]
pub struct Message(Frames);

/// One frame needs no list.
#[derive(Clone, Eq, PartialEq)]
enum Frames {
    Many(Vec<Bytes>),
    One(Bytes),
}

impl Message {
    /// Creates a message of these frames. A message without frames is refused by `send`.
    pub fn new(frames: impl IntoIterator<Item = impl Into<Bytes>>) -> Message {
        Message::from(frames.into_iter().map(Into::into).collect::<Vec<Bytes>>())
    }

    /// Returns the frames.
    #[inline]
    pub fn frames(&self) -> &[Bytes] {
        match &self.0 {
            Frames::Many(frames) => frames,
            Frames::One(frame) => slice::from_ref(frame),
        }
    }

    /// Returns the last frame: the content of a message whose other frames are addresses or topics. Empty if the
    /// message has no frame.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.frames().last().map_or(&[], |frame| frame)
    }

    /// Returns the frames as a list.
    pub fn into_frames(self) -> Vec<Bytes> {
        match self.0 {
            Frames::Many(frames) => frames,
            Frames::One(frame) => vec![frame],
        }
    }

    /// Returns the size of all frames in bytes.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        match &self.0 {
            Frames::Many(frames) => frames.iter().map(Bytes::len).sum(),
            Frames::One(frame) => frame.len(),
        }
    }

    /// Returns a copy that shares no memory with a read buffer.
    #[must_use]
    pub fn detached(&self) -> Message {
        match &self.0 {
            Frames::Many(frames) => {
                Message(Frames::Many(frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect()))
            }
            Frames::One(frame) => Message(Frames::One(Bytes::copy_from_slice(frame))),
        }
    }

    /// Returns the message with a frame before all others.
    #[must_use]
    pub(crate) fn behind(self, first: Bytes) -> Message {
        Message(Frames::Many(match self.0 {
            Frames::Many(mut frames) => {
                frames.insert(0, first);
                frames
            }
            Frames::One(frame) => vec![first, frame],
        }))
    }

    /// Removes the first frame. `None` if it is the only one, or if there is none.
    pub(crate) fn split_first(self) -> Option<(Bytes, Message)> {
        match self.0 {
            Frames::Many(mut frames) if frames.len() > 1 => {
                let first = frames.remove(0);
                Some((first, Message::from(frames)))
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Message) -> bool {
        self.frames() == other.frames()
    }
}

impl From<Bytes> for Message {
    #[inline]
    fn from(frame: Bytes) -> Message {
        Message(Frames::One(frame))
    }
}

impl From<Vec<Bytes>> for Message {
    fn from(mut frames: Vec<Bytes>) -> Message {
        match frames.len() {
            1 => Message(Frames::One(frames.swap_remove(0))),
            _ => Message(Frames::Many(frames)),
        }
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::from(Bytes::from(text))
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::from(Bytes::from(bytes))
    }
}

/// Copies the text; a [`Bytes`] is not copied.
impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::from(text.as_bytes())
    }
}

/// Copies the bytes; a [`Bytes`] is not copied.
impl From<&[u8]> for Message {
    fn from(bytes: &[u8]) -> Message {
        Message::from(Bytes::copy_from_slice(bytes))
    }
}

/// Copies the bytes; a [`Bytes`] is not copied.
impl<const N: usize> From<&[u8; N]> for Message {
    fn from(bytes: &[u8; N]) -> Message {
        Message::from(&bytes[..])
    }
}

/// A message of these frames.
impl<T: Into<Bytes>, const N: usize> From<[T; N]> for Message {
    fn from(frames: [T; N]) -> Message {
        Message::new(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_small_and_compares_by_frames() {
        assert!(size_of::<Option<Message>>() <= 40, "{}", size_of::<Option<Message>>());
        let one = Message::from(vec![Bytes::from_static(b"a")]);
        assert_eq!(one, Message::from("a"));
        assert_eq!(one.clone().behind(Bytes::new()), Message::from(["", "a"]));
        assert_eq!(Message::from(["", "a"]).split_first(), Some((Bytes::new(), one.clone())));
        assert_eq!(one.split_first(), None);
        let none = Message::new(Vec::<Bytes>::new());
        assert_eq!((none.body(), none.frames().len()), (&[][..], 0));
    }
}
