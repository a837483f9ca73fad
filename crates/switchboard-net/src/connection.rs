//! Parts that the connections of servers and of clients share: wake-ups, pauses between turns, ages, and waiting calls.

mod aging;
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only the admin listener uses all of it"))]
mod flight;
mod pause;
mod wakes;

pub use aging::Aging;
pub use flight::{Flight, SHOWN_MAX};
pub use pause::Pause;
pub use wakes::{CallWaker, Wakes};
