//! Bytes for a machine, in pieces, and what comes of them.

use crate::{Fatal, Input, Limits, Metadata, Outbox};
use bytes::Bytes;
use std::fmt::Debug;

/// What is fed, and how.
pub(super) struct Feed<'a> {
    pub(super) bytes: &'a [u8],
    /// The lengths of the pieces, over and over; all at once if there are none.
    pub(super) steps: &'a [u8],
    /// Most bytes that the machine may leave in the input.
    pub(super) kept_max: usize,
    /// Most bytes that may go out for each that came in.
    pub(super) answer_factor: usize,
}

/// Feeds a machine; returns the events and whether they ended in a fatal mistake.
pub(super) fn feed<E: Debug>(
    feed: &Feed<'_>,
    mut recv: impl FnMut(&mut Input, &mut Outbox) -> Result<Option<E>, Fatal>,
    check: impl Fn(&E),
) -> (Vec<String>, bool) {
    let Feed { bytes, steps, kept_max, answer_factor } = *feed;
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let (mut events, mut rest, mut written) = (Vec::new(), bytes, 0);
    for turn in 0.. {
        let step = steps.get(turn % steps.len().max(1)).map_or(bytes.len(), |step| 1 + usize::from(*step));
        let (piece, after) = rest.split_at(step.min(rest.len()));
        rest = after;
        input.extend(piece);
        loop {
            match recv(&mut input, &mut out) {
                Ok(Some(event)) => {
                    check(&event);
                    events.push(format!("{event:?}"));
                }
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
        written += out.take_all().len();
        let most = answer_factor * (bytes.len() - rest.len());
        assert!(written <= most, "{written} bytes out, too many");
        assert!(input.len() <= kept_max, "{} bytes are kept", input.len());
        assert!(input.buffer().capacity() <= 4 * (bytes.len() + kept_max), "a buffer out of proportion");
        if rest.is_empty() {
            break;
        }
    }
    (events, false)
}

/// Checks what a peer sent against the limits.
pub(super) fn within(metadata: &Metadata, message: Option<&Bytes>, limits: &Limits) {
    assert!(metadata.len() <= limits.metadata_entries_max as usize, "{} entries", metadata.len());
    assert!(metadata.encoded_len() <= limits.metadata_bytes_max as usize, "{} bytes", metadata.encoded_len());
    let len = message.map_or(0, Bytes::len);
    assert!(len <= limits.message_bytes_max as usize, "a message of {len} bytes");
}
