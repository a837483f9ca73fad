//! Durable topics as applications use them: restarts, killed processes, limits.
#![allow(clippy::unwrap_used, missing_docs)]

mod cursors;
mod folder;
mod killed;
mod limits;
mod restart;
