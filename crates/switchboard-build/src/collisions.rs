//! Detects duplicate names in the generated code of a package before `rustc` does.

use crate::{
    Error, docs,
    names::{Named as _, qualified},
    schema::Schema,
    service::Service,
};
use buffa_codegen::generated::descriptor::FileDescriptorProto;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the names of the items at the root of generated messages.
pub(crate) fn root_names(messages: &syn::File) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in &messages.items {
        let name = match item {
            syn::Item::Const(item) => item.ident.to_string(),
            syn::Item::Enum(item) => item.ident.to_string(),
            syn::Item::Fn(item) => item.sig.ident.to_string(),
            syn::Item::Mod(item) => item.ident.to_string(),
            syn::Item::Static(item) => item.ident.to_string(),
            syn::Item::Struct(item) => item.ident.to_string(),
            syn::Item::Type(item) => item.ident.to_string(),
            syn::Item::Use(item) => used_name(&item.tree),
            _ => continue,
        };
        names.insert(name);
    }
    names
}

fn used_name(tree: &syn::UseTree) -> String {
    match tree {
        syn::UseTree::Path(path) => used_name(&path.tree),
        syn::UseTree::Name(name) => name.ident.to_string(),
        syn::UseTree::Rename(rename) => rename.rename.to_string(),
        syn::UseTree::Glob(_) | syn::UseTree::Group(_) => String::new(),
    }
}

/// Checks for names that a service shares with a message or another service, and for methods of the same name.
pub(crate) fn check(
    package: &str,
    services: &[(&FileDescriptorProto, usize, Service)],
    messages: &BTreeSet<String>,
    schema: &Schema,
) -> Result<(), Error> {
    // Types and values have separate namespaces in Rust: the trait `LOG` and the static `LOG` do not collide.
    let mut taken: BTreeMap<(bool, String), String> = BTreeMap::new();
    taken.insert((false, "DESCRIPTOR_SET".to_owned()), "every package".to_owned());
    for (file, index, service) in services {
        let place = docs::place(file, *index, None);
        let types = [&service.interface, &service.server, &service.client, &service.api];
        for (is_type, ident) in types.into_iter().map(|ident| (true, ident)).chain([(false, &service.info)]) {
            let name = ident.to_string();
            let other = if messages.contains(&name) {
                Some(origin(package, &name, schema))
            } else {
                taken.get(&(is_type, name.clone())).cloned()
            };
            if let Some(other) = other {
                return Err(Error::new(format!(
                    "{place}: service {} generates `{name}`, and so does {other}: rename one of them",
                    service.full_name
                )));
            }
            taken.insert((is_type, name), format!("service {} ({place})", service.full_name));
        }
        check_methods(file, *index, service)?;
    }
    Ok(())
}

fn check_methods(file: &FileDescriptorProto, index: usize, service: &Service) -> Result<(), Error> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (place, method) in service.methods.iter().enumerate() {
        if let Some(other) = seen.insert(method.ident.to_string(), &method.name) {
            return Err(Error::new(format!(
                "{}: methods {other} and {} of {} both become `{}`: rename one of them",
                docs::place(file, index, Some(place)),
                method.name,
                service.full_name,
                method.ident
            )));
        }
    }
    Ok(())
}

/// Describes the message or enum behind a generated name.
fn origin(package: &str, name: &str, schema: &Schema) -> String {
    let stems = [Some(name), name.strip_suffix("OwnedView"), name.strip_suffix("View")];
    for stem in stems.into_iter().flatten() {
        for file in schema.files_of(package) {
            let message = file.message_type.iter().any(|message| message.name() == stem);
            if message || file.enum_type.iter().any(|item| item.name() == stem) {
                let what = if message { "message" } else { "enum" };
                return format!("{what} {} ({})", qualified(package, stem), file.name());
            }
        }
    }
    format!("a message of package {package}")
}

/// Checks that no two definitions generate the same name.
pub(crate) fn check_items(package: &str, files: [&syn::File; 2]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for item in files.iter().flat_map(|file| &file.items) {
        let (is_type, ident) = match item {
            syn::Item::Const(item) => (false, &item.ident),
            syn::Item::Enum(item) => (true, &item.ident),
            syn::Item::Static(item) => (false, &item.ident),
            syn::Item::Struct(item) => (true, &item.ident),
            syn::Item::Trait(item) => (true, &item.ident),
            syn::Item::Type(item) => (true, &item.ident),
            _ => continue,
        };
        if !seen.insert((is_type, ident.to_string())) {
            return Err(Error::new(format!(
                "package {package}: two definitions generate `{ident}`: rename one of them; a service generates its \
                 name, and that with Server, Client and Api behind it"
            )));
        }
    }
    Ok(())
}
