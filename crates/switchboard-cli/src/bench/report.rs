//! Results for people: an aligned table, and the formats of its numbers.

use super::record::{CHAINED, Record, Side};
use crate::terminal::{Style, Terminal};
use std::fmt::Write;

/// A table whose first row is the heading; used for text and for the page.
pub(super) type Rows = Vec<Vec<String>>;

/// The report on standard output.
pub(super) fn render(records: &[Record], terminal: Terminal) -> String {
    let mut text = String::new();
    if let Some(record) = records.first() {
        let machine = &record.machine;
        let head = format!(
            "{}: {}, {} cores, Linux {}, switchboard {}",
            record.name, machine.cpu, machine.cores, machine.kernel, machine.version
        );
        text += &terminal.paragraph(Style::Plain, &head);
        text.push('\n');
    }
    text += &align(&rows(records), terminal);
    for (label, side, error) in errors(records) {
        text.push('\n');
        text += &terminal.paragraph(Style::Failure, &format!("{label}, {side}: {error}"));
    }
    text
}

/// The numbers of all runs, a row for each subject of each.
pub(super) fn rows(records: &[Record]) -> Rows {
    let floor = records.iter().any(|record| record.floor.is_some());
    let memory = records.iter().any(|record| record.ours.bytes_per_connection.is_some());
    // Memory of the server grows with the payload; with small payloads it is not meaningful.
    let rss = records.iter().any(|record| record.bytes >= 1_000_000 && record.ours.server_rss_end.is_some());
    let large = records.iter().any(|record| record.bytes >= 10_000);
    let missed = records.iter().any(|record| record.rate.is_some());
    let mut head = vec!["run", "subject", "requests/s"];
    if large {
        head.push("MB/s");
    }
    head.extend(["mean", "p50", "p90", "p99", "p99.9", "max", "errors"]);
    if missed {
        head.push("missed");
    }
    if memory {
        head.push("bytes/connection");
    }
    if rss {
        head.extend(["RSS after 10", "RSS at end"]);
    }
    if floor {
        head.push("of floor");
    }
    let chain = records.iter().any(|record| record.chain.is_some());
    if chain {
        head.push("of no chain");
    }
    let native = records.iter().any(|record| record.native.is_some());
    if native {
        head.push("of native");
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
    for record in records {
        for (name, side) in record.sides() {
            let mut row = vec![record.label.clone(), name.to_owned(), thousands(side.requests_per_s)];
            if large {
                row.push(format!("{:.1}", side.mb_per_s));
            }
            row.extend(latencies(side).map(duration));
            row.push(side.errors.to_string());
            if missed {
                row.push(side.missed.to_string());
            }
            if memory {
                row.push(side.bytes_per_connection.map_or("?".to_owned(), thousands));
            }
            if rss {
                let size = |bytes: Option<u64>| {
                    bytes.map_or("?".to_owned(), |bytes| format!("{:.1} MB", bytes as f64 / 1e6))
                };
                row.extend([side.server_rss_after_10, side.server_rss_end].map(size));
            }
            if floor {
                row.push(record.floor_ratio.filter(|_| name == "switchboard").map_or(String::new(), ratio));
            }
            if chain {
                row.push(record.chain_ratio.filter(|_| name == CHAINED).map_or(String::new(), ratio));
            }
            if native {
                row.push(record.native_ratio.filter(|_| name == "switchboard").map_or(String::new(), ratio));
            }
            rows.push(row);
        }
    }
    rows
}

/// Returns the errors: the run, the subject, their number and the first text.
pub(super) fn errors(records: &[Record]) -> Vec<(&str, &'static str, String)> {
    records
        .iter()
        .flat_map(|record| record.sides().map(move |(name, side)| (record.label.as_str(), name, side)))
        .filter_map(|(label, name, side)| {
            let error = side.first_error.as_ref()?;
            Some((label, name, format!("{} errors, the first: {error}", side.errors)))
        })
        .collect()
}

fn latencies(side: &Side) -> [f64; 6] {
    [side.mean_us, side.p50_us, side.p90_us, side.p99_us, side.p999_us, side.max_us]
}

/// Formats microseconds with a unit that leaves three digits.
pub fn duration(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 999_500.0 => (us / 1e6, "s"),
        us if us >= 999.5 => (us / 1e3, "ms"),
        _ => (us, "us"),
    };
    let digits = if value >= 99.95 { 0 } else { 1 + usize::from(value < 9.995) };
    format!("{value:.digits$} {unit}")
}

/// Formats a number with separated thousands.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A ratio to the floor.
pub fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// Number of columns of a table that label a row.
const LABELS: usize = 2;

/// Space between two columns.
const GAP: usize = 2;

/// Aligns words to the left and numbers to the right; the heading is bold, and numbers of errors are red.
///
/// A table that is wider than the terminal is written in parts below each other, each with the labels of all rows.
pub fn align(rows: &Rows, terminal: Terminal) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    let parts = parts(&widths, terminal.columns());
    parts.iter().map(|part| align_part(rows, &widths, part, terminal)).collect::<Vec<_>>().join("\n")
}

/// Which columns each part of a table has, labels included.
fn parts(widths: &[usize], columns: Option<usize>) -> Vec<Vec<usize>> {
    let labels = || (0..widths.len().min(LABELS)).collect::<Vec<_>>();
    let width = |part: &[usize]| part.iter().map(|&column| widths[column] + GAP).sum::<usize>();
    let mut parts = vec![labels()];
    for (column, own) in widths.iter().enumerate().skip(LABELS) {
        let part = parts.last_mut().expect("there is a part from the start on");
        if part.len() > LABELS && columns.is_some_and(|columns| width(part) + own > columns) {
            parts.push(labels());
        }
        parts.last_mut().expect("there is a part from the start on").push(column);
    }
    parts
}

fn align_part(rows: &Rows, widths: &[usize], part: &[usize], terminal: Terminal) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for &column in part {
            let (cell, width) = (&row[column], widths[column]);
            let padded = if column < LABELS { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            let is_failure = at > 0 && rows[0][column] == "errors" && cell != "0";
            let style = if is_failure { Style::Failure } else { Style::Plain };
            let gap = if line.is_empty() { 0 } else { GAP };
            let _ = write!(line, "{:gap$}{}", "", terminal.paint(style, &padded));
        }
        let style = if at == 0 { Style::Heading } else { Style::Plain };
        text += &terminal.paint(style, line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::example;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [0.0, 1.234, 12.34, 99.96, 123.4, 999.6, 12_345.0, 1.5e6].map(duration),
            ["0.00 us", "1.23 us", "12.3 us", "100 us", "123 us", "1.00 ms", "12.3 ms", "1.50 s"]
        );
        assert_eq!(
            [0.0, 999.4, 1000.0, 3_312_345.6, -1234.0].map(thousands),
            ["0", "999", "1 000", "3 312 346", "-1 234"]
        );
    }

    #[test]
    fn the_table_is_aligned() {
        let text = align(&rows(&[example(true)]), Terminal::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].ends_with("errors  of floor"), "{text}");
        assert!(lines[1].starts_with("100 callers, 1 kB  switchboard       1 000  "), "{text}");
        assert!(lines[1].ends_with("0.50"), "{text}");
        assert!(lines[2].starts_with("100 callers, 1 kB  floor             2 000  "), "{text}");
    }

    #[test]
    fn a_table_that_is_too_wide_is_written_in_parts() {
        assert_eq!(parts(&[4, 4, 5, 6, 7], None), [[0, 1, 2, 3, 4]]);
        // 4 + 4 + 5 + 6 and three gaps of 2.
        assert_eq!(parts(&[4, 4, 5, 6, 7], Some(25)), [[0, 1, 2, 3].as_slice(), &[0, 1, 4]]);
        assert_eq!(parts(&[4, 4, 5, 6, 7], Some(24)), [[0, 1, 2], [0, 1, 3], [0, 1, 4]]);
        assert_eq!(parts(&[4, 4, 5], Some(3)), [[0, 1, 2]]);
        assert_eq!(parts(&[], Some(3)), [Vec::<usize>::new()]);
    }

    #[test]
    fn the_first_error_is_shown() {
        let mut record = example(false);
        record.ours.errors = 3;
        record.ours.first_error = Some("refused".to_owned());
        let text = render(&[record], Terminal::PLAIN);
        assert!(text.ends_with("\n100 callers, 1 kB, switchboard: 3 errors, the first: refused\n"), "{text}");
    }
}
