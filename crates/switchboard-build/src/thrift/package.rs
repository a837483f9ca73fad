//! Puts the files of packages together: services first, then types.

use super::{constants, enums, schema::Schema, services, structs, types::Types};
use crate::{Error, package};
use proc_macro2::TokenStream;
use std::collections::BTreeMap;

/// The code of each package, by name.
pub(super) fn generate(schema: &Schema) -> Result<Vec<(String, String)>, Error> {
    let mut packages = BTreeMap::<&str, Vec<usize>>::new();
    for (number, document) in schema.documents.iter().enumerate() {
        packages.entry(&document.package).or_default().push(number);
    }
    packages.into_iter().map(|(name, files)| Ok((name.to_owned(), code(schema, name, &files)?))).collect()
}

fn code(schema: &Schema, name: &str, files: &[usize]) -> Result<String, Error> {
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
    package::file(name, &sources.join(", "), services, others)
}
