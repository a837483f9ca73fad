//! Compression on a client connection: the algorithms of the server, and compressed replies.

use super::{Connection, Inner, State};
use crate::ClientMethod;
use bytes::Bytes;
use std::task::{Context, Poll, Waker};
use switchboard_core::{
    Compression, Result,
    compression::{Message, Packing},
};
use switchboard_wire::{
    Kind, Metadata, Status,
    wire::{CallIds, ClientCallId, ClientWire},
};

/// Text of the status of a call with a compression that HTTP does not have.
pub(in crate::client) const NATIVE_ALONE: &str =
    "lz4 and snappy are compressions of the native wire: on HTTP use gzip, zstd or deflate";

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
    ///
    /// # Errors
    /// `InvalidArgument` on gRPC for a compression that it does not have.
    pub(in crate::client) fn packing(
        &self,
        method: &'static ClientMethod,
        compression: Compression,
    ) -> Result<Packing> {
        if compression == Compression::None {
            return Ok(Packing::OFF);
        }
        let inner = self.lock();
        if compression.is_native() && inner.wire.call_ids() == CallIds::Streams {
            return Err(Status::invalid_argument(NATIVE_ALONE));
        }
        if method.kind() != Kind::Unary && !inner.wire.compresses_streams() {
            return Ok(Packing::OFF);
        }
        let (accepts, method) = (|encoding| inner.wire.accepts(encoding), std::ptr::from_ref(method).addr());
        let (bytes_min, bytes_max) = (self.compression_bytes_min, self.message_bytes_max);
        Ok(Packing::of_client(compression, method, accepts, bytes_min, bytes_max))
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
