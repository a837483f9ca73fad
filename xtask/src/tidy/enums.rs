//! Public enums are open for further variants, or say why they never get one.

use super::{Complaint, File};

/// Reason of an enum that is complete, in a comment before it.
const CLOSED: &str = "// closed: ";

/// Public enums of the libraries without `#[non_exhaustive]` and without a reason.
pub(super) fn open_enums(file: &File) -> Vec<Complaint> {
    if !is_library(&file.path) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut is_decided = false;
    for (number, line) in file.lines() {
        let line = line.trim();
        if line.starts_with("pub enum ") && !is_decided {
            let message =
                format!("public enum without `#[non_exhaustive]`: add it, or `{CLOSED}` with the reason");
            complaints.push(file.complaint(number, message));
        }
        let has_reason = line.strip_prefix(CLOSED).is_some_and(|reason| !reason.is_empty());
        is_decided = match line {
            "#[non_exhaustive]" => true,
            _ => has_reason || (is_decided && is_before_item(line)),
        };
    }
    complaints
}

/// Returns whether the file is of the public interface of a library. The command line has none.
fn is_library(path: &str) -> bool {
    let Some((name, rest)) = path.strip_prefix("crates/").and_then(|path| path.split_once('/')) else {
        return false;
    };
    let is_test = rest.contains("/tests/") || rest.ends_with("/tests.rs");
    name != "switchboard-cli" && rest.starts_with("src/") && rest.ends_with(".rs") && !is_test
}

/// Returns whether a line may be between an attribute and its item.
fn is_before_item(line: &str) -> bool {
    line.starts_with("#[") || line.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        open_enums(&File::new(path, text)).len()
    }

    #[test]
    fn public_enums_are_open_or_have_a_reason() {
        for good in [
            "#[non_exhaustive]\npub enum A {\n",
            "    // closed: the opcodes of RFC 6455\n    #[repr(u8)]\n    pub enum A {\n",
            "#[non_exhaustive]\n/// Late.\n#[derive(Debug)]\npub enum A {\n",
            "enum A {\n",
            "pub(crate) enum A {\n",
        ] {
            assert_eq!(found("crates/x/src/a.rs", good), 0, "{good}");
        }
        for bad in [
            "pub enum A {\n",
            "#[derive(Debug)]\npub enum A {\n",
            "// closed: \npub enum A {\n",
            "#[non_exhaustive]\npub struct B;\n\npub enum A {\n",
        ] {
            assert_eq!(found("crates/x/src/a.rs", bad), 1, "{bad}");
        }
    }

    #[test]
    fn only_libraries_have_public_enums() {
        for path in
            ["crates/switchboard-cli/src/a.rs", "crates/x/tests/a.rs", "xtask/src/a.rs", "crates/x/src/a.py"]
        {
            assert_eq!(found(path, "pub enum A {\n"), 0, "{path}");
        }
    }
}
