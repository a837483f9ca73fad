//! Conversations as bytes: one for each rule of the protocol, and one for each attack.

mod attacks;
mod calls;
mod flow;
mod peer;
mod rules;
