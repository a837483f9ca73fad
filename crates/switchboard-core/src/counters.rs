//! Counters of parts of a process, which a server shows beside its own.
//!
//! A [`CounterSource`] is a part that counts: a plugin, the topics of a bus, a socket. The server reads it when a
//! metric or a page is requested, so that a source costs nothing until then. A source may have *lists* as well: long
//! tables, such as topics, that are read one page at a time.

use std::{future::Future, pin::Pin, time::Duration};
use switchboard_wire::Status;

/// Counters of one source that a server shows; further ones are left out.
pub const COUNTERS_MAX: usize = 256;

/// A part of the process that counts.
///
/// ```
/// use switchboard::{Server, counters::{Counter, CounterSource}};
///
/// struct Cache;
///
/// impl CounterSource for Cache {
///     fn kind(&self) -> &'static str {
///         "cache"
///     }
///
///     fn counters(&self) -> Vec<Counter> {
///         vec![Counter::total("misses", "values that were read from the database", 17)]
///     }
/// }
///
/// // As the metric `switchboard_cache_misses_total{source="prices"}`, and on the admin page `/counters`.
/// let server = Server::new().counters("prices", Cache);
/// ```
pub trait CounterSource: Send + Sync + 'static {
    /// Returns the kind of the source, which is a part of the names of its metrics: lower-case letters, digits and `_`,
    /// such as `bus` in `switchboard_bus_topics`.
    fn kind(&self) -> &'static str;

    /// Returns the current values, at most [`COUNTERS_MAX`]. Called for each request for metrics, so that it may not
    /// block.
    fn counters(&self) -> Vec<Counter>;

    /// Returns the names of its lists, each an admin page: `topics` is the page `/topics`. A built-in page takes
    /// precedence.
    fn lists(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns a page of one of its [lists](Self::lists).
    ///
    /// The future fails with `InvalidArgument` for a position or a filter that the list does not know.
    fn list<'a>(&'a self, list: &'a str, _request: ListRequest) -> Listing<'a> {
        Box::pin(async move { Err(Status::not_found(format!("list \"{list}\" does not exist"))) })
    }

    /// Returns an address that identifies the counted thing. A server shows sources with one identity once, such as a
    /// bus that several plugins share. The default is none: the source is shown each time that it was added.
    fn identity(&self) -> Option<usize> {
        None
    }
}

/// A page of a list that is being read.
pub type Listing<'a> = Pin<Box<dyn Future<Output = crate::Result<ListedRows>> + Send + 'a>>;

/// A current value of a source.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counter {
    /// Name: lower-case letters, digits and `_`; bytes are called `…_bytes`.
    pub name: &'static str,
    /// Definition, for the text of metrics.
    pub help: &'static str,
    /// Set if the value never decreases.
    pub is_total: bool,
    /// A label with its value. Both are constants of the program, so that the number of series has a bound.
    pub label: Option<(&'static str, &'static str)>,
    /// The value.
    pub value: u64,
}

impl Counter {
    /// Creates a value that never decreases: a number of events since the start.
    pub fn total(name: &'static str, help: &'static str, value: u64) -> Counter {
        Counter { name, help, is_total: true, label: None, value }
    }

    /// Creates a value that may decrease: a current number.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Counter {
        Counter { name, help, is_total: false, label: None, value }
    }

    /// Sets the label, such as the reason of a refusal.
    #[must_use]
    pub fn label(mut self, name: &'static str, value: &'static str) -> Counter {
        self.label = Some((name, value));
        self
    }
}

/// The page of a list that is requested.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ListRequest {
    /// Where the page begins: [`ListedRows::next`] of the page before it; `None` for the first page.
    pub from: Option<String>,
    /// Restricts the rows; each list defines how.
    pub filter: Option<String>,
    /// Rows of the page.
    pub rows_max: usize,
    /// Period over which rates are measured; the page is complete after it. Zero leaves rates out.
    pub period: Duration,
}

impl ListRequest {
    /// Creates a request for the first page, without a filter and without rates.
    pub fn new(rows_max: usize) -> ListRequest {
        ListRequest { rows_max, ..ListRequest::default() }
    }
}

/// A page of a list.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListedRows {
    /// Names of the columns.
    pub columns: &'static [&'static str],
    /// Rows with one cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}

impl ListedRows {
    /// Creates a page.
    pub fn new(columns: &'static [&'static str], rows: Vec<Vec<Cell>>, next: Option<String>) -> ListedRows {
        ListedRows { columns, rows, next }
    }
}

/// One value in a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cell {
    /// No value.
    None,
    /// A number; the name of the column states its unit.
    Number(f64),
    /// A text.
    Text(String),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Cell {
        Cell::Number(number as f64)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        Cell::Number(number)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::None, Into::into)
    }
}

/// Returns whether a text may be a part of the name of a metric.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}
