//! The pages of `docs/`, so that their examples are compiled and run.

#[doc = include_str!("../../../docs/auth.md")]
mod auth {}

#[doc = include_str!("../../../docs/layers.md")]
mod layers {}

#[doc = include_str!("../../../docs/limits.md")]
mod limits {}
