//! Messages of frames as entries of a bus, and back.
//!
//! An entry has the bytes of all frames after the name of the topic. If they are not exactly one frame, a header has
//! their lengths.

use bytes::{Bytes, BytesMut};
use switchboard_core::Result;
use switchboard_message::{Entry, Publication};
use switchboard_wire::{Codec, Status, zmtp::write_frame_header};

/// Header with the lengths of the frames of an entry: `3,0,12`.
const FRAME_LENGTHS: &str = "zmq-frame-lengths";

/// Makes a publication of the frames after the name of the topic.
///
/// # Errors
/// `InvalidArgument` for so many frames that a header cannot have their lengths.
pub(super) fn publication(frames: &[Bytes]) -> Result<Publication> {
    if let [frame] = frames {
        return Ok(Publication::new(Codec::Raw, frame.clone()));
    }
    let lengths: Vec<_> = frames.iter().map(|frame| frame.len().to_string()).collect();
    let mut publication = Publication::new(Codec::Raw, frames.concat());
    let inserted = publication.headers.insert(FRAME_LENGTHS, lengths.join(","));
    inserted
        .map_err(|why| Status::invalid_argument(format!("a message of {} frames: {why}", frames.len())))?;
    Ok(publication)
}

/// A message as it is written to a socket: its last part may be large, and is not copied.
pub(super) struct Encoded {
    pub(super) head: BytesMut,
    pub(super) payload: Bytes,
}

/// Encodes an entry as a message, behind the name of its topic if it has one.
pub(super) fn encode(topic: Option<&str>, entry: &Entry) -> Encoded {
    let (mut head, bytes) = (BytesMut::new(), entry.bytes());
    let lengths = lengths(entry);
    let is_followed = lengths.as_ref().is_none_or(|lengths| !lengths.is_empty());
    if let Some(topic) = topic {
        write_frame_header(topic.len(), is_followed, &mut head);
        head.extend_from_slice(topic.as_bytes());
    }
    let Some(lengths) = lengths else {
        write_frame_header(bytes.len(), false, &mut head);
        return Encoded { head, payload: bytes.clone() };
    };
    let mut rest = bytes.clone();
    for (at, length) in lengths.iter().enumerate() {
        write_frame_header(*length, at < lengths.len() - 1, &mut head);
        head.extend_from_slice(&rest.split_to(*length));
    }
    Encoded { head, payload: Bytes::new() }
}

/// Returns the frames of an entry, behind the name of its topic if it has one.
pub(super) fn frames(topic: Option<&str>, entry: &Entry) -> Vec<Bytes> {
    let mut frames: Vec<_> =
        topic.map(|topic| Bytes::copy_from_slice(topic.as_bytes())).into_iter().collect();
    let mut rest = entry.bytes().clone();
    match lengths(entry) {
        None => frames.push(rest),
        Some(lengths) => frames.extend(lengths.into_iter().map(|length| rest.split_to(length))),
    }
    frames
}

/// Returns the lengths of the frames, unless the entry is one frame. Lengths that do not fit the entry, which only
/// another publisher can have written, count as none.
fn lengths(entry: &Entry) -> Option<Vec<usize>> {
    let text = entry.headers().text(FRAME_LENGTHS)?;
    if text.is_empty() {
        return entry.bytes().is_empty().then(Vec::new);
    }
    let lengths = text.split(',').map(|length| length.parse().ok());
    let lengths: Vec<usize> = lengths.collect::<Option<_>>()?;
    let sum = lengths.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length));
    (sum == Some(entry.bytes().len())).then_some(lengths)
}
