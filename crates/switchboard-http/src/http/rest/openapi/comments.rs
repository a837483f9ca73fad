//! Comments of `.proto` files by the full names of the items that they describe.

use buffa_descriptor::generated::descriptor::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};
use std::collections::HashMap;

/// Maps full names to comments.
#[derive(Default)]
pub(super) struct Comments(HashMap<String, String>);

impl Comments {
    pub(super) fn of(files: &[FileDescriptorProto]) -> Comments {
        let mut comments = HashMap::new();
        for file in files {
            for location in file.source_code_info.as_option().map_or(&[][..], |info| &info.location) {
                let leading = location.leading_comments.as_deref().filter(|text| !text.trim().is_empty());
                let Some(text) = leading.or(location.trailing_comments.as_deref()) else { continue };
                if let Some(name) = name_at(file, &location.path) {
                    let lines: Vec<_> = text.lines().map(str::trim).collect();
                    comments.insert(name, lines.join("\n").trim().to_owned());
                }
            }
        }
        Comments(comments)
    }

    pub(super) fn of_name(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }
}

/// Returns the full name at a path of field numbers and indices as `SourceCodeInfo` has them.
fn name_at(file: &FileDescriptorProto, path: &[i32]) -> Option<String> {
    let package = file.package.as_deref().unwrap_or_default();
    let (kind, index, rest) = split(path)?;
    match kind {
        4 => in_message(package, file.message_type.get(index)?, rest),
        5 => in_enum(package, file.enum_type.get(index)?, rest),
        6 => {
            let service = file.service.get(index)?;
            let name = join(package, service.name.as_deref()?);
            match split(rest) {
                None => Some(name),
                Some((2, method, _)) => Some(join(&name, service.method.get(method)?.name.as_deref()?)),
                Some(_) => None,
            }
        }
        _ => None,
    }
}

fn in_message(scope: &str, message: &DescriptorProto, path: &[i32]) -> Option<String> {
    let name = join(scope, message.name.as_deref()?);
    match split(path) {
        None => Some(name),
        Some((2, field, [])) => Some(join(&name, message.field.get(field)?.name.as_deref()?)),
        Some((3, nested, rest)) => in_message(&name, message.nested_type.get(nested)?, rest),
        Some((4, nested, rest)) => in_enum(&name, message.enum_type.get(nested)?, rest),
        Some(_) => None,
    }
}

fn in_enum(scope: &str, item: &EnumDescriptorProto, path: &[i32]) -> Option<String> {
    path.is_empty().then(|| item.name.as_deref().map(|name| join(scope, name)))?
}

fn split(path: &[i32]) -> Option<(i32, usize, &[i32])> {
    let ([kind, index], rest) = path.split_first_chunk::<2>()?;
    Some((*kind, usize::try_from(*index).ok()?, rest))
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}
