//! Alternation of requests and replies, for REQ and REP.

use crate::PeerId;
use crate::{Error, ErrorKind, Result, options::RequestOptions};
use switchboard_core::clock;
use switchboard_wire::zmtp::{
    SocketType,
    patterns::{Envelope, Requests},
};

/// State of REQ or REP.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Other socket types send and receive at any time.
    Free,
    /// The peer of the last subscription that an XPUB received, whose subscriptions its application changes.
    Xpub(Option<PeerId>),
    /// The request whose reply is due.
    Rep(Option<(PeerId, Envelope)>),
    Req {
        requests: Requests<PeerId>,
        /// The peer from which a reply is expected.
        pending: Option<PeerId>,
        /// The connection ended before the reply.
        is_lost: bool,
        is_relaxed: bool,
    },
}

impl Turn {
    pub(crate) fn new(kind: SocketType, options: &RequestOptions) -> Turn {
        match kind {
            SocketType::Rep => Turn::Rep(None),
            SocketType::Xpub => Turn::Xpub(None),
            SocketType::Req => {
                let mut requests = Requests::new();
                if options.correlate {
                    requests = requests.with_numbers(clock::random() as u32);
                }
                if options.relaxed {
                    requests = requests.relaxed();
                }
                Turn::Req { requests, pending: None, is_lost: false, is_relaxed: options.relaxed }
            }
            _ => Turn::Free,
        }
    }

    /// Checks whether this side may send.
    pub(crate) fn may_send(&self) -> Result<()> {
        match self {
            Turn::Rep(None) => {
                Err(Error::new(ErrorKind::State, "REP has no request to reply to: receive one first"))
            }
            Turn::Req { pending: Some(_), is_relaxed: false, .. } => Err(Error::new(
                ErrorKind::State,
                "REQ awaits a reply: receive it first, or set the option requests.relaxed",
            )),
            _ => Ok(()),
        }
    }

    /// Checks whether this side may receive.
    pub(crate) fn may_receive(&self) -> Result<()> {
        match self {
            Turn::Rep(Some(_)) => Err(Error::new(ErrorKind::State, "REP owes a reply: send it first")),
            Turn::Req { pending: None, .. } => {
                Err(Error::new(ErrorKind::State, "REQ has no pending request: send one first"))
            }
            _ => Ok(()),
        }
    }

    /// Reports a lost reply once, after all messages were taken: the reply may be among them.
    pub(crate) fn check_lost(&mut self) -> Result<()> {
        let Turn::Req { requests, pending, is_lost, .. } = self else { return Ok(()) };
        let Some(peer) = pending.take_if(|_| *is_lost) else { return Ok(()) };
        *is_lost = false;
        requests.remove(peer);
        let text = "the connection ended before the reply arrived; the request may have been processed";
        Err(Error::new(ErrorKind::ReplyLost, text))
    }

    /// Forgets a peer; returns true if a receiver must be notified that its reply is lost. A REP still owes its reply,
    /// which is dropped when it is sent.
    pub(crate) fn lose(&mut self, peer: PeerId) -> bool {
        match self {
            Turn::Req { pending, is_lost, .. } => {
                *is_lost |= *pending == Some(peer);
                *is_lost
            }
            Turn::Free | Turn::Rep(_) | Turn::Xpub(_) => false,
        }
    }
}
