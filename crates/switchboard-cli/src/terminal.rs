//! How text for people is laid out: within the width of the terminal and with colours, or as it is for files and pipes.

use rustix::termios::tcgetwinsize;
use std::{
    borrow::Cow,
    env,
    ffi::OsStr,
    io::{self, IsTerminal},
    os::fd::AsFd,
};

/// The layout that one output takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terminal {
    /// Columns of the terminal; none for files and pipes, whose lines are not broken.
    columns: Option<usize>,
    has_colours: bool,
}

/// How a piece of text looks where there are colours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Style {
    /// Red.
    Failure,
    /// Bold.
    Heading,
    Plain,
}

/// Columns of a terminal that does not report its size.
const COLUMNS: usize = 80;

/// Indent of the second line of a broken paragraph, and of all after it.
const INDENT: &str = "  ";

impl Terminal {
    /// No terminal: no line is broken, and nothing is coloured.
    pub const PLAIN: Self = Self { columns: None, has_colours: false };

    pub fn stdout() -> Self {
        Self::of(&io::stdout())
    }

    pub fn stderr() -> Self {
        Self::of(&io::stderr())
    }

    fn of(output: &(impl AsFd + IsTerminal)) -> Self {
        if !output.is_terminal() {
            return Self::PLAIN;
        }
        let columns = tcgetwinsize(output).map_or(0, |size| size.ws_col);
        Self::decide(columns, env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref())
    }

    /// The layout of a terminal that reports `columns`, with these environment variables. 0 columns mean that it does
    /// not report its size; an empty `NO_COLOR` is no request.
    fn decide(columns: u16, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Self {
        let columns = if columns == 0 { COLUMNS } else { columns.into() };
        let is_refused = no_color.is_some_and(|value| !value.is_empty());
        Self { columns: Some(columns), has_colours: !is_refused && term != Some(OsStr::new("dumb")) }
    }

    /// Columns to break lines at; none where lines are not broken.
    pub fn columns(self) -> Option<usize> {
        self.columns
    }

    /// Adds the colour of `style` to `text`, which has no line feed.
    pub fn paint<'a>(self, style: Style, text: &'a str) -> Cow<'a, str> {
        let code = match style {
            Style::Failure => 31,
            Style::Heading => 1,
            Style::Plain => return text.into(),
        };
        if self.has_colours { format!("\x1b[{code}m{text}\x1b[0m").into() } else { text.into() }
    }

    /// Breaks `text` between words and adds the colour of `style`; each line ends with a line feed. A word that is
    /// wider than the terminal has a line of its own.
    pub fn paragraph(self, style: Style, text: &str) -> String {
        let mut lines = Vec::<String>::new();
        for word in text.split(' ') {
            let fits = |line: &str| {
                let width = line.chars().count() + 1 + word.chars().count();
                self.columns.is_none_or(|columns| width <= columns)
            };
            match lines.last_mut() {
                None => lines.push(word.to_owned()),
                Some(line) if fits(line) => *line += &format!(" {word}"),
                Some(_) => lines.push(format!("{INDENT}{word}")),
            }
        }
        lines.iter().map(|line| format!("{}\n", self.paint(style, line))).collect()
    }

    /// Shortens `text` so that it stays on one line of the terminal, with a column left for the cursor.
    pub fn clip(self, text: &str) -> &str {
        let end = self.columns.and_then(|columns| text.char_indices().nth(columns.saturating_sub(1)));
        end.map_or(text, |(end, _)| &text[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn wide(columns: usize) -> Terminal {
        Terminal { columns: Some(columns), has_colours: false }
    }

    #[test]
    fn a_terminal_has_its_width_and_colours_unless_refused() {
        let decide = |columns, no_color: Option<&str>, term: Option<&str>| {
            Terminal::decide(columns, no_color.map(OsStr::new), term.map(OsStr::new))
        };
        let colourful = |columns| Terminal { columns: Some(columns), has_colours: true };
        assert_eq!(decide(132, None, Some("xterm")), colourful(132));
        assert_eq!(decide(40, None, None), colourful(40));
        assert_eq!(decide(0, Some(""), None), colourful(80));
        assert_eq!(decide(132, Some("1"), Some("xterm")), wide(132));
        assert_eq!(decide(132, None, Some("dumb")), wide(132));
    }

    #[test]
    fn files_are_no_terminals() {
        let file = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        assert_eq!(Terminal::of(&file), Terminal::PLAIN);
    }

    #[test]
    fn only_styled_text_is_coloured() {
        let terminal = Terminal { columns: None, has_colours: true };
        assert_eq!(terminal.paint(Style::Failure, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(terminal.paint(Style::Heading, "x"), "\x1b[1mx\x1b[0m");
        assert_eq!(terminal.paint(Style::Plain, "x"), "x");
        assert_eq!(Terminal::PLAIN.paint(Style::Failure, "x"), "x");
    }

    #[test]
    fn paragraphs_are_broken_between_words_on_terminals_alone() {
        let text = "one two  three four";
        assert_eq!(Terminal::PLAIN.paragraph(Style::Failure, text), "one two  three four\n");
        assert_eq!(wide(19).paragraph(Style::Plain, text), "one two  three four\n");
        assert_eq!(wide(10).paragraph(Style::Plain, "one two three four"), "one two\n  three\n  four\n");
        assert_eq!(wide(3).paragraph(Style::Plain, "a longest"), "a\n  longest\n");
        let red = Terminal { columns: Some(3), has_colours: true };
        assert_eq!(red.paragraph(Style::Failure, "a bcd"), "\x1b[31ma\x1b[0m\n\x1b[31m  bcd\x1b[0m\n");
    }

    #[test]
    fn lines_that_are_written_over_stay_on_one_line() {
        assert_eq!(wide(5).clip("gr\u{fc}\u{df}en"), "gr\u{fc}\u{df}");
        assert_eq!(wide(8).clip("abc"), "abc");
        assert_eq!(Terminal::PLAIN.clip("abcdef"), "abcdef");
    }
}
