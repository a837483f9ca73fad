//! The body of a request as hyper has it, counted from when it comes until it ends.

use super::holding::{Coming, Holding};
use crate::Status;
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

/// The body of a request. What was read of it counts as waiting for the rest, unless its reader says less.
pub(super) struct Received {
    body: Incoming,
    /// Until it ends.
    coming: Option<Coming>,
}

impl Received {
    pub(super) fn new(body: Incoming, holding: &Arc<Holding>) -> Received {
        let coming = (!body.is_end_stream()).then(|| Coming::new(holding));
        if coming.is_none() {
            holding.no_body();
        }
        Received { body, coming }
    }

    /// The number by which its connection knows it.
    pub(super) fn number(&self) -> Option<u64> {
        self.coming.as_ref().map(Coming::number)
    }

    /// Ready when there is room for it. Reading it waits for that too.
    pub(super) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.coming.as_mut().map_or(Poll::Ready(()), |coming| coming.poll_begin(cx))
    }

    /// Only so much of what was read waits for the rest.
    pub(super) fn keeps(&mut self, bytes: usize) {
        if let Some(coming) = &mut self.coming {
            // With less there is no less room.
            let _ = coming.collects(bytes);
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        ready!(this.poll_begin(cx));
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx)?);
        match (&frame, &mut this.coming) {
            (None, coming) => *coming = None,
            (Some(frame), Some(coming)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                coming.read(bytes);
                if let Err(status) = coming.collects(coming.collected() + bytes) {
                    return Poll::Ready(Some(Err(Broken::NoRoom(status))));
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

impl Drop for Received {
    /// What nobody has read is thrown away.
    fn drop(&mut self) {
        let Some(coming) = &mut self.coming else { return };
        let cx = &mut Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self.body).poll_frame(cx) {
            coming.read(frame.data_ref().map_or(0, Bytes::len));
        }
    }
}

/// Why a body does not end well.
#[derive(Debug)]
pub(super) enum Broken {
    Http(hyper::Error),
    /// There is no room for the rest.
    NoRoom(Status),
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
            Broken::NoRoom(status) => f.write_str(status.message()),
        }
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Broken::Http(error) => error.source(),
            Broken::NoRoom(_) => None,
        }
    }
}
