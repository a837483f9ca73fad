//! The files speak of the product alone, not of the machine or the day on which they were written.

use super::{Complaint, File};

/// Parts of paths that exist on one machine only. Checked where a path begins.
const MACHINE_PATHS: [&str; 5] = ["/home/", "/root/", "/tmp/scratch", "/tmp/wt", "/work/"];

/// Talk of how the work went.
const PHRASES: [&str; 4] = ["next session", "previous session", "session cut", "subagent"];

/// Lines with such a path or phrase.
pub(super) fn banned_words(file: &File) -> Vec<Complaint> {
    if file.is_tidy_itself() {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (number, line) in file.lines() {
        let lower = line.to_lowercase();
        let paths = MACHINE_PATHS.iter().filter(|path| begins_path(&lower, path));
        for found in paths.chain(PHRASES.iter().filter(|phrase| lower.contains(**phrase))) {
            complaints.push(file.complaint(number, format!("`{found}` is not about the product")));
        }
    }
    complaints
}

/// Whether the line has `path` other than as a later part of a longer path or address.
fn begins_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before
            .is_some_and(|last| last.is_alphanumeric() || matches!(last, '.' | '_' | '-' | '}' | ')' | '~'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_machine_are_found_where_they_begin() {
        let found = |text: &str| banned_words(&File::new("a.md", text)).len();
        assert_eq!(found("see `/home/someone/notes`\nfile:///root/x\n(/work/y)\n"), 3);
        assert_eq!(found("$HOME/work/x\nhttps://example.org/root/page\nwork/home\n"), 0);
        assert_eq!(found("Next session: more\n"), 1);
    }
}
