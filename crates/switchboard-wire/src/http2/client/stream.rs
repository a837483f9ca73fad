//! State of an open stream of a client connection.

use super::{
    super::window::{ReceiveWindow, SendWindow},
    send::Pending,
};
use crate::{Codec, Encoding, Metadata, Status, wire::ClientCallId};
use bytes::{Bytes, BytesMut};

/// Returns the number of the stream of a call: ids of calls count up and never repeat.
#[inline]
pub(super) fn stream_of(call: ClientCallId) -> u32 {
    2 * call as u32 + 1
}

/// Returns the call of a stream that this side has opened.
#[inline]
pub(super) fn call_of(stream: u32) -> ClientCallId {
    ClientCallId::from(stream / 2)
}

/// State of one open stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// The call has one reply.
    pub(super) is_unary: bool,
    /// The head of the response has arrived.
    pub(super) has_head: bool,
    /// The last DATA of the request is in the outbox.
    pub(super) has_ended: bool,
    /// The stream is in the list of those that wait for the window of the connection.
    pub(super) is_listed: bool,
    pub(super) codec: Codec,
    /// Encoding of compressed messages of the call.
    pub(super) encoding: Encoding,
    /// Bytes that the server accepts.
    pub(super) send_window: SendWindow,
    /// Bytes that this side accepts.
    pub(super) receive_window: ReceiveWindow,
    /// The message of a unary call, which waits for the end of the call; true if it is compressed.
    pub(super) held: Option<(Bytes, bool)>,
    /// State that plain unary calls do not need.
    pub(super) body: Option<Box<Body>>,
}

/// Messages that are partly sent or partly received.
#[derive(Debug, Default)]
pub(super) struct Body {
    /// Parts of the request that wait for the server's windows.
    pub(super) pending: Pending,
    /// No more messages follow the pending ones.
    pub(super) ends: bool,
    /// First bytes of a message: its flag and length.
    pub(super) prefix: [u8; 5],
    /// Number of bytes of `prefix` that have arrived.
    pub(super) prefix_len: u8,
    /// The message that is being received has this many bytes.
    pub(super) message_len: usize,
    /// Its bytes so far.
    pub(super) message: BytesMut,
    /// Metadata of the head of a unary call.
    pub(super) head: Metadata,
    /// The head names the encoding of the call for compressed messages.
    pub(super) is_encoded: bool,
    /// End of the call that the head names; valid if neither DATA nor trailers follow.
    pub(super) early_end: Option<Result<Metadata, Status>>,
    /// Bytes of messages that the reader has and that are not returned as credit.
    pub(super) delivered: u32,
}

impl Body {
    /// Returns true if a message is partly received.
    pub(super) fn is_inside_message(&self) -> bool {
        self.prefix_len > 0
    }
}

impl Stream {
    #[inline]
    pub(super) fn new(
        is_unary: bool,
        codec: Codec,
        encoding: Encoding,
        send_window: SendWindow,
        receive_window: ReceiveWindow,
    ) -> Stream {
        let (has_head, has_ended, is_listed, body) = (false, false, false, None);
        Stream {
            is_unary,
            has_head,
            has_ended,
            is_listed,
            codec,
            encoding,
            send_window,
            receive_window,
            held: None,
            body,
        }
    }

    pub(super) fn body_mut(&mut self) -> &mut Body {
        self.body.get_or_insert_default()
    }
}
