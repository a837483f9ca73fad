//! Names: of descriptors, and of what is made of them in Rust.

use buffa_codegen::{
    generated::descriptor::{
        DescriptorProto, EnumDescriptorProto, FileDescriptorProto, MethodDescriptorProto,
        ServiceDescriptorProto,
    },
    idents,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// A descriptor with a name; compilers leave none without.
pub(crate) trait Named {
    /// The name, not qualified.
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

/// The package of a file, empty if it has none.
pub(crate) fn package_of(file: &FileDescriptorProto) -> &str {
    file.package.as_deref().unwrap_or_default()
}

/// `package.name`, or the name alone in the package without a name.
pub(crate) fn qualified(package: &str, name: &str) -> String {
    if package.is_empty() { name.to_owned() } else { format!("{package}.{name}") }
}

/// Methods that every client has; the same names in a service get an underscore.
const CLIENT_METHODS: [&str; 5] = ["channel", "connect", "local", "new", "with_codec"];

/// `GetHTTPInfo` to `get_http_info`, as an identifier.
pub(crate) fn method_ident(name: &str) -> Ident {
    let snake = idents::to_shouty_snake_case(name).to_lowercase();
    if CLIENT_METHODS.contains(&snake.as_str()) {
        return Ident::new(&format!("{snake}_"), Span::call_site());
    }
    idents::make_field_ident(&snake)
}

/// The trait of a service: its name as it is if that is a name for a type, else in `UpperCamelCase`.
pub(crate) fn service_name(name: &str) -> String {
    if name.starts_with(char::is_uppercase) && !name.contains('_') {
        return name.to_owned();
    }
    idents::to_upper_camel_case(name)
}

/// The static of a service: `HTTP_INFO` for `HTTPInfo`.
pub(crate) fn static_name(service: &str) -> String {
    idents::to_shouty_snake_case(service).to_uppercase()
}

/// The JSON name of a field whose descriptor has none: `lowerCamelCase`.
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

/// The name of a type: as it is if it is one for types, else in `UpperCamelCase`.
pub(crate) fn type_ident(name: &str) -> Ident {
    let name = service_name(name);
    if name == "Self" { Ident::new("Self_", Span::call_site()) } else { Ident::new(&name, Span::call_site()) }
}

/// The name of a field or argument.
pub(crate) fn field_ident(name: &str) -> Ident {
    idents::make_field_ident(&snake(name))
}

/// `userMap` to `user_map`.
pub(crate) fn snake(name: &str) -> String {
    idents::to_shouty_snake_case(name).to_lowercase()
}

/// The name of a constant.
pub(crate) fn constant_ident(name: &str) -> Ident {
    let name = idents::to_shouty_snake_case(name).to_uppercase();
    Ident::new(&name, Span::call_site())
}

/// The path of a type in the code of the package `from` that is generated in the package `to`.
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
