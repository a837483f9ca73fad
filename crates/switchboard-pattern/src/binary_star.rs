//! Binary Star: a pair of servers of which one is active, and the other one takes over.
//!
//! [`State`] is the state machine of chapter 4 of ZeroMQ's guide; [`BinaryStar`] runs it. The peers send their states
//! to each other with PUB and SUB sockets, as one frame with the number of the state, and compare with the guide's
//! programs.
//!
//! ```text
//!             peer is Backup            peer is Primary or Backup,
//! Primary ─────────────────► Active ◄── or a request and a silent peer ── Passive
//!    │   a request and a silent peer ▲                                       ▲
//!    └───────────────────────────────│─── peer is Active ────────────────────┤
//! Backup ────────────────────────────│─── peer is Active ────────────────────┘
//! ```
//!
//! **Split case.** A node becomes active on a client's request when its peer has been silent for the failover limit. If
//! the network between both nodes fails for so long, and clients reach both, both are active. Place the nodes so that a
//! client that reaches both is the exception, as with one switch for everything. Both notice it when the network heals:
//! each ends with [`Conflict::BothActive`]. In all other cases at most one node is active, which a test proves for all
//! orders of messages, requests, crashes and restarts.

mod node;

pub use node::{BinaryStar, BinaryStarBuilder, Stats};

use std::fmt;

/// State of a node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: the states of the protocol
pub enum State {
    /// The primary waits for its peer.
    Primary,
    /// The backup waits for its peer.
    Backup,
    /// The node serves clients.
    Active,
    /// The peer serves clients.
    Passive,
}

/// Input of the state machine.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: the inputs of the machine
pub enum Event {
    /// The state of the peer arrived.
    Peer(State),
    /// A client sent a request.
    Request {
        /// No state of the peer has arrived within the failover limit.
        is_peer_silent: bool,
    },
}

/// Outcome of an event that the machine accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: a request is served or not
pub enum Outcome {
    /// The node serves the request; for the state of the peer, nothing is to be done.
    Accepted,
    /// The node is not active: the request must not be served.
    Refused,
}

/// Error that ends both nodes; a person decides which one continues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Conflict {
    /// Both nodes were active: the split case.
    BothActive,
    /// Both nodes were passive: neither would serve.
    BothPassive,
    /// Both nodes are configured as primary, or both as backup.
    SameRole,
}

impl State {
    /// Applies an event; returns the next state.
    ///
    /// # Errors
    /// Returns the conflict between the states of both nodes.
    pub fn apply(self, event: Event) -> Result<(State, Outcome), Conflict> {
        use State::{Active, Backup, Passive, Primary};
        let next = match (self, event) {
            (Primary, Event::Peer(Primary)) | (Backup, Event::Peer(Backup)) => {
                return Err(Conflict::SameRole);
            }
            (Active, Event::Peer(Active)) => return Err(Conflict::BothActive),
            (Passive, Event::Peer(Passive)) => return Err(Conflict::BothPassive),
            (Primary, Event::Peer(Backup)) => Active,
            (Primary | Backup, Event::Peer(Active)) => Passive,
            // The peer has restarted and does not serve.
            (Passive, Event::Peer(Primary | Backup)) => Active,
            (Passive | Primary, Event::Request { is_peer_silent: true }) => Active,
            (state, _) => state,
        };
        let outcome = match event {
            Event::Request { .. } if next != Active => Outcome::Refused,
            _ => Outcome::Accepted,
        };
        Ok((next, outcome))
    }

    /// Returns the number of the state on the wire.
    pub fn number(self) -> u8 {
        match self {
            State::Primary => 1,
            State::Backup => 2,
            State::Active => 3,
            State::Passive => 4,
        }
    }

    /// Reads the frame with the number of a state; `None` for other bytes.
    pub fn from_frame(frame: &[u8]) -> Option<State> {
        // Strings of the guide's programs in C may end with a zero byte.
        match frame.strip_suffix(b"\0").unwrap_or(frame) {
            b"1" => Some(State::Primary),
            b"2" => Some(State::Backup),
            b"3" => Some(State::Active),
            b"4" => Some(State::Passive),
            _ => None,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Primary => "primary, waiting for its peer",
            State::Backup => "backup, waiting for its peer",
            State::Active => "active",
            State::Passive => "passive",
        })
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Conflict::BothActive => "both nodes of the pair were active; choose the one with the valid state",
            Conflict::BothPassive => "both nodes of the pair are passive; restart one of them",
            Conflict::SameRole => "both nodes of the pair have one role; start a primary and a backup",
        })
    }
}

impl std::error::Error for Conflict {}

#[cfg(test)]
mod tests;
