//! Rules that review should not have to discuss and that no compiler checks. Each rule is a function from the
//! files of the project to complaints. Exceptions of a rule are in a list beside it, with the reason.

mod enums;
mod layers;
mod names;
mod packages;
mod pages;
mod source;
mod tree;
mod words;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Workspace};

/// A text file of the project.
#[derive(Debug)]
struct File {
    /// From the root of the workspace, with slashes.
    path: String,
    text: String,
}

/// One place that breaks one rule.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    path: String,
    /// From 1; 0 when the complaint is about the whole file.
    line: usize,
    message: String,
}

/// Checks all rules, prints the complaints and returns whether there were none.
pub(crate) fn run(workspace: &Workspace) -> bool {
    let files = files(&workspace.root);
    let mut complaints = check_files(&files);
    complaints.extend(tree::broken_links(&files, &workspace.root));
    complaints.extend(tree::impure_dependencies(workspace));
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    println!("tidy: {} files, {} complaints", files.len(), complaints.len());
    complaints.is_empty()
}

/// The rules that need nothing but the files.
fn check_files(files: &[File]) -> Vec<Complaint> {
    let rules = [
        enums::open_enums,
        names::banned_names,
        packages::files_outside_packages,
        pages::broken_fragments,
        pages::broken_tables,
        source::leftovers,
        source::long_lines,
        source::missing_module_docs,
        words::banned_words,
    ];
    let each = files.iter().flat_map(|file| rules.iter().flat_map(|rule| rule(file)));
    each.chain(source::long_files(files))
        .chain(words::banned_vocabulary(files))
        .chain(layers::upward_imports(files))
        .chain(packages::incomplete_packages(files))
        .chain(pages::unlisted_pages(files))
        .chain(pages::unreviewed_items(files))
        .collect()
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The rules themselves spell out what they ban.
    fn is_tidy_itself(&self) -> bool {
        self.path.starts_with("xtask/src/tidy")
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn complaint(&self, line: usize, message: impl Into<String>) -> Complaint {
        Complaint { path: self.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.message),
            line => write!(formatter, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Every text file that is, or is about to be, under version control.
fn files(root: &Path) -> Vec<File> {
    let mut paths = listed_by_git(root).unwrap_or_else(|| found_below(root));
    paths.sort();
    // Files that are not UTF-8 are not text, and files that cannot be read were deleted and not yet
    // committed.
    let read = |path: String| fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text });
    // Inputs of fuzzers may be text by accident, and generated code follows its generator.
    let is_written = |path: &String| !path.starts_with("fuzz/corpus/") && !path.contains("/generated/");
    paths.into_iter().filter(is_written).filter_map(read).collect()
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let listed = process::output(Command::new("git").args(arguments).current_dir(root)).ok()?;
    Some(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// For a copy of the sources that is no git checkout.
fn found_below(root: &Path) -> Vec<String> {
    const NOT_OURS: [&str; 5] = [".git", ".peers", "__pycache__", "node_modules", "target"];
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            let is_ours = !NOT_OURS.iter().any(|name| entry.file_name() == *name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && is_ours => folders.push(path),
                Ok(kind) if kind.is_file() => found.push(path.to_string_lossy().replace('\\', "/")),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
impl File {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}
