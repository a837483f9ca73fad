//! Compressed messages on a client connection: what the server takes, and replies that came so.

use super::{Connection, Inner, State};
use crate::{
    ClientMethod, Compression, Kind, Metadata,
    compression::{Message, Packing},
};
use bytes::Bytes;
use std::task::{Context, Poll, Waker};
use switchboard_wire::wire::{CallId, ClientWire};

impl Connection {
    /// Ready once the server said what it takes, or the connection has ended; for one waiter.
    pub(in crate::client) fn poll_settled(&self, cx: &Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.wire.knows_server() || inner.closed.is_some() {
            return Poll::Ready(());
        }
        inner.settling = Some(cx.waker().clone());
        Poll::Pending
    }

    /// What is done with the messages of a call of this method that is to be compressed so.
    pub(in crate::client) fn packing(
        &self,
        method: &'static ClientMethod,
        compression: Compression,
    ) -> Packing {
        if compression == Compression::None {
            return Packing::OFF;
        }
        let inner = self.lock();
        if method.kind() != Kind::Unary && !inner.wire.compresses_streams() {
            return Packing::OFF;
        }
        let (takes, method) = (|encoding| inner.wire.takes(encoding), std::ptr::from_ref(method).addr());
        Packing::of_client(compression, method, takes, self.compression_bytes_min, self.message_bytes_max)
    }
}

impl Inner {
    /// Puts a reply that came compressed where its caller looks for it, who reads it.
    #[cold]
    pub(super) fn compressed_reply(&mut self, id: CallId, bytes: Bytes, wake: &mut Vec<Waker>) {
        let item = Message { bytes, compressed: true };
        match self.calls.get_mut(id).map(|place| &mut place.state) {
            Some(State::Stream(stream)) => {
                stream.inbound.push_now(item);
                self.end_stream(id, Ok(Metadata::new()));
            }
            Some(state) => {
                if let Some(parts) = state.unusual() {
                    parts.item = Some(item);
                    parts.end = Some(Ok(()));
                    wake.extend(parts.waker.take());
                }
            }
            None => {}
        }
    }
}
