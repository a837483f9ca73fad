//! The front for `.fbs` files: reads them, and generates types and services for every wire.
//!
//! Reading order: [`lexer`](crate::lexer), [`ast`], [`parser`], [`schema`] (files that include each other), [`fields`]
//! (numbers and defaults of those of tables), [`interface`] (what they declare, for programs); then what generates
//! code: `types` (what Rust has for a type), `tables`, `structs` (and what else lies in place), `unions`, `services`,
//! `package` (a file of Rust for each namespace).
//!
//! Methods of services are what the compilers of others leave out: the reason that there is a parser here.
#![cfg_attr(
    not(feature = "codegen"),
    allow(dead_code, reason = "generated code alone says all that a file does")
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
