//! Reads `.fbs` files, and generates types and services for every wire.
//!
//! Reading order: [`lexer`](crate::lexer), [`ast`], [`parser`], [`schema`] (files that include each other), [`fields`]
//! (numbers and defaults of table fields), [`interface`] (declarations, for programs); then the code generation:
//! `types` (Rust types), `tables`, `structs` (and enums), `unions`, `services`, `package` (a Rust file for each
//! namespace).
//!
//! This crate has its own parser because the compilers of other projects omit the methods of services.
#![cfg_attr(
    not(feature = "codegen"),
    allow(dead_code, reason = "only the code generation uses all declarations")
)]

mod ast;
mod fields;
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
mod tables;
#[cfg(feature = "codegen")]
mod types;
#[cfg(feature = "codegen")]
mod unions;
mod variants;

#[cfg(feature = "codegen")]
pub(crate) use package::generate;
