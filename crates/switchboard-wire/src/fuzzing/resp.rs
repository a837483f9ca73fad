//! The RESP machines against arbitrary bytes and against each other.

mod conversation;
mod input;

pub use conversation::resp_conversation;
pub use input::resp_input;
