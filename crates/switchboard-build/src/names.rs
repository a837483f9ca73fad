//! Names of descriptors, and conversion to names in Rust.

use buffa_codegen::{
    generated::descriptor::{
        DescriptorProto, EnumDescriptorProto, FileDescriptorProto, MethodDescriptorProto,
        ServiceDescriptorProto,
    },
    idents,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// A descriptor with a name; compilers always set it.
pub(crate) trait Named {
    /// Returns the name, not qualified.
    fn name(&self) -> &str;
}

macro_rules! named {
    ($($descriptor:ty)*) => {
        $(impl Named for $descriptor {
            fn name(&self) -> &str {
                self.name.as_deref().unwrap_or_default()
            }
        })*
    };
}

named!(DescriptorProto EnumDescriptorProto FileDescriptorProto MethodDescriptorProto ServiceDescriptorProto);

/// Returns the package of a file, empty if it has none.
pub(crate) fn package_of(file: &FileDescriptorProto) -> &str {
    file.package.as_deref().unwrap_or_default()
}

/// Returns `package.name`, or only the name in the package without a name.
pub(crate) fn qualified(package: &str, name: &str) -> String {
    if package.is_empty() { name.to_owned() } else { format!("{package}.{name}") }
}

/// Methods that every client has; methods of a service with these names get an underscore.
const CLIENT_METHODS: [&str; 5] = ["channel", "connect", "local", "new", "with_codec"];

/// Converts `GetHTTPInfo` to `get_http_info`, as an identifier.
pub(crate) fn method_ident(name: &str) -> Ident {
    let snake = idents::to_shouty_snake_case(name).to_lowercase();
    if CLIENT_METHODS.contains(&snake.as_str()) {
        return Ident::new(&format!("{snake}_"), Span::call_site());
    }
    idents::make_field_ident(&snake)
}

/// Returns the trait of a service: its name unchanged if it is a valid type name, else in `UpperCamelCase`.
pub(crate) fn service_name(name: &str) -> String {
    if name.starts_with(char::is_uppercase) && !name.contains('_') {
        return name.to_owned();
    }
    idents::to_upper_camel_case(name)
}

/// Returns the name of the static of a service: `HTTP_INFO` for `HTTPInfo`.
pub(crate) fn static_name(service: &str) -> String {
    idents::to_shouty_snake_case(service).to_uppercase()
}

/// Returns the JSON name of a field whose descriptor has none: `lowerCamelCase`.
pub(crate) fn json_name(field: &str) -> String {
    let mut name = String::with_capacity(field.len());
    let mut upper = false;
    for letter in field.chars() {
        match letter {
            '_' => upper = true,
            letter if std::mem::take(&mut upper) => name.push(letter.to_ascii_uppercase()),
            letter => name.push(letter),
        }
    }
    name
}

/// Returns the name of a type: unchanged if it is a valid type name, else in `UpperCamelCase`.
pub(crate) fn type_ident(name: &str) -> Ident {
    let name = service_name(name);
    if name == "Self" { Ident::new("Self_", Span::call_site()) } else { Ident::new(&name, Span::call_site()) }
}

/// Returns the name of a field or argument.
pub(crate) fn field_ident(name: &str) -> Ident {
    idents::make_field_ident(&snake(name))
}

/// Converts `userMap` to `user_map`.
pub(crate) fn snake(name: &str) -> String {
    idents::to_shouty_snake_case(name).to_lowercase()
}

/// Returns the name of a constant.
pub(crate) fn constant_ident(name: &str) -> Ident {
    let name = idents::to_shouty_snake_case(name).to_uppercase();
    Ident::new(&name, Span::call_site())
}

/// Returns the path of a type of package `to` in the code of package `from`.
pub(crate) fn relative_path(from: &str, to: &str, name: &str) -> TokenStream {
    let ident = type_ident(name);
    if from == to {
        return quote!(#ident);
    }
    let up = from.split('.').map(|_| quote!(super::));
    let down = to.split('.').map(|module| idents::rust_path_to_tokens(&idents::escape_mod_ident(module)));
    quote!(#(#up)* #(#down::)* #ident)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_become_snake_case_and_never_clash_with_rust() {
        for (proto, rust) in [
            ("Greet", "greet"),
            ("GetHTTPInfo", "get_http_info"),
            ("get_items", "get_items"),
            ("Type", "r#type"),
            ("Self", "self_"),
            ("Connect", "connect_"),
            ("New", "new_"),
            ("WithCodec", "with_codec_"),
        ] {
            assert_eq!(method_ident(proto).to_string(), rust);
        }
    }

    #[test]
    fn services_keep_names_that_are_fit_for_types() {
        for (proto, rust, shouted) in [
            ("Greeter", "Greeter", "GREETER"),
            ("HTTPInfo", "HTTPInfo", "HTTP_INFO"),
            ("my_service", "MyService", "MY_SERVICE"),
            ("greeter", "Greeter", "GREETER"),
        ] {
            assert_eq!(service_name(proto), rust);
            assert_eq!(static_name(&service_name(proto)), shouted);
        }
    }
}
