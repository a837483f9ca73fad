//! The shape of Rust source: lengths, module documentation, leftovers.

use super::{Complaint, File};

/// The `max_width` of rustfmt.toml, which leaves comments and strings alone.
const LINE_COLUMNS_MAX: usize = 120;

const FILE_LINES_MAX: usize = 800;

/// Longer files, each with the reason why it is better in one piece.
const LONG_FILES: &[(&str, &str)] = &[];

/// Lines that are too wide, but for those with an address or a long text, which no formatter breaks.
pub(super) fn long_lines(file: &File) -> Vec<Complaint> {
    if !file.is_rust() {
        return Vec::new();
    }
    let has_text =
        |line: &str| line.split('"').skip(1).step_by(2).any(|text| text.len() > LINE_COLUMNS_MAX / 3);
    let is_long =
        |line: &str| line.chars().count() > LINE_COLUMNS_MAX && !line.contains("://") && !has_text(line);
    let long = file.lines().filter(|(_, line)| is_long(line));
    long.map(|(number, _)| file.complaint(number, format!("more than {LINE_COLUMNS_MAX} columns"))).collect()
}

/// Files that are too long, and exceptions that are no longer needed.
pub(super) fn long_files(files: &[File]) -> Vec<Complaint> {
    long_files_but(LONG_FILES, files)
}

fn long_files_but(excepted: &[(&str, &str)], files: &[File]) -> Vec<Complaint> {
    let is_excepted = |path: &str| excepted.iter().any(|(excepted, _)| *excepted == path);
    let is_long = |file: &&File| file.is_rust() && file.text.lines().count() > FILE_LINES_MAX;
    let long: Vec<&File> = files.iter().filter(is_long).collect();

    let mut complaints: Vec<Complaint> = Vec::new();
    for file in long.iter().filter(|file| !is_excepted(&file.path)) {
        let message = format!("more than {FILE_LINES_MAX} lines: split it, or give the reason in LONG_FILES");
        complaints.push(file.complaint(0, message));
    }
    for (path, _) in excepted.iter().filter(|(path, _)| long.iter().all(|file| file.path != *path)) {
        let message = "is in LONG_FILES but not long".to_owned();
        complaints.push(Complaint { path: (*path).to_owned(), line: 0, message });
    }
    complaints
}

/// Modules that do not say first what they are for.
///
/// Tests beside their module and in `tests` folders may go without: the names of the tests say it.
pub(super) fn missing_module_docs(file: &File) -> Vec<Complaint> {
    let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    if !file.is_rust() || is_test {
        return Vec::new();
    }
    let mut lines = file.lines().map(|(_, line)| line.trim());
    let first = lines.find(|line| !line.is_empty() && !line.starts_with("#!"));
    if first.is_some_and(|line| line.starts_with("//!")) {
        return Vec::new();
    }
    vec![file.complaint(1, "starts without `//!`: say what the module is for")]
}

/// Macros and marks that are removed before a commit.
pub(super) fn leftovers(file: &File) -> Vec<Complaint> {
    const MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
    const MARKS: [&str; 3] = ["FIXME", "HACK", "XXX"];
    if file.is_tidy_itself() || file.path.ends_with(".lock") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (number, line) in file.lines() {
        let macros = MACROS.iter().filter(|leftover| file.is_rust() && calls(line, leftover));
        for leftover in macros.chain(MARKS.iter().filter(|mark| has_word(line, mark))) {
            complaints.push(file.complaint(number, format!("`{leftover}` is left over")));
        }
    }
    complaints
}

fn calls(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| !ends_in_word(&line[..at]))
}

/// Returns whether `line` has `word` with nothing of a longer word around it.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let after = &line[at + word.len()..];
        !ends_in_word(&line[..at]) && !after.starts_with(|next: char| next.is_alphanumeric() || next == '_')
    })
}

fn ends_in_word(text: &str) -> bool {
    text.ends_with(|last: char| last.is_alphanumeric() || last == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_are_counted_in_characters() {
        let wide = File::new("a.rs", &format!("{}\n{}\n", "ä".repeat(120), "a".repeat(121)));
        assert_eq!(long_lines(&wide), [wide.complaint(2, "more than 120 columns")]);
        assert!(long_lines(&File::new("a.md", &"a".repeat(111))).is_empty());
        assert!(long_lines(&File::new("a.rs", &format!("// https://{}", "a".repeat(111)))).is_empty());
    }

    #[test]
    fn long_files_need_a_reason_and_reasons_need_a_long_file() {
        let files = [File::new("long.rs", &"\n".repeat(801)), File::new("short.rs", &"\n".repeat(800))];
        let complaints = long_files_but(&[], &files);
        assert_eq!(complaints.iter().map(|complaint| &*complaint.path).collect::<Vec<_>>(), ["long.rs"]);
        assert!(long_files_but(&[("long.rs", "one table")], &files).is_empty());
        let complaints = long_files_but(&[("long.rs", "one table"), ("short.rs", "")], &files);
        assert_eq!(complaints.iter().map(|complaint| &*complaint.path).collect::<Vec<_>>(), ["short.rs"]);
    }

    #[test]
    fn modules_open_with_their_purpose() {
        for good in ["//! Purpose.\n", "#![no_std]\n\n//! Purpose.\n"] {
            assert!(missing_module_docs(&File::new("src/a.rs", good)).is_empty(), "{good}");
        }
        for bad in ["", "use std::fmt;\n//! Late.\n", "// Not documentation.\n"] {
            assert_eq!(missing_module_docs(&File::new("src/a.rs", bad)).len(), 1, "{bad}");
            assert!(missing_module_docs(&File::new("crates/x/tests/a.rs", bad)).is_empty(), "{bad}");
            assert!(missing_module_docs(&File::new("src/a/tests.rs", bad)).is_empty(), "{bad}");
        }
    }

    #[test]
    fn leftovers_are_whole_words() {
        let found = |path: &str, text: &str| leftovers(&File::new(path, text)).len();
        assert_eq!(found("a.rs", "todo!()\nstd::dbg!(x)\n// FIXME later\n"), 3);
        assert_eq!(found("a.rs", "mytodo!()\nlet todo = HACKS; XXXL\n"), 0);
        assert_eq!(found("a.md", "todo! is a macro\nXXX\n"), 1);
    }
}
