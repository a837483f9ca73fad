//! Generates a Rust file for each namespace.

use super::{
    ast::{Item, Kind},
    schema::Schema,
    services, structs, tables,
    types::{self, Types},
    unions,
};
use crate::{Error, builder::Generated, idl::GeneratedSources, open_enum};
use proc_macro2::TokenStream;
use std::{collections::BTreeMap, path::PathBuf};

/// Reads the files, and generates a Rust file for each namespace.
///
/// # Errors
/// Returns an error for files that cannot be read or parsed, and for types that Rust cannot express.
pub(crate) fn generate(files: &[PathBuf], includes: &[PathBuf]) -> Result<GeneratedSources, Error> {
    let schema = Schema::read(files, includes)?;
    let mut packages = BTreeMap::<&str, Vec<&Item>>::new();
    for item in &schema.items {
        packages.entry(&item.namespace).or_default().push(item);
    }
    let packages = packages.into_iter().map(|(name, items)| package(&schema, name, &items));
    Ok(GeneratedSources { packages: packages.collect::<Result<_, _>>()?, read_from: schema.files.clone() })
}

fn package(schema: &Schema, name: &str, items: &[&Item]) -> Result<Generated, Error> {
    let types = Types { schema, package: name };
    let (mut served, mut others) = (TokenStream::new(), TokenStream::new());
    for item in items {
        match &item.kind {
            Kind::Enum { base, members, .. } => {
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

/// Returns the names of the files for the header comment.
fn sources(schema: &Schema) -> String {
    let names = schema.files.iter().filter_map(|file| file.file_name());
    names.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(", ")
}
