//! Names without a meaning: a thing is named after its purpose.

use super::{Complaint, File};

/// Words that no file, type or function of ours has in its name.
const BANNED: [&str; 6] = ["helper", "helpers", "manager", "util", "utilities", "utils"];

/// Accessors whose `get_` the standard library made a convention.
const CONVENTIONAL: [&str; 4] = ["get_many_mut", "get_mut", "get_or_init", "get_ref"];

/// Declarations and files with such a name, and accessors that start with `get_`.
pub(super) fn banned_names(file: &File) -> Vec<Complaint> {
    if !file.is_rust() || file.is_tidy_itself() {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let stems = file.path.trim_end_matches(".rs").split('/');
    for stem in stems.filter(|stem| is_banned(stem)) {
        complaints.push(file.complaint(0, format!("`{stem}` says nothing: name what it does")));
    }
    // Methods have the names that their trait gives them, as one made from a schema does.
    let mut is_given = false;
    for (number, line) in file.lines() {
        is_given = (is_given || line.starts_with("impl") && line.contains(" for ")) && line != "}";
        for (kind, name) in declared(line) {
            if is_banned(name) {
                complaints.push(file.complaint(number, format!("`{name}` says nothing: name what it does")));
            }
            if kind == "fn" && !is_given && name.starts_with("get_") && !CONVENTIONAL.contains(&name) {
                complaints.push(file.complaint(number, format!("`{name}`: leave out `get_`")));
            }
        }
    }
    complaints
}

/// The keyword and the name of each declaration on the line.
fn declared(line: &str) -> Vec<(&str, &str)> {
    const KEYWORDS: [&str; 7] = ["enum", "fn", "macro_rules!", "mod", "struct", "trait", "type"];
    let code = line.split("//").next().unwrap_or_default();
    let words: Vec<&str> = code.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0]));
    pairs.map(|pair| (pair[0], identifier(pair[1]))).collect()
}

fn identifier(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_');
    &text[..end.unwrap_or(text.len())]
}

fn is_banned(name: &str) -> bool {
    words(name).iter().any(|word| BANNED.contains(&word.as_str()))
}

/// `ConnectionManager` and `connection_manager` are both `connection`, `manager`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if character.is_uppercase() || !character.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        banned_names(&File::new("src/a.rs", text)).len()
    }

    #[test]
    fn declarations_are_checked_and_uses_are_not() {
        for bad in ["struct ConnectionManager;", "pub mod utils;", "    fn send_helper<T>(t: T) {"] {
            assert_eq!(found(bad), 1, "{bad}");
        }
        for good in ["use other::Manager;", "struct Utility;", "// struct Manager", "fn managers_of() {"] {
            assert_eq!(found(good), 0, "{good}");
        }
    }

    #[test]
    fn accessors_go_without_get() {
        assert_eq!(found("pub fn get_name(&self) -> &str {"), 1);
        assert_eq!(found("pub fn get_mut(&mut self) -> &mut T {\nfn get(&self) {}"), 0);
    }

    #[test]
    fn names_that_a_trait_gives_are_not_ours() {
        let methods = "    async fn get_socket(&self) {\n    }\n}\n";
        assert_eq!(found(&format!("impl Channelz for Shown {{\n{methods}")), 0);
        assert_eq!(found(&format!("impl A for B {{\n}}\nimpl Shown {{\n{methods}")), 1);
    }

    #[test]
    fn paths_are_checked() {
        assert_eq!(banned_names(&File::new("crates/x/src/utils/a.rs", "")).len(), 1);
        assert_eq!(banned_names(&File::new("crates/x/src/http_helper.rs", "")).len(), 1);
    }
}
