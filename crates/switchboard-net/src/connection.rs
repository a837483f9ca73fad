//! Parts that the connections of servers and of clients share: reads, writes, timers and keepalive, wake-ups, pauses
//! between turns, ages, and waiting calls.

mod aging;
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only the admin listener uses all of it"))]
mod flight;
mod keepalive;
mod pause;
mod read_buffer;
mod timer;
mod wakes;
mod write;

pub use aging::Aging;
pub use flight::{Flight, SHOWN_MAX};
pub use keepalive::{Keepalive, Silence};
pub use pause::Pause;
pub use read_buffer::ReadBuffer;
pub use timer::Timer;
pub use wakes::{CallWaker, Wakes};
pub use write::poll_write_all;

/// Returns how many bytes the reader of a stream must have taken before its peer gets credit for them. A peer with a
/// window of its own may have a small one, and needs credit for every byte.
#[inline]
pub fn credit_min(advertises_windows: bool, window: u32) -> u32 {
    if advertises_windows { window / 4 } else { 1 }
}
