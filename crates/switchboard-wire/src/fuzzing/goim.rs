//! The goim machines against arbitrary bytes and against each other.

mod conversation;
mod input;

pub use conversation::goim_conversation;
pub use input::goim_input;
