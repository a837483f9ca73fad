//! Rules about several files: links between documents, and dependencies of crates.

use std::path::Path;

use super::{Complaint, File};
use crate::process::{self, Workspace};

/// Crates that must stay pure, and what pure means for them.
const PURE: &str = "switchboard-wire";
const IMPURE: [&str; 6] = ["async-std", "hyper", "mio", "smol", "socket2", "tokio"];

/// Relative links in Markdown files that lead nowhere, such as from a feature to a test that was moved.
pub(super) fn broken_links(files: &[File], root: &Path) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = root.join(&file.path);
        let folder = folder.parent().unwrap_or(root);
        for (number, line) in outside_code_blocks(file) {
            for target in link_targets(line).filter(|target| !folder.join(target).exists()) {
                complaints.push(file.complaint(number, format!("the link to `{target}` leads nowhere")));
            }
        }
    }
    complaints
}

/// Dependencies that would let protocol logic touch sockets, clocks or tasks.
pub(super) fn impure_dependencies(workspace: &Workspace) -> Vec<Complaint> {
    let arguments =
        ["tree", "--package", PURE, "--edges", "normal,build", "--prefix", "none", "--all-features"];
    let complain =
        |message: String| vec![Complaint { path: format!("crates/{PURE}/Cargo.toml"), line: 0, message }];
    match process::output(workspace.cargo_command().args(arguments)) {
        Ok(tree) => impure(&tree)
            .map(|name| format!("depends on `{name}`, and {PURE} must stay free of input and output"))
            .flat_map(complain)
            .collect(),
        Err(failure) => complain(failure.to_string()),
    }
}

fn impure(tree: &str) -> impl Iterator<Item = &'static str> {
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    IMPURE.into_iter().filter(move |impure| names.contains(impure))
}

fn outside_code_blocks(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    file.lines().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The files that a line of Markdown links to; addresses, anchors and Rust items are none.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split([')', ' ', '#']).next().unwrap_or_default();
        let is_file = !target.is_empty() && !target.contains(':');
        is_file.then_some(target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_are_found() {
        let text = "\
            [here](tidy.rs#L1) [web](https://example.org) [anchor](#top) [item](crate::tidy)\n\
            | feature | [gone](tests/gone.rs) |\n\
            ```\n[code](tests/gone.rs)\n```\n";
        let files = [File::new("README.md", text)];
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let complaints = broken_links(&files, &root);
        assert_eq!(complaints, [files[0].complaint(2, "the link to `tests/gone.rs` leads nowhere")]);
    }

    #[test]
    fn impure_crates_are_found_by_their_whole_name() {
        let tree = "switchboard-wire v0.1.0\nbytes v1.11.0\ntokio-free v1.0.0\n";
        assert_eq!(impure(tree).count(), 0);
        assert_eq!(impure("bytes v1.11.0\ntokio v1.48.0 (*)\n").collect::<Vec<_>>(), ["tokio"]);
    }
}
