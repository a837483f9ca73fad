//! The HTTP family over real connections: one service, written by hand, and every dialect.
#![cfg(feature = "http")]

mod dialects;
mod raw;
mod service;
mod standard;
