//! Conversion of comments in `.proto` files to Rust documentation.

use crate::names::Named as _;
use buffa_codegen::generated::descriptor::{FileDescriptorProto, source_code_info::Location};
use proc_macro2::TokenStream;
use quote::quote;

/// Field numbers in the path of a comment: `FileDescriptorProto.service`, `ServiceDescriptorProto.method`.
const SERVICE: i32 = 6;
const METHOD: i32 = 2;

/// Returns the comment of a service, or of one of its methods.
pub(crate) fn comment(file: &FileDescriptorProto, service: usize, method: Option<usize>) -> Option<String> {
    let text = text_of(location(file, service, method)?)?;
    Some(escape_comment(&text))
}

/// Returns the position of a service or one of its methods: `demo.proto:12`, or the file alone if positions are
/// unknown.
pub(crate) fn place(file: &FileDescriptorProto, service: usize, method: Option<usize>) -> String {
    match location(file, service, method).and_then(|location| location.span.first()) {
        Some(line) => format!("{}:{}", file.name(), line + 1),
        None => file.name().to_owned(),
    }
}

fn location(file: &FileDescriptorProto, service: usize, method: Option<usize>) -> Option<&Location> {
    let mut path = vec![SERVICE, service as i32];
    path.extend(method.into_iter().flat_map(|method| [METHOD, method as i32]));
    file.source_code_info.as_option()?.location.iter().find(|location| location.path == path)
}

fn text_of(location: &Location) -> Option<String> {
    let comment = location.leading_comments.as_deref().filter(|text| !text.trim().is_empty());
    let comment = comment.or(location.trailing_comments.as_deref())?;
    // A block comment has a star before each line, a line comment a space.
    let lines = comment.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
    let text = lines.collect::<Vec<_>>().join("\n").trim_matches('\n').to_owned();
    (!text.is_empty()).then_some(text)
}

/// Escapes a comment so that `rustdoc` shows it as plain text: examples are not compiled, brackets are not links, angle
/// brackets are not tags.
pub(crate) fn escape_comment(text: &str) -> String {
    let mut lines = Vec::new();
    let mut fenced = false;
    let mut indented = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        let is_indented = line.starts_with("    ") || line.starts_with('\t');
        if indented && !is_indented && !line.is_empty() {
            lines.push("```".to_owned());
            indented = false;
        }
        if is_fence {
            // Without a language, rustdoc would compile the block as an example.
            lines.push(if fenced { "```".to_owned() } else { "```text".to_owned() });
            fenced = !fenced;
        } else if fenced || indented {
            lines.push(line.to_owned());
        } else if is_indented {
            lines.push("```text".to_owned());
            lines.push(line.to_owned());
            indented = true;
        } else {
            lines.push(escape(line));
        }
    }
    if fenced || indented {
        lines.push("```".to_owned());
    }
    lines.join("\n")
}

/// Escapes brackets and angles outside of code spans.
fn escape(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    for (part, text) in line.split('`').enumerate() {
        if part > 0 {
            escaped.push('`');
        }
        if part % 2 == 1 {
            escaped.push_str(text);
            continue;
        }
        for character in text.chars() {
            if matches!(character, '[' | ']' | '<' | '>') {
                escaped.push('\\');
            }
            escaped.push(character);
        }
    }
    escaped
}

/// Returns `#[doc]` attributes, one per line; printed as `/// …`.
pub(crate) fn attributes(text: &str) -> TokenStream {
    let lines = text.lines().map(|line| if line.is_empty() { String::new() } else { format!(" {line}") });
    quote! { #(#[doc = #lines])* }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_links_and_tags_are_left_alone_by_rustdoc() {
        assert_eq!(escape_comment("See [x] and `a[0]` <b>"), "See \\[x\\] and `a[0]` \\<b\\>");
        assert_eq!(escape_comment("Like:\n    let x;\nso"), "Like:\n```text\n    let x;\n```\nso");
        assert_eq!(escape_comment("```rust\nlet x;"), "```text\nlet x;\n```");
    }
}
