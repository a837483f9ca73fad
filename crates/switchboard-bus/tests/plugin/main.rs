//! The bus as a plugin: its event streams, and subscriptions that handlers and pushers forward.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod bad_input;
mod events;
mod forward;
mod pages;
mod push;
mod resume;
mod rules;
mod slow;
mod support;
mod websocket;
