//! The words of the files: about the product alone, and those that its readers know.

use super::{Complaint, File};

/// Parts of paths that exist on one machine only. Checked where a path begins.
const MACHINE_PATHS: [&str; 5] = ["/home/", "/root/", "/tmp/scratch", "/tmp/wt", "/work/"];

/// Talk of how the work went.
const PHRASES: [&str; 4] = ["next session", "previous session", "session cut", "subagent"];

/// Words and phrases that no name, comment or document uses, each with its replacement.
const VOCABULARY: &[(&str, &str)] = &[
    ("announce notice", "`registration_notice`"),
    ("announces windows", "`advertises_windows`"),
    ("answers pings", "`responds_to_pings`"),
    ("asked", "`requested`, `queried` or `required`"),
    ("asks", "`requests`, `queries` or `requires`"),
    ("comes to", "`is`, `becomes` or `reaches`"),
    ("cut by", "`aborted_by`"),
    ("cut calls", "`AbortedCalls`"),
    ("cut connections", "`AbortedConnections`"),
    ("deaf", "`read_closed`, or that the peer does not read"),
    ("give back", "`release` or `return`"),
    ("given back", "`release` or `return`"),
    ("gives back", "`releases` or `returns`"),
    ("hand on", "`forward` or `pass`"),
    ("handed on", "`forward` or `pass`"),
    ("hands on", "`forwards` or `passes`"),
    ("hang up", "`close` or `close_read`"),
    ("hangs up", "`closes`"),
    ("hindrance", "`exclusion_reason`"),
    ("memory cut", "`memory_aborted`"),
    ("mistake", "`error` or `config_error`"),
    ("nobody", "the thing that is missing, such as `no caller`"),
    ("push room", "`PushLimits`"),
    ("sign of life", "`keepalive`"),
    ("somebody", "the thing that acts, such as `a caller`"),
    ("stands", "`is`, `means` or `represents`"),
    ("such that", "`so that` or `with`"),
    ("take others", "`accept_undeclared`"),
    ("takes others", "`accepts_undeclared`"),
    ("tell", "`report`, `notify` or `distinguish`"),
    ("tells", "`reports`, `notifies` or `distinguishes`"),
    ("told", "`reported`, `notified` or `known`"),
    ("trouble", "`fault`, `failure` or `error`"),
    ("what is", "the thing itself, such as `the rest`"),
    ("whoever", "the thing that acts, such as `a caller that`"),
];

/// Starts of doc comments that neither define the item nor say what it does.
const STARTS: [&str; 6] = ["Of ", "That of ", "The same ", "Those of ", "What ", "Whether "];
/// Starts of sections of doc comments, such as that of errors, which need the sentences before them to be read.
const SECTION_STARTS: [&str; 1] = ["Those of "];

/// Lines that keep a word of `VOCABULARY`: start of the path, part of the line, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[("crates/", "pushRoom", "a command of im-cloud's devices")];

/// Starts of paths whose words are not checked yet.
const NOT_YET: &[&str] = &[];

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

/// Words of `VOCABULARY`, bad starts of doc comments, and entries of the two lists that cover nothing.
pub(super) fn banned_vocabulary(files: &[File]) -> Vec<Complaint> {
    vocabulary_but(NOT_YET, EXCEPTIONS, files)
}

fn vocabulary_but(not_yet: &[&str], exceptions: &[(&str, &str, &str)], files: &[File]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut covers_some = vec![false; not_yet.len() + exceptions.len()];
    for file in files.iter().filter(|file| has_vocabulary(file)) {
        let lines: Vec<&str> = file.text.lines().collect();
        for complaint in vocabulary(file) {
            let line = complaint.line.checked_sub(1).map_or("", |index| lines[index]);
            let prefix = not_yet.iter().position(|prefix| file.path.starts_with(prefix));
            let exception = exceptions
                .iter()
                .position(|(path, part, _)| file.path.starts_with(path) && line.contains(part));
            match prefix.or(exception.map(|index| not_yet.len() + index)) {
                Some(index) => covers_some[index] = true,
                None => complaints.push(complaint),
            }
        }
    }
    let prefixes = not_yet.iter().map(|path| (*path, "is in NOT_YET but has no complaint".to_owned()));
    let exceptions = exceptions.iter().map(|(path, part, _)| {
        let message = format!("the exception for `{part}` is not needed: remove it from EXCEPTIONS");
        (*path, message)
    });
    for (_, (path, message)) in
        covers_some.iter().zip(prefixes.chain(exceptions)).filter(|(covers, _)| !**covers)
    {
        complaints.push(Complaint { path: path.to_owned(), line: 0, message });
    }
    complaints
}

/// Sources, documents and schemas, and the output of the command line as its tests expect it.
fn has_vocabulary(file: &File) -> bool {
    const EXPECTED_OUTPUT: &str = "crates/switchboard-cli/tests/cli/";
    let is_checked = [".md", ".proto", ".rs"].iter().any(|end| file.path.ends_with(end));
    !file.is_tidy_itself() && (is_checked || file.path.starts_with(EXPECTED_OUTPUT))
}

/// Complaints about the path and the text of one file, whatever the lists let pass.
fn vocabulary(file: &File) -> Vec<Complaint> {
    let of_path = banned_phrases(&file.path).into_iter().map(|(_, message)| (0, message));
    let found = of_path.chain(banned_phrases(&file.text)).chain(banned_starts(file));
    found.map(|(line, message)| file.complaint(line, message)).collect()
}

fn banned_phrases(text: &str) -> Vec<(usize, String)> {
    let words = words(text);
    let found = words.iter().enumerate().filter_map(|(start, word)| {
        let (phrase, instead) = VOCABULARY.iter().find(|(phrase, _)| begins_with(&words[start..], phrase))?;
        Some((word.line, format!("`{phrase}`: write {instead}")))
    });
    found.collect()
}

/// A word of prose, or of an identifier.
struct Word {
    lower: String,
    line: usize,
    /// Only a space, a line break in a comment or a joint of an identifier is between it and the word before.
    follows: bool,
}

/// Splits at all but letters, and at changes of case: `ToldAt`, `told_at` and `TOLD_AT` are `told`, `at`.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut line = 1;
    let mut gap = String::new();
    let mut previous = ' ';
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or(' ');
        let is_escape = previous == '\\' && matches!(character, 'n' | 'r' | 't');
        if character.is_alphabetic() && !is_escape {
            let is_start = !previous.is_alphabetic()
                || !gap.is_empty()
                || character.is_uppercase() && (previous.is_lowercase() || next.is_lowercase());
            if is_start {
                words.push(Word { lower: String::new(), line, follows: joins(&gap) });
                gap.clear();
            }
            if let Some(word) = words.last_mut() {
                word.lower.extend(character.to_lowercase());
            }
        } else {
            gap.push(character);
            line += usize::from(character == '\n');
        }
        previous = character;
    }
    words
}

/// Returns whether text between two words leaves them in one phrase.
fn joins(gap: &str) -> bool {
    let is_wrapped = gap.matches('\n').count() == 1
        && gap.chars().all(|character| character.is_whitespace() || "/!*>\\".contains(character));
    matches!(gap, "" | "_" | "-") || gap.chars().all(|character| character == ' ') || is_wrapped
}

fn begins_with(words: &[Word], phrase: &str) -> bool {
    phrase.split(' ').enumerate().all(|(index, expected)| {
        words.get(index).is_some_and(|word| word.lower == expected && (index == 0 || word.follows))
    })
}

/// Returns a message for the start that a text has.
fn starts_with(starts: &[&str], text: &str) -> Option<String> {
    let start = starts.iter().find(|start| text.starts_with(**start))?.trim_end();
    Some(format!("begins with `{start}`: begin with a verb or with what the item is"))
}

/// First lines of doc comments and of their sections, or of comments in schemas, which generators make doc comments of.
fn banned_starts(file: &File) -> Vec<(usize, String)> {
    let markers: &[&str] = match file.path.rsplit('.').next() {
        Some("rs") => &["///", "//!"],
        Some("proto") => &["//"],
        _ => &[],
    };
    let mut found = Vec::new();
    let mut before = "";
    for (number, line) in file.lines() {
        let line = line.trim_start();
        for marker in markers.iter().filter(|marker| !before.starts_with(**marker)) {
            let text = line.strip_prefix(marker).map_or("", str::trim_start);
            found.extend(starts_with(&STARTS, text).map(|message| (number, message)));
        }
        for marker in markers {
            let is_section =
                before.strip_prefix(marker).is_some_and(|text| text.trim_start().starts_with("# "));
            let text = line.strip_prefix(marker).filter(|_| is_section).map_or("", str::trim_start);
            found.extend(starts_with(&SECTION_STARTS, text).map(|message| (number, message)));
        }
        before = line;
    }
    found
}

/// Returns whether the line has `path` other than as a later part of a longer path or address.
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

    /// Lines of the complaints about a file.
    fn lines(path: &str, text: &str) -> Vec<usize> {
        let complaints = vocabulary_but(&[], &[], &[File::new(path, text)]);
        complaints.iter().map(|complaint| complaint.line).collect()
    }

    #[test]
    fn paths_of_a_machine_are_found_where_they_begin() {
        let found = |text: &str| banned_words(&File::new("a.md", text)).len();
        assert_eq!(found("see `/home/someone/notes`\nfile:///root/x\n(/work/y)\n"), 3);
        assert_eq!(found("$HOME/work/x\nhttps://example.org/root/page\nwork/home\n"), 0);
        assert_eq!(found("Next session: more\n"), 1);
    }

    #[test]
    fn words_are_found_in_comments_strings_and_identifiers() {
        for bad in [
            "// Nobody reads it.",
            "const TEXT: &str = \"\\nasked twice\";",
            "let limits_told = 1;",
            "struct LimitsTold;",
            "struct HTTPTroubles3Told;",
            "const TOLD_AT: u32 = 1;",
            "told2();",
        ] {
            assert_eq!(lines("a.rs", bad), [1], "{bad}");
        }
        for good in ["// Mistaken: folders, asking, standstill.", "let untold = 1;", "struct Tellurium;"] {
            assert_eq!(lines("a.rs", good), [0_usize; 0], "{good}");
        }
    }

    #[test]
    fn phrases_are_found_across_the_joints_of_names_and_the_ends_of_lines() {
        for bad in ["hang up", "hang_up", "HangUp", "--hang-up", "hang\n    /// up", "\"hang \\\n    up\""] {
            assert_eq!(lines("a.rs", bad), [1], "{bad}");
        }
        for good in ["hang, up", "hang\n\nup", "hang => up", "[\"hang\", \"up\"]", "hangup"] {
            assert_eq!(lines("a.rs", good), [0_usize; 0], "{good}");
        }
    }

    #[test]
    fn doc_comments_start_with_the_item() {
        for (path, text) in [
            ("a.rs", "/// What a caller sends.\n/// What else.\n"),
            ("a.rs", "//! The same for servers.\n"),
            ("a.rs", "    /// Of the last call.\n"),
            ("a.rs", "/// That of a peer.\n"),
            ("a.rs", "/// Those of a peer.\n"),
            ("a.rs", "/// Whether it waits.\n"),
            ("a.proto", "// What a caller sends.\n"),
        ] {
            assert_eq!(lines(path, text), [1], "{text}");
        }
        assert_eq!(lines("a.rs", "/// Reads.\n///\n/// # Errors\n/// Those of `send`.\n"), [4]);
        assert!(lines("a.rs", "/// Reads\n/// Those of it.\n").is_empty());
        assert!(lines("a.rs", "/// Reads\n/// What follows.\n// What\n/// Office.\n").is_empty());
        assert!(lines("a.md", "// What\n").is_empty());
    }

    #[test]
    fn complaints_have_the_line_and_the_replacement() {
        let files = [File::new("docs/told.md", "a\nb deaf c\n"), File::new("a.py", "nobody")];
        let complaints: Vec<String> =
            vocabulary_but(&[], &[], &files).iter().map(Complaint::to_string).collect();
        assert_eq!(
            complaints,
            [
                "docs/told.md: `told`: write `reported`, `notified` or `known`",
                "docs/told.md:2: `deaf`: write `read_closed`, or that the peer does not read",
            ]
        );
        let output = File::new("crates/switchboard-cli/tests/cli/help.txt", "nobody");
        assert_eq!(vocabulary_but(&[], &[], &[output]).len(), 1);
    }

    #[test]
    fn prefixes_and_exceptions_cover_complaints_or_are_complaints() {
        let files = [
            File::new("late/a.rs", "// nobody\n"),
            File::new("b.rs", "read_deaf();\nread_deaf(); asks();\n"),
        ];
        let not_yet = ["late/"];
        let exceptions = [("b.rs", "read_deaf", "the name that the library gives it")];
        assert!(vocabulary_but(&not_yet, &exceptions, &files).is_empty());
        assert_eq!(vocabulary_but(&[], &exceptions, &files).len(), 1);
        assert_eq!(vocabulary_but(&not_yet, &[], &files).len(), 3);

        let complaints = vocabulary_but(&["late/", "clean/"], &[exceptions[0], ("b.rs", "gone", "")], &files);
        let complaints: Vec<String> = complaints.iter().map(Complaint::to_string).collect();
        assert_eq!(
            complaints,
            [
                "clean/: is in NOT_YET but has no complaint",
                "b.rs: the exception for `gone` is not needed: remove it from EXCEPTIONS",
            ]
        );
    }
}
