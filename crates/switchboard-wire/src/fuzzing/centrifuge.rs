//! The machines of Centrifuge against arbitrary bytes and against each other.

mod conversation;
mod input;

pub use conversation::centrifuge_conversation;
pub use input::centrifuge_input;
