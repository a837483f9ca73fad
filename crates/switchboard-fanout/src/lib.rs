//! Fan-out of entries to many connections.
//!
//! A connection that mostly receives is a *subscriber*: a record of at most 200 bytes and a descriptor, without a task,
//! a timer or a queue of its own. One [`Engine`] per worker drives all of them, with one poll instance. An [`Adapter`]
//! maps a protocol to topics: it appends each entry once to a *broadcast buffer* ([`Subscribers::append`]), and every
//! member of the buffer has a cursor in it, the position up to which it has taken the bytes.
//!
//! ```text
//! other threads ─► mailbox ─► Adapter::command ─► broadcast buffer ─► write pass ─► sockets of all members
//! sockets ─► Adapter::received ─► Subscribers::{attach, detach, send}
//! ```
//!
//! A member that is too slow loses the oldest bytes: it has *lagged*, [`Adapter::lagged`] has the number, and it
//! continues between two frames. Others are not affected. Frames of one connection are never mixed: the rest of a frame
//! that a socket took in part is written before anything else.
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod adapter;
mod broadcast_buffer;
mod close_reason;
mod counters;
mod engine;
mod engines;
mod handoff;
mod link;
mod mailbox;
mod options;
mod subscriber;
mod subscribers;
mod timer_wheel;
mod writing;

pub use adapter::{Adapter, Connected};
pub use broadcast_buffer::BroadcastBuffer;
pub use close_reason::CloseReason;
pub use counters::{EngineCounters, EngineStats};
pub use engine::{Engine, Handle};
pub use engines::{Admitted, Engines};
pub use handoff::Handoff;
pub use mailbox::NotSent;
pub use options::Options;
pub use subscriber::{State, SubscriberId};
pub use subscribers::{BufferId, Subscribers};
