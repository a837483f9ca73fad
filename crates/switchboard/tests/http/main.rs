//! The HTTP family over real connections: one service, written by hand, and every dialect.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attacks_http1;
mod attacks_http2;
mod browsers;
mod client;
mod client_faults;
mod client_waits;
mod cross_site;
mod dialects;
mod discovery;
mod documents;
mod frames;
mod grpc;
mod library;
mod memory;
mod pages;
mod raw;
mod rest;
mod rules;
mod service;
mod standard;
mod strict;
mod traits;
