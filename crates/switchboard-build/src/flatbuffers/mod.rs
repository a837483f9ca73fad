//! The front for `.fbs` files: reads them, and generates types and services for every wire.
//!
//! Reading order: [`lexer`](crate::lexer), [`ast`], [`parser`], [`schema`] (files that include each other), [`types`]
//! (what Rust has for a type), [`tables`], [`structs`] (and what else lies in place), [`unions`], [`services`].
//!
//! Methods of services are what the compilers of others leave out: the reason that there is a parser here.

mod ast;
mod parser;
mod schema;
mod services;
mod structs;
mod tables;
mod types;
mod unions;

use crate::{
    Error,
    builder::{Generated, Output},
    open_enum,
};
use ast::{Item, Kind};
use proc_macro2::TokenStream;
use schema::Schema;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use types::Types;

/// Reads `.fbs` files: what to read and where to write. See the [crate](crate#flatbuffers) for what comes out.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is generated before .emit()"]
pub struct FlatBuffers {
    files: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    out_dir: Option<PathBuf>,
}

impl FlatBuffers {
    /// Adds a `.fbs` file, relative to the directory of the crate.
    pub fn flatbuffers(mut self, file: impl AsRef<Path>) -> Self {
        self.files.push(file.as_ref().to_owned());
        self
    }

    /// Adds a directory in which included files are looked up, after that of the file which includes them.
    pub fn include(mut self, directory: impl AsRef<Path>) -> Self {
        self.includes.push(directory.as_ref().to_owned());
        self
    }

    /// Writes into this directory, which is created, instead of Cargo's `OUT_DIR`.
    pub fn out_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.out_dir = Some(directory.as_ref().to_owned());
        self
    }

    /// Generates and writes everything, and tells Cargo which files were read.
    ///
    /// # Errors
    /// Files that cannot be read, understood or written, and types that Rust cannot have.
    pub fn emit(self) -> Result<(), Error> {
        if self.files.is_empty() {
            return Err(Error::new("nothing to read: add a file with .flatbuffers(…)"));
        }
        let output = Output::new(self.out_dir)?;
        let schema = Schema::read(&self.files, &self.includes)?;
        for file in &schema.files {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        output.write(&packages(&schema)?)
    }
}

/// A file of Rust for each namespace.
fn packages(schema: &Schema) -> Result<Vec<Generated>, Error> {
    let mut packages = BTreeMap::<&str, Vec<&Item>>::new();
    for item in &schema.items {
        packages.entry(&item.namespace).or_default().push(item);
    }
    packages.into_iter().map(|(name, items)| package(schema, name, &items)).collect()
}

fn package(schema: &Schema, name: &str, items: &[&Item]) -> Result<Generated, Error> {
    let types = Types { schema, package: name };
    let (mut served, mut others) = (TokenStream::new(), TokenStream::new());
    for item in items {
        match &item.kind {
            Kind::Enum { base, members } => {
                let members = members.iter().map(|(name, number, doc)| (&**name, *number, doc.as_deref()));
                let repr = types::base(*base);
                others.extend(open_enum::emit(&item.name, item.doc.as_deref(), &repr, members));
                others.extend(structs::of_enum(item, &repr));
            }
            Kind::Service(methods) => served.extend(services::emit(&types, item, methods)?),
            Kind::Struct { fields, .. } => others.extend(structs::emit(&types, item, fields)?),
            Kind::Table(fields) => others.extend(tables::emit(&types, item, fields)?),
            Kind::Union(variants) => others.extend(unions::emit(&types, item, variants)?),
        }
    }
    let code = crate::package::file(name, &sources(schema), served, others)?;
    Ok(Generated { name: name.to_owned(), code, descriptors: None })
}

/// The names of the files, for people.
fn sources(schema: &Schema) -> String {
    let names = schema.files.iter().filter_map(|file| file.file_name());
    names.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(", ")
}
