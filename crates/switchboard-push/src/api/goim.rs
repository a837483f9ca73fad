//! Paths of goim's logic, with its responses byte for byte.

mod bind;
mod online;
mod push;
mod response;

pub(super) use online::{List, online};
pub(super) use push::{Target, push};
pub(super) use response::{BAD_REQUEST, with_status};
