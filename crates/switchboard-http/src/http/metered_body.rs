//! The body of a request from hyper, counted as held memory from its arrival until its end.

use super::connection_memory::{BodyCharge, ConnectionMemory};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use switchboard_wire::Status;

/// The body of a request. Bytes that were read from it count as waiting for the rest, unless its reader reports fewer.
pub(super) struct MeteredBody {
    body: Incoming,
    /// Set until the body ends.
    charge: Option<BodyCharge>,
}

impl MeteredBody {
    pub(super) fn new(body: Incoming, connection_memory: &Arc<ConnectionMemory>) -> MeteredBody {
        let charge = (!body.is_end_stream()).then(|| BodyCharge::new(connection_memory));
        if charge.is_none() {
            connection_memory.no_body();
        }
        MeteredBody { body, charge }
    }

    /// Returns the number of the body on its connection.
    pub(super) fn number(&self) -> Option<u64> {
        self.charge.as_ref().map(BodyCharge::number)
    }

    /// Ready when memory suffices for the body. Reading the body waits for that too.
    pub(super) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.charge.as_mut().map_or(Poll::Ready(()), |charge| charge.poll_begin(cx))
    }

    /// Sets how many of the bytes that were read wait for the rest.
    pub(super) fn keeps(&mut self, bytes: usize) {
        if let Some(charge) = &mut self.charge {
            // Fewer bytes cannot exceed the budget.
            let _ = charge.collects(bytes);
        }
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        ready!(this.poll_begin(cx));
        let frame = match Pin::new(&mut this.body).poll_frame(cx)? {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let more = this.charge.as_mut().map_or(Ok(()), |charge| charge.poll_more(cx));
                return more.map_or_else(
                    |status| Poll::Ready(Some(Err(Broken::Refused(status)))),
                    |()| Poll::Pending,
                );
            }
        };
        match (&frame, &mut this.charge) {
            (None, charge) => *charge = None,
            (Some(frame), Some(charge)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                charge.read(bytes);
                if let Err(status) = charge.collects(charge.collected() + bytes) {
                    return Poll::Ready(Some(Err(Broken::Refused(status))));
                }
            }
            (Some(_), None) => {}
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for MeteredBody {
    /// Discards the bytes that no reader took.
    fn drop(&mut self) {
        let Some(charge) = &mut self.charge else { return };
        let cx = &mut Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self.body).poll_frame(cx) {
            charge.read(frame.data_ref().map_or(0, Bytes::len));
        }
    }
}

/// The reason why a body ends early.
#[derive(Debug)]
pub(super) enum Broken {
    Http(hyper::Error),
    /// The server refuses the rest: memory does not suffice for it, or the server stops.
    Refused(Status),
}

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Broken {
        Broken::Http(error)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Http(error) => error.fmt(f),
            Broken::Refused(status) => f.write_str(status.message()),
        }
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Broken::Http(error) => error.source(),
            Broken::Refused(_) => None,
        }
    }
}
