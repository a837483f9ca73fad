//! Rules about the product crates: a package has all that its page in a registry shows, and all files that it compiles.

use super::{Complaint, File};

/// The folder of the product crates.
const CRATES: &str = "crates/";

/// Fields of a manifest that registries show or require.
const FIELDS: [&str; 6] = ["categories", "description", "edition", "keywords", "license", "rust-version"];

/// Files that every package has.
const FILES: [&str; 2] = ["LICENSE", "README.md"];

/// Files that include others from outside of their crate, each with the reason why packages do without these.
const OUTSIDE: &[(&str, &str)] = &[
    ("crates/switchboard-broker/src/lib.rs", "documentation tests"),
    ("crates/switchboard-bus/src/lib.rs", "documentation tests"),
    ("crates/switchboard-core/src/compression.rs", "a unit test"),
    ("crates/switchboard-push/src/lib.rs", "documentation tests"),
    ("crates/switchboard-registry/src/lib.rs", "documentation tests"),
    ("crates/switchboard/src/guides.rs", "documentation tests"),
];

/// Manifests without a field or a file that each package has.
pub(super) fn incomplete_packages(files: &[File]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for manifest in files.iter().filter(|file| is_manifest(&file.path)) {
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        for field in FIELDS {
            let has_field = |line: &str| {
                let rest = line.strip_prefix(field);
                rest.is_some_and(|rest| rest.starts_with([' ', '=', '.']))
            };
            if !manifest.text.lines().any(has_field) {
                complaints.push(manifest.complaint(0, format!("the package has no `{field}`")));
            }
        }
        for name in FILES {
            if !files.iter().any(|file| file.path.strip_prefix(folder) == Some(name)) {
                complaints.push(manifest.complaint(0, format!("the package has no file `{name}`")));
            }
        }
    }
    complaints
}

/// Sources that include a file which lies outside of their crate, and so is not in the package.
pub(super) fn files_outside_packages(file: &File) -> Vec<Complaint> {
    if !file.is_rust() || OUTSIDE.iter().any(|(path, _)| *path == file.path) {
        return Vec::new();
    }
    let Some(path) = file.path.strip_prefix(CRATES) else { return Vec::new() };
    // A path of `crates/NAME/src/a/b.rs` begins in `src/a`, two folders below the crate.
    let depth = path.matches('/').count().saturating_sub(1);
    let is_source = path.split('/').nth(1) == Some("src");
    let leaves = |line: &str| {
        line.contains("include_") && line.split('"').any(|text| text.matches("../").count() > depth)
    };
    let lines = file.lines().filter(|(_, line)| is_source && leaves(line));
    lines
        .map(|(number, _)| {
            file.complaint(number, "includes a file outside of the crate, which its package lacks")
        })
        .collect()
}

fn is_manifest(path: &str) -> bool {
    path.strip_prefix(CRATES)
        .and_then(|path| path.split_once('/'))
        .is_some_and(|(_, file)| file == "Cargo.toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_their_fields_and_files() {
        let manifest = "[package]\nedition.workspace = true\nlicense.workspace = true\nrust-version = \"1.92\"\n\
            description = \"a\"\nkeywords = []\n";
        let files = [File::new("crates/a/Cargo.toml", manifest), File::new("crates/a/README.md", "# a\n")];
        let messages: Vec<String> =
            incomplete_packages(&files).into_iter().map(|found| found.message).collect();
        assert_eq!(messages, ["the package has no `categories`", "the package has no file `LICENSE`"]);
    }

    #[test]
    fn includes_stay_inside_of_the_crate() {
        let inside = "const A: &str = include_str!(\"../../proto/a.proto\");\n";
        assert_eq!(files_outside_packages(&File::new("crates/a/src/b/c.rs", inside)), []);
        assert_eq!(files_outside_packages(&File::new("crates/a/src/c.rs", inside)).len(), 1);
    }
}
