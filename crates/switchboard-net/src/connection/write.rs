//! Writes of a connection.

use crate::net::{self, Io};
use std::{
    io::{self, ErrorKind, IoSlice},
    task::{Context, Poll, ready},
};
use switchboard_wire::Outbox;

/// Maximum number of parts of one vectored write.
const PARTS_MAX: usize = 64;

/// Writes an outbox to its end; pending while the transport accepts no more bytes. `written` gets the number of bytes
/// of each write.
///
/// # Errors
/// Returns the errors of the transport, and `WriteZero` if it accepts no bytes without an error.
#[inline(always)]
pub fn poll_write_all(
    io: &mut dyn Io,
    cx: &mut Context<'_>,
    out: &mut Outbox,
    mut written: impl FnMut(usize),
) -> Poll<io::Result<()>> {
    while !out.is_empty() {
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        let filled = out.fill(&mut slices);
        let bytes = ready!(net::poll_write_parts(io, cx, &slices[..filled]))?;
        if bytes == 0 {
            return Poll::Ready(Err(ErrorKind::WriteZero.into()));
        }
        written(bytes);
        out.advance(bytes);
    }
    Poll::Ready(Ok(()))
}
