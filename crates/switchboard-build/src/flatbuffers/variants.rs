//! Names of union members as variants in Rust, which are also their names in the JSON of generated code.

/// Returns the name unchanged if it is a valid type name, else in `UpperCamelCase`.
pub(super) fn variant_name(member: &str) -> String {
    let name = match member.starts_with(char::is_uppercase) && !member.contains('_') {
        true => member.to_owned(),
        false => upper_camel(member),
    };
    if name == "Self" { "Self_".to_owned() } else { name }
}

/// Converts to `UpperCamelCase`. A word begins after a `_`, at an upper-case letter after a lower-case one, and at the
/// last of several upper-case letters.
fn upper_camel(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut camel = String::with_capacity(name.len());
    for (at, letter) in letters.iter().enumerate().filter(|(_, letter)| **letter != '_') {
        let before = at.checked_sub(1).map(|at| letters[at]).filter(|before| *before != '_');
        let begins = before.is_none_or(|before| {
            let ends_acronym =
                before.is_uppercase() && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
            letter.is_uppercase() && (before.is_lowercase() || ends_acronym)
        });
        camel.push(if begins { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() });
    }
    camel
}

#[cfg(all(test, feature = "codegen"))]
mod tests {
    use super::*;
    use crate::names::type_ident;

    #[test]
    fn variants_are_named_as_types_are() {
        for name in
            ["low", "Shout", "HTTPServer", "HTTP_SERVER", "httpServer2", "a_b", "_a", "a__b", "Self", "X1_y"]
        {
            assert_eq!(variant_name(name), type_ident(name).to_string(), "{name}");
        }
        assert_eq!([variant_name("low"), variant_name("HTTP_SERVER")], ["Low", "HttpServer"]);
    }
}
