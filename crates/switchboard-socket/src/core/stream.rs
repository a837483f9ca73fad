//! STREAM: bytes of peers that do not speak ZMTP, and the messages about connections.

use super::{
    Core,
    lane::Lane,
    peer::{Peer, Sink},
    send::wake,
};
use crate::{Error, ErrorKind, Message, Result};
use bytes::Bytes;
use std::sync::Arc;
use switchboard_wire::zmtp::SocketType;

impl Core {
    /// Sends bytes to the peer that the first frame names; no bytes end its connection once all others are written.
    pub(super) fn send_raw(&self, message: Message) -> Result<Option<Message>> {
        let [route, data] = message.frames() else {
            let count = message.frames().len();
            let text =
                format!("message to STREAM has {count} frames; it has two, the routing id and the bytes");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        };
        let mut sending = self.sending();
        sending.check_open()?;
        let id = sending.routes.find(route);
        let is_open = |peer: &&mut Peer| !matches!(&peer.sink, Sink::Wire(wire) if wire.is_retiring);
        let Some(peer) = id.and_then(|id| sending.peers.find(id)).filter(is_open) else {
            let text = format!("no peer has the routing id \"{}\"", route.escape_ascii());
            return Err(Error::new(ErrorKind::Unreachable, text));
        };
        let Sink::Wire(wire) = &mut peer.sink else { return Ok(None) };
        let waker = if data.is_empty() {
            wire.is_retiring = true;
            wire.task()
        } else if wire.is_full(&self.options.queues) {
            peer.is_suspended = true;
            return Ok(Some(message));
        } else {
            wire.pending().push_encoded(data);
            peer.sent += 1;
            wire.take_waiting()
        };
        drop(sending);
        wake(waker);
        Ok(None)
    }

    /// Reports a new connection to the application of a ROUTER or STREAM, with an empty message of the peer.
    pub(super) fn report_connected(&self, lane: &Arc<Lane>) {
        let routing = &self.options.routing;
        let is_reported = match self.kind {
            SocketType::Router => routing.notify_connect,
            SocketType::Stream => routing.stream_notify,
            _ => false,
        };
        self.report(is_reported, lane);
    }

    /// Reports the end of a connection as [`report_connected`](Self::report_connected) does.
    pub(super) fn report_disconnected(&self, lane: &Arc<Lane>) {
        let routing = &self.options.routing;
        let is_reported = match self.kind {
            SocketType::Router => routing.notify_disconnect,
            SocketType::Stream => routing.stream_notify,
            _ => false,
        };
        self.report(is_reported, lane);
    }

    fn report(&self, is_reported: bool, lane: &Arc<Lane>) {
        if is_reported {
            let mut messages = vec![Message::from(Bytes::new())];
            self.inbox.arrived(lane, lane.extend(&mut messages));
        }
    }
}
