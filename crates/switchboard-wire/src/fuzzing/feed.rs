//! Delivery of bytes to a state machine in pieces, as from a network.

use crate::{
    Fatal, Input, Metadata, Outbox,
    wire::{ClientEvent, ClientWire, Encoding, Head, Opened, ServerEvent, ServerWire},
};
use std::{fmt::Debug, iter};

/// Splits `bytes` into pieces of `steps` plus one bytes, cyclically, or returns them whole if `steps` is empty. Returns
/// at least one piece.
pub(super) fn pieces<'a>(bytes: &'a [u8], steps: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut lens = steps.iter().map(|step| 1 + usize::from(*step)).cycle();
    let mut rest = Some(bytes);
    iter::from_fn(move || {
        let left = rest.take()?;
        let len = lens.next().unwrap_or(left.len()).min(left.len());
        let (piece, after) = left.split_at(len);
        rest = Some(after).filter(|after| !after.is_empty());
        Some(piece)
    })
}

/// Feeds a machine with these pieces; returns its events, and whether they ended in a fatal error.
///
/// The machine may buffer at most `kept_max` bytes, and may write at most `written_max` of the bytes it has read.
///
/// # Panics
/// If the machine exceeds a limit.
pub(super) fn feed<E: Debug>(
    bytes: &[u8],
    steps: &[u8],
    kept_max: usize,
    written_max: impl Fn(usize) -> usize,
    mut next: impl FnMut(&mut Input, &mut Outbox) -> Result<Option<E>, Fatal>,
) -> (Vec<String>, bool) {
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let (mut events, mut read, mut written) = (Vec::new(), 0, 0);
    for piece in pieces(bytes, steps) {
        input.extend(piece);
        read += piece.len();
        loop {
            match next(&mut input, &mut out) {
                Ok(Some(event)) => events.push(format!("{event:?}")),
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
        written += out.take_all().len();
        assert!(written <= written_max(read), "{written} bytes out for {read}, too many");
        assert!(input.len() <= kept_max, "{} bytes are kept", input.len());
        assert!(input.buffer().capacity() <= bytes.len() + 4 * kept_max, "a buffer out of proportion");
    }
    (events, false)
}

/// Returns the next event of a server machine; if `fast`, it tries the fast path (`next_call`) first.
pub(super) fn server_event(
    server: &mut impl ServerWire,
    fast: bool,
    input: &mut Input,
    out: &mut Outbox,
) -> Result<Option<ServerEvent>, Fatal> {
    let Some(opened) = fast.then(|| server.next_call(input)).flatten() else {
        return server.recv(input, out);
    };
    let Opened { id, method, codec, replies, timeout, len } = opened;
    let (encoding, metadata) = (Encoding::Identity, Metadata::new());
    let head =
        Head { method, undeclared_name: None, codec, encoding, replies, timeout, metadata, oneway: false };
    Ok(Some(ServerEvent::Open { id, head, first: Some(input.take(len)), compressed: false, more: false }))
}

/// Returns the next event of a client machine; if `fast`, it tries the fast path (`next_reply`) first.
pub(super) fn client_event(
    client: &mut impl ClientWire,
    fast: bool,
    input: &mut Input,
    out: &mut Outbox,
) -> Result<Option<ClientEvent>, Fatal> {
    match fast.then(|| client.take_reply(input)).flatten() {
        Some((id, item)) => Ok(Some(ClientEvent::Reply { id, item, compressed: false })),
        None => client.recv(input, out),
    }
}
