//! Rules about the pages of the documentation: the index of the book, and tables.

use super::{Complaint, File};
use crate::changelog;

/// The index of the book, and the folder of its pages.
const SUMMARY: &str = "docs/SUMMARY.md";
const PAGES: &str = "docs/";

/// Pages that the index of the book does not list, or lists with another title than their own.
pub(super) fn unlisted_pages(files: &[File]) -> Vec<Complaint> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else { return Vec::new() };
    let pages = files.iter().filter(|file| file.path.ends_with(".md") && file.path != SUMMARY);
    let mut complaints = Vec::new();
    for page in pages {
        let Some(name) = page.path.strip_prefix(PAGES) else { continue };
        let title = page.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
        let entry = format!("[{title}]({name})");
        if !summary.text.contains(&entry) {
            complaints.push(page.complaint(1, format!("{SUMMARY} has no entry `{entry}`")));
        }
    }
    complaints
}

/// Items at the root of the crate `switchboard` that the page with their review does not name.
pub(super) fn unreviewed_items(files: &[File]) -> Vec<Complaint> {
    let file = |path: &str| files.iter().find(|file| file.path == path);
    let (Some(library), Some(page)) = (file("crates/switchboard/src/lib.rs"), file("docs/api-review.md"))
    else {
        return Vec::new();
    };
    // A table has the names between backticks, several of them in one cell.
    let named: Vec<&str> = page.text.split('`').skip(1).step_by(2).collect();
    let mut complaints = Vec::new();
    let public = library.text.split("pub mod codegen").next().unwrap_or_default();
    for statement in public.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let names = statement.rsplit("::").next().unwrap_or_default();
        let names = names.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        for name in names.filter(|name| !name.is_empty() && *name != "web" && !named.contains(name)) {
            complaints
                .push(page.complaint(1, format!("`{name}` is exported by `switchboard` and not named here")));
        }
    }
    complaints
}

/// Fragments of the changelog with a name or a text that cannot be joined.
pub(super) fn broken_fragments(file: &File) -> Vec<Complaint> {
    let name = file.path.strip_prefix(changelog::FOLDER).and_then(|path| path.strip_prefix('/'));
    match name.filter(|name| *name != changelog::DESCRIPTION) {
        Some(name) => {
            changelog::check(name, &file.text).err().map(|why| file.complaint(0, why)).into_iter().collect()
        }
        None => Vec::new(),
    }
}

/// Rows of tables that have more or fewer cells than the heading, and rows without a heading.
pub(super) fn broken_tables(file: &File) -> Vec<Complaint> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut cells_of_heading = None;
    let mut is_code = false;
    for (number, line) in file.lines() {
        let line = line.trim();
        is_code ^= line.starts_with("```");
        if is_code || !line.starts_with('|') {
            cells_of_heading = None;
            continue;
        }
        let cells = cells(line);
        match cells_of_heading {
            None => cells_of_heading = Some((cells, number)),
            Some((_, heading)) if number == heading + 1 && !is_rule(line) => {
                complaints.push(file.complaint(heading, "the table has no line of dashes below its heading"));
            }
            Some((expected, _)) if cells != expected => {
                let message = format!("the row has {cells} cells, and the heading of its table {expected}");
                complaints.push(file.complaint(number, message));
            }
            Some(_) => {}
        }
    }
    complaints
}

/// Cells of a row; a bar behind a backslash is text.
fn cells(line: &str) -> usize {
    let bars = line.matches('|').count() - line.matches("\\|").count();
    bars.saturating_sub(1)
}

fn is_rule(line: &str) -> bool {
    line.chars().all(|character| "|-: ".contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_listed_with_its_title() {
        let files = [
            File::new(SUMMARY, "# Summary\n\n- [Call](call.md)\n- [A wire](wires/a.md)\n"),
            File::new("README.md", "# Front page\n"),
            File::new("docs/call.md", "# Call\n"),
            File::new("docs/wires/a.md", "# The wire\n"),
        ];
        let complaints = unlisted_pages(&files);
        assert_eq!(
            complaints,
            [files[3].complaint(1, "docs/SUMMARY.md has no entry `[The wire](wires/a.md)`")]
        );
    }

    #[test]
    fn exported_items_are_reviewed() {
        let library = "pub use a::{First, Second};\n#[doc(inline)]\npub use b::Third;\npub mod codegen {\n    pub use c::D;\n}\n";
        let page = "| `First`, `Third` | for |\n";
        let files =
            [File::new("crates/switchboard/src/lib.rs", library), File::new("docs/api-review.md", page)];
        let expected = files[1].complaint(1, "`Second` is exported by `switchboard` and not named here");
        assert_eq!(unreviewed_items(&files), [expected]);
    }

    #[test]
    fn fragments_of_the_changelog_can_be_joined() {
        let found = |path: &str, text: &str| broken_fragments(&File::new(path, text)).len();
        assert_eq!(found("changelog/added-a.md", "- One.\n"), 0);
        assert_eq!(found("changelog/README.md", "# Fragments\n"), 0);
        assert_eq!(found("docs/added-a.md", "One.\n"), 0);
        assert_eq!(found("changelog/a.md", "- One.\n"), 1);
        assert_eq!(found("changelog/added-a.md", "One.\n"), 1);
    }

    #[test]
    fn rows_have_as_many_cells_as_their_heading() {
        let good = File::new("docs/a.md", "| a | b |\n| --- | --- |\n| `x \\| y` | 2 |\n\n```\n| c\n```\n");
        assert_eq!(broken_tables(&good), []);
        let bad = File::new("docs/a.md", "| a | b |\n| --- | --- |\n| 1 |\n\n| 1 | 2 |\n| 3 | 4 |\n");
        let lines: Vec<usize> = broken_tables(&bad).iter().map(|complaint| complaint.line).collect();
        assert_eq!(lines, [3, 5]);
    }
}
