//! Assembles the files of packages: services first, then types.

use super::{constants, enums, schema::Schema, services, structs, types::Types};
use crate::{Error, builder::Generated, idl::GeneratedSources, package};
use proc_macro2::TokenStream;
use std::{collections::BTreeMap, path::PathBuf};

/// Reads the files, and generates a Rust file for each namespace.
///
/// # Errors
/// Returns an error for files that cannot be read or parsed, and for types that Rust cannot express.
pub(crate) fn generate(files: &[PathBuf], includes: &[PathBuf]) -> Result<GeneratedSources, Error> {
    let schema = Schema::read(files, includes)?;
    let mut packages = BTreeMap::<&str, Vec<usize>>::new();
    for (number, document) in schema.documents.iter().enumerate() {
        packages.entry(&document.package).or_default().push(number);
    }
    let packages = packages.into_iter().map(|(name, files)| package(&schema, name, &files));
    Ok(GeneratedSources {
        packages: packages.collect::<Result<_, _>>()?,
        read_from: schema.documents.iter().map(|document| document.path.clone()).collect(),
    })
}

fn package(schema: &Schema, name: &str, files: &[usize]) -> Result<Generated, Error> {
    let types = Types { schema, package: name };
    let (mut services, mut others) = (TokenStream::new(), TokenStream::new());
    for &file in files {
        let document = &schema.documents[file];
        for service in &document.services {
            services.extend(services::emit(&types, file, service)?);
        }
        for constant in &document.constants {
            others.extend(constants::emit(&types, file, constant)?);
        }
        for typedef in &document.typedefs {
            let doc = typedef.doc.as_deref();
            others.extend(constants::alias(&types, file, &typedef.name, &typedef.ty, doc, typedef.line)?);
        }
        others.extend(document.enums.iter().map(enums::emit));
        for item in &document.structs {
            others.extend(structs::emit(&types, file, item)?);
        }
    }
    let mut sources: Vec<_> = files.iter().map(|file| &schema.documents[*file]).collect();
    sources.sort_by_key(|document| &document.stem);
    let sources: Vec<_> = sources.iter().map(|document| format!("{}.thrift", document.stem)).collect();
    let code = package::file(name, &sources.join(", "), services, others)?;
    Ok(Generated { name: name.to_owned(), code, descriptors: None })
}
