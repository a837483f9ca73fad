//! Compression on a client connection: the algorithms of the server, and compressed replies.

use super::{Connection, Inner, State};
use crate::ClientMethod;
use bytes::Bytes;
use std::task::{Context, Poll, Waker};
use switchboard_core::{
    Compression,
    compression::{Message, Packing},
};
use switchboard_wire::{
    Kind, Metadata,
    wire::{ClientCallId, ClientWire},
};

impl Connection {
    /// Ready once the server has sent its settings, or the connection has ended; for one waiter.
    pub(in crate::client) fn poll_settings(&self, cx: &Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.wire.knows_server() || !inner.state.is_open() {
            return Poll::Ready(());
        }
        inner.settings_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns how to compress the messages of a call of this method with `compression`.
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
        let (accepts, method) = (|encoding| inner.wire.accepts(encoding), std::ptr::from_ref(method).addr());
        Packing::of_client(compression, method, accepts, self.compression_bytes_min, self.message_bytes_max)
    }
}

impl Inner {
    /// Stores a compressed reply for its caller, who decompresses it.
    #[cold]
    pub(super) fn compressed_reply(&mut self, id: ClientCallId, bytes: Bytes, wake: &mut Vec<Waker>) {
        let item = Message { bytes, compressed: true, codec: None };
        match self.calls.get_mut(id).map(|slot| &mut slot.state) {
            Some(State::Stream(stream)) => {
                stream.inbound.push_now(item);
                self.end_stream(id, Ok(Metadata::new()));
            }
            Some(state) => {
                if let Some(parts) = state.partial_reply() {
                    parts.item = Some(item);
                    parts.end = Some(Ok(()));
                    wake.extend(parts.waker.take());
                } else {
                    self.calls.reply_late(id);
                }
            }
            None => self.calls.reply_late(id),
        }
    }
}
