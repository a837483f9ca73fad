//! A page of the admin listener: tables with a name, shown as text, JSON or HTML.

use serde_json::{Map, Value};
use std::fmt::Write as _;
pub use switchboard_core::counters::Cell;

/// Content of a page, which is rendered as text for terminals, JSON for programs or HTML for browsers.
#[derive(Clone, Debug, Default)]
pub struct Page {
    title: String,
    tables: Vec<Table>,
    notes: Vec<String>,
}

/// Rows under named columns.
#[derive(Clone, Debug)]
pub struct Table {
    name: String,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// Format of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Html,
    Json,
    Text,
}

impl Page {
    /// Creates an empty page.
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), ..Page::default() }
    }

    /// Adds a table.
    #[must_use]
    pub fn table(mut self, table: Table) -> Page {
        self.tables.push(table);
        self
    }

    /// Adds a sentence.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Page {
        self.notes.push(note.into());
        self
    }

    pub(super) fn render(&self, form: Form) -> String {
        match form {
            Form::Html => self.html(),
            Form::Json => self.json(),
            Form::Text => self.text(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for note in &self.notes {
            text.extend(["\n", note, "\n"]);
        }
        for table in &self.tables {
            text.extend(["\n", &table.name, "\n"]);
            table.text(&mut text);
        }
        text
    }

    fn json(&self) -> String {
        let mut page = Map::new();
        page.insert("title".into(), self.title.clone().into());
        if !self.notes.is_empty() {
            page.insert("notes".into(), self.notes.clone().into());
        }
        for table in &self.tables {
            page.insert(table.name.clone(), table.json());
        }
        let mut text = serde_json::to_string_pretty(&Value::Object(page)).expect("values are JSON");
        text.push('\n');
        text
    }

    fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <link rel=\"stylesheet\" href=\"/style.css\"><nav><a href=\"/\">switchboard</a></nav><h1>{title}</h1>\n"
        );
        for note in &self.notes {
            // Writing to a string never fails, here and below.
            let _ = writeln!(html, "<p>{}</p>", escaped(note));
        }
        for table in &self.tables {
            table.html(&mut html);
        }
        html
    }
}

impl Table {
    /// Creates a table without rows.
    pub fn new<const N: usize>(name: impl Into<String>, columns: [&str; N]) -> Table {
        Table { name: name.into(), columns: columns.map(str::to_owned).into(), rows: Vec::new() }
    }

    /// Creates a table of names and values, rendered as one object in JSON.
    pub fn facts(name: impl Into<String>) -> Table {
        Table { name: name.into(), columns: Vec::new(), rows: Vec::new() }
    }

    /// Adds a row with one cell for each column.
    pub fn push<const N: usize>(&mut self, row: [Cell; N]) {
        self.rows.push(row.into());
    }

    /// Adds a name and its value to a table of facts.
    #[must_use]
    pub fn fact(mut self, name: impl Into<String>, value: impl Into<Cell>) -> Table {
        self.rows.push(vec![Cell::Text(name.into()), value.into()]);
        self
    }

    /// Creates a table from rows with one cell for each column.
    pub(super) fn listed(name: &str, columns: &[&str], rows: Vec<Vec<Cell>>) -> Table {
        Table {
            name: name.to_owned(),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            rows,
        }
    }

    fn is_facts(&self) -> bool {
        self.columns.is_empty()
    }

    fn text(&self, text: &mut String) {
        let mut lines: Vec<Vec<String>> = Vec::with_capacity(self.rows.len() + 1);
        if !self.is_facts() {
            lines.push(self.columns.clone());
        }
        lines.extend(self.rows.iter().map(|row| row.iter().map(text_of).collect()));
        let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<_> = (0..columns)
            .map(|at| {
                lines
                    .iter()
                    .filter_map(|line| line.get(at))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let is_number = |at: usize| {
            !self.is_facts() && self.rows.iter().all(|row| !matches!(row.get(at), Some(Cell::Text(_))))
        };
        let right: Vec<_> = (0..columns).map(is_number).collect();
        for line in lines {
            let cells: Vec<_> = line
                .iter()
                .enumerate()
                .map(|(at, cell)| match right[at] {
                    true => format!("{cell:>width$}", width = widths[at]),
                    false => format!("{cell:<width$}", width = widths[at]),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        if self.rows.is_empty() {
            text.push_str("(none)\n");
        }
    }

    fn json(&self) -> Value {
        let value = |row: &Vec<Cell>, at: usize| row.get(at).map_or(Value::Null, json_of);
        if self.is_facts() {
            let facts = self.rows.iter().map(|row| (text_of(&row[0]), value(row, 1)));
            return Value::Object(facts.collect());
        }
        let rows = self.rows.iter().map(|row| {
            let cells = self.columns.iter().enumerate().map(|(at, column)| (column.clone(), value(row, at)));
            Value::Object(cells.collect())
        });
        Value::Array(rows.collect())
    }

    fn html(&self, html: &mut String) {
        let _ = writeln!(html, "<h2>{}</h2><table>", escaped(&self.name));
        if !self.is_facts() {
            let heads = self.columns.iter().map(|column| format!("<th>{}</th>", escaped(column)));
            let _ = writeln!(html, "<tr>{}</tr>", heads.collect::<String>());
        }
        for row in &self.rows {
            let cells = row.iter().map(|cell| match cell {
                Cell::Number(_) => format!("<td class=\"n\">{}</td>", text_of(cell)),
                // Paths of this listener, which the index lists, become links.
                Cell::Text(text) if is_link(text) => {
                    format!("<td><a href=\"{0}\">{0}</a></td>", escaped(text))
                }
                _ => format!("<td>{}</td>", escaped(&text_of(cell))),
            });
            let _ = writeln!(html, "<tr>{}</tr>", cells.collect::<String>());
        }
        html.push_str("</table>\n");
    }
}

fn text_of(cell: &Cell) -> String {
    match cell {
        Cell::Number(number) => match number.fract() {
            0.0 => format!("{number:.0}"),
            _ => format!("{number:.3}"),
        },
        Cell::Text(text) => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        _ => "-".to_owned(),
    }
}

fn json_of(cell: &Cell) -> Value {
    match cell {
        Cell::Number(number) if number.fract() == 0.0 && *number >= 0.0 => (*number as u64).into(),
        Cell::Number(number) => Value::from((number * 1000.0).round() / 1000.0),
        Cell::Text(text) => text.clone().into(),
        _ => Value::Null,
    }
}

/// Returns whether the text is a path of this listener, and not a reference to another host such as `//host`.
fn is_link(text: &str) -> bool {
    text.starts_with('/') && !text.starts_with("//") && !text.contains([' ', '"'])
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let mut calls = Table::new("calls", ["method", "age_ms"]);
        calls.push(["a.B/<C>".into(), 1.5.into()]);
        calls.push(["a.B/Long".into(), Cell::None]);
        Page::new("calls").note("two").table(Table::facts("about").fact("pid", 7)).table(calls)
    }

    #[test]
    fn one_content_has_three_forms() {
        let text = page().render(Form::Text);
        assert_eq!(
            text,
            "calls\n\ntwo\n\nabout\npid  7\n\ncalls\nmethod    age_ms\na.B/<C>    1.500\na.B/Long       -\n"
        );
        let json: Value = serde_json::from_str(&page().render(Form::Json)).unwrap();
        assert_eq!(json["about"]["pid"], 7);
        assert_eq!(json["calls"][0]["age_ms"], 1.5);
        assert_eq!(json["calls"][1]["age_ms"], Value::Null);
        let html = page().render(Form::Html);
        assert!(html.contains("<td>a.B/&lt;C&gt;</td><td class=\"n\">1.500</td>"), "{html}");
    }

    #[test]
    fn text_has_no_lines_that_a_caller_made() {
        let mut peers = Table::new("peers", ["peer"]);
        peers.push(["a\nb\u{1b}[31m".into()]);
        assert!(Page::new("").table(peers).render(Form::Text).ends_with("peer\na b [31m\n"));
    }
}
