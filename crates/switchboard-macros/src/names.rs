//! Names of generated items and names on the wire.

/// Converts `HttpServer` to `HTTP_SERVER`.
pub(crate) fn shouting_snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, &letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| letters[at]);
        let after_small = before.is_some_and(|before| before.is_lowercase() || before.is_ascii_digit());
        let ends_capitals = before.is_some_and(char::is_uppercase)
            && letters.get(at + 1).is_some_and(|after| after.is_lowercase());
        if letter.is_uppercase() && (after_small || ends_capitals) {
            out.push('_');
        }
        out.extend(letter.to_uppercase());
    }
    out
}

/// Converts `add_all` to `AddAll`.
pub(crate) fn upper_camel(name: &str) -> String {
    name.split('_')
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(char::to_uppercase).into_iter().flatten().chain(letters)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found() {
        assert_eq!(shouting_snake("Calc"), "CALC");
        assert_eq!(shouting_snake("PriceFeed2"), "PRICE_FEED2");
        assert_eq!(shouting_snake("HTTPServer"), "HTTP_SERVER");
        assert_eq!(shouting_snake("Base64Codec"), "BASE64_CODEC");
        assert_eq!(upper_camel("add"), "Add");
        assert_eq!(upper_camel("add_all_2"), "AddAll2");
        assert_eq!(upper_camel("_private"), "Private");
    }
}
