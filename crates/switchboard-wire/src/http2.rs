//! Parts of HTTP/2 (RFC 9113) as pure functions and tables: compression of header fields, frames and settings.
//!
//! They are the ground of an HTTP/2 machine that does not exist yet: HTTP/2 connections are served by hyper until then.

pub mod frame;
pub mod hpack;
pub mod settings;
