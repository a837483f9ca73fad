//! Fragments of the changelog: each change has a file of its own in `changelog/`, so that changes that are made at the
//! same time do not touch one line. A release joins them into CHANGELOG.md.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of the fragments, and the page that describes them.
pub(crate) const FOLDER: &str = "changelog";
pub(crate) const DESCRIPTION: &str = "README.md";
const CHANGELOG: &str = "CHANGELOG.md";
/// Beginnings of the names of fragments, with the headings in the changelog.
const SECTIONS: [(&str, &str); 4] = [
    ("added", "### Added"),
    ("changed", "### Changed"),
    ("fixed", "### Fixed"),
    ("security", "### Security"),
];

/// Moves all fragments into the changelog, and returns their number.
///
/// # Errors
/// The file or the fragment that is not as expected.
pub(crate) fn join(root: &Path) -> Result<usize, String> {
    let fragments = fragments(root).map_err(|error| format!("{FOLDER}: {error}"))?;
    let path = root.join(CHANGELOG);
    let mut changelog = fs::read_to_string(&path).map_err(|error| format!("{CHANGELOG}: {error}"))?;
    for fragment in &fragments {
        let name = fragment.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(fragment).map_err(|error| format!("{FOLDER}/{name}: {error}"))?;
        check(&name, &text).map_err(|why| format!("{FOLDER}/{name}: {why}"))?;
        changelog = insert(&changelog, &name, &text).map_err(|why| format!("{CHANGELOG}: {why}"))?;
    }
    fs::write(&path, changelog).map_err(|error| format!("{CHANGELOG}: {error}"))?;
    for fragment in &fragments {
        fs::remove_file(fragment).map_err(|error| format!("{}: {error}", fragment.display()))?;
    }
    Ok(fragments.len())
}

fn fragments(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut fragments = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER))? {
        let entry = entry?;
        if entry.file_name() != DESCRIPTION {
            fragments.push(entry.path());
        }
    }
    fragments.sort();
    Ok(fragments)
}

/// Checks the name and the text of a fragment.
///
/// # Errors
/// The rule that it breaks.
pub(crate) fn check(name: &str, text: &str) -> Result<(), String> {
    heading(name)?;
    let is_item = |line: &str| line.starts_with("- ") || line.starts_with("  ");
    match text.lines().enumerate().find(|(at, line)| !is_item(line) || (*at == 0 && !line.starts_with("- ")))
    {
        Some((at, _)) => {
            Err(format!("line {} is not an item: begin it with `- `, or with two spaces", at + 1))
        }
        None if text.is_empty() || !text.ends_with('\n') => {
            Err("the text does not end with a line".to_owned())
        }
        None => Ok(()),
    }
}

fn heading(name: &str) -> Result<&'static str, String> {
    let section = name.strip_suffix(".md").and_then(|name| name.split_once('-')).map(|(section, _)| section);
    let found = SECTIONS.iter().find(|(known, _)| Some(*known) == section);
    found.map(|(_, heading)| *heading).ok_or_else(|| {
        let known: Vec<_> = SECTIONS.iter().map(|(section, _)| format!("{section}-NAME.md")).collect();
        format!("the name is none of {}", known.join(", "))
    })
}

/// Adds the text of a fragment at the end of its section of the newest version.
fn insert(changelog: &str, name: &str, text: &str) -> Result<String, String> {
    let heading = heading(name)?;
    let version = changelog.find("\n## ").ok_or("no version begins with `## `")? + 1;
    let end = changelog[version..].find("\n## ").map_or(changelog.len(), |end| version + end);
    let section = changelog[version..end].find(&format!("\n{heading}\n"));
    let section = section.ok_or(format!("the newest version has no section `{heading}`"))? + version + 1;
    let after = section + heading.len();
    let end = changelog[after..end].find("\n### ").map_or(end, |next| after + next);
    let before = changelog[..end].trim_end();
    Ok(format!("{before}\n{text}{}", if end < changelog.len() { &changelog[end..] } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# Changelog\n\n## Unreleased\n\n### Added\n\n- One.\n\n### Fixed\n\n- Two.\n\n## 0.1\n\n### Fixed\n\n- Old.\n";

    #[test]
    fn a_fragment_goes_to_the_end_of_its_section() {
        let added = insert(BEFORE, "added-counters.md", "- New,\n  in two lines.\n").unwrap();
        assert_eq!(added, BEFORE.replace("- One.\n", "- One.\n- New,\n  in two lines.\n"));
        let fixed = insert(BEFORE, "fixed-a.md", "- New.\n").unwrap();
        assert_eq!(fixed, BEFORE.replace("- Two.\n", "- Two.\n- New.\n"));
        let last = "# Changelog\n\n## Unreleased\n\n### Fixed\n\n- Two.\n";
        assert_eq!(insert(last, "fixed-a.md", "- New.\n").unwrap(), format!("{last}- New.\n"));
        assert!(insert(last, "added-a.md", "- New.\n").unwrap_err().contains("no section `### Added`"));
    }

    #[test]
    fn a_fragment_has_the_name_of_a_section_and_items() {
        check("added-a.md", "- One\n  line.\n- Two.\n").unwrap();
        for (name, text) in [
            ("new-a.md", "- One.\n"),
            ("added.md", "- One.\n"),
            ("added-a.txt", "- One.\n"),
            ("added-a.md", "One.\n"),
            ("added-a.md", "  One.\n"),
            ("added-a.md", "- One."),
            ("added-a.md", ""),
        ] {
            assert!(check(name, text).is_err(), "{name}: {text}");
        }
    }
}
