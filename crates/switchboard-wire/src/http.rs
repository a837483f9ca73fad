//! Heads of HTTP requests and responses, whatever version of HTTP carries them: known fields, metadata, and the
//! dialects that are calls.

pub mod dialect;
pub mod fields;
pub mod head;
pub(crate) mod text;
