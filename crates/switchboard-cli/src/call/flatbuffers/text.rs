//! JSON as it grows, up to a limit: what is read of a message is never held in another form.

use serde_json::Value as Json;
use switchboard_wire::flatbuffers::Malformed;

/// An unfinished text.
#[derive(Debug)]
pub(super) struct Text {
    out: String,
    bytes_max: usize,
    /// What was looked at and left out.
    skipped: usize,
    /// On one line, without spaces.
    compact: bool,
    /// Objects and lists that are open.
    depth: usize,
    /// Nothing is in the innermost of them.
    empty: bool,
}

impl Text {
    /// One that has so many bytes at most, but for the value in which that is noticed.
    pub(super) fn new(compact: bool, bytes_max: usize) -> Text {
        Text { out: String::new(), bytes_max, skipped: 0, compact, depth: 0, empty: true }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// Begins an object or list.
    pub(super) fn open(&mut self, sign: char) {
        self.out.push(sign);
        self.depth += 1;
        self.empty = true;
    }

    /// Ends it.
    pub(super) fn close(&mut self, sign: char) {
        self.depth -= 1;
        if !self.empty {
            self.line();
        }
        self.out.push(sign);
        self.empty = false;
    }

    /// Begins an item of a list.
    ///
    /// # Errors
    /// There is too much already.
    pub(super) fn item(&mut self) -> Result<(), Malformed> {
        self.next()?;
        self.line();
        Ok(())
    }

    /// Begins an item that goes on the same line.
    ///
    /// # Errors
    /// There is too much already.
    pub(super) fn item_beside(&mut self) -> Result<(), Malformed> {
        let first = self.empty;
        self.next()?;
        if !first && !self.compact {
            self.out.push(' ');
        }
        Ok(())
    }

    /// Ends a list whose items are on the same line.
    pub(super) fn close_beside(&mut self) {
        self.depth -= 1;
        self.out.push(']');
        self.empty = false;
    }

    /// Begins the field of an object.
    ///
    /// # Errors
    /// There is too much already.
    pub(super) fn field(&mut self, name: &str) -> Result<(), Malformed> {
        self.item()?;
        self.quoted(name);
        self.out.push_str(if self.compact { ":" } else { ": " });
        Ok(())
    }

    /// A text within.
    pub(super) fn quoted(&mut self, text: &str) {
        self.out += &Json::from(text).to_string();
    }

    /// A number, true or false.
    pub(super) fn plain(&mut self, value: impl std::fmt::Display) {
        self.out += &value.to_string();
    }

    /// Leaves out an item, which counts as a byte: offsets may lead to the same one over and over again.
    ///
    /// # Errors
    /// There is too much already.
    pub(super) fn skip(&mut self) -> Result<(), Malformed> {
        self.skipped += 1;
        self.check()
    }

    fn check(&self) -> Result<(), Malformed> {
        match self.out.len() + self.skipped > self.bytes_max {
            true => Err(Malformed::new(format!("as JSON it would take over {} bytes", self.bytes_max))),
            false => Ok(()),
        }
    }

    fn next(&mut self) -> Result<(), Malformed> {
        self.check()?;
        if !self.empty {
            self.out.push(',');
        }
        self.empty = false;
        Ok(())
    }

    fn line(&mut self) {
        if !self.compact {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n("  ", self.depth));
        }
    }
}
