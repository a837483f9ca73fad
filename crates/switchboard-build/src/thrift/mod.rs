//! The front for `.thrift` files: reads them, and generates types and services for every wire.
//!
//! Reading order: [`lexer`](crate::lexer), [`ast`], [`parser`], [`schema`] (files that include each other),
//! [`interface`] (what they declare, for programs); then what generates code: `types` (what Rust has for a type),
//! `constants`, `structs`, `enums`, `services`, `package` (a file of Rust for each namespace).
#![cfg_attr(
    not(feature = "codegen"),
    allow(dead_code, reason = "generated code alone says all that a file does")
)]

mod ast;
#[cfg(feature = "codegen")]
mod constants;
#[cfg(feature = "codegen")]
mod enums;
pub mod interface;
#[cfg(feature = "codegen")]
mod package;
mod parser;
mod schema;
#[cfg(feature = "codegen")]
mod services;
#[cfg(feature = "codegen")]
mod structs;
#[cfg(feature = "codegen")]
mod types;

#[cfg(feature = "codegen")]
pub(crate) use package::generate;
