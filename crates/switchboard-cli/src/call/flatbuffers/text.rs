//! JSON text with a size limit: a message is written directly, without an intermediate form.

use serde_json::Value as Json;
use switchboard_wire::flatbuffers::Malformed;

/// An unfinished text.
#[derive(Debug)]
pub(super) struct Text {
    out: String,
    bytes_max: usize,
    /// Items that were omitted.
    skipped: usize,
    /// On one line, without spaces.
    compact: bool,
    /// Number of open objects and lists.
    depth: usize,
    /// The innermost object or list is empty.
    empty: bool,
}

impl Text {
    /// Creates a text of at most `bytes_max` bytes; the value that exceeds the limit is still written.
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

    /// Ends an object or list.
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
    /// The text exceeds its limit.
    pub(super) fn item(&mut self) -> Result<(), Malformed> {
        self.next()?;
        self.line();
        Ok(())
    }

    /// Begins an item on the same line.
    ///
    /// # Errors
    /// The text exceeds its limit.
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
    /// The text exceeds its limit.
    pub(super) fn field(&mut self, name: &str) -> Result<(), Malformed> {
        self.item()?;
        self.quoted(name);
        self.out.push_str(if self.compact { ":" } else { ": " });
        Ok(())
    }

    /// Writes a string.
    pub(super) fn quoted(&mut self, text: &str) {
        self.out += &Json::from(text).to_string();
    }

    /// Writes a number, true or false.
    pub(super) fn plain(&mut self, value: impl std::fmt::Display) {
        self.out += &value.to_string();
    }

    /// Omits an item, which counts as a byte: offsets may lead to the same item many times.
    ///
    /// # Errors
    /// The text exceeds its limit.
    pub(super) fn skip(&mut self) -> Result<(), Malformed> {
        self.skipped += 1;
        self.check()
    }

    fn check(&self) -> Result<(), Malformed> {
        match self.out.len() + self.skipped > self.bytes_max {
            true => Err(Malformed::new(format!("as JSON it would exceed {} bytes", self.bytes_max))),
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
