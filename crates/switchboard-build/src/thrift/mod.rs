//! Reads `.thrift` files, and generates types and services for every wire.
//!
//! Reading order: [`lexer`](crate::lexer), [`ast`], [`parser`], [`schema`] (files that include each other),
//! [`interface`] (declarations, for programs); then the code generation: `types` (Rust types), `constants`, `structs`,
//! `enums`, `services`, `package` (a Rust file for each namespace).
#![cfg_attr(
    not(feature = "codegen"),
    allow(dead_code, reason = "only the code generation uses all declarations")
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
