//! Results as a page for people: plots, the table, the machine. One file without scripts or external resources.

use super::{
    chart::{self, Bar, Curve},
    machine::Machine,
    record::{CHAINED, NATIVE, Record, Side},
    report::{self, Rows},
};
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");

/// Returns the page of `records`, measured by `command_line`.
pub(super) fn render(records: &[Record], command_line: &str) -> String {
    let mut page = head(records.first().map_or("nothing", |record| record.name));
    if let Some(record) = records.first() {
        page += &facts(&record.machine, command_line, None);
    }
    if records.iter().any(|record| record.ours.bytes_per_connection.is_some()) {
        page += &memory(records);
    } else {
        page += &throughput(records);
    }
    page += &latency(records);
    page += &numbers(records);
    page + END
}

/// Returns the beginning of a page of the mode `name`.
pub fn head(name: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>switchboard bench {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>switchboard bench {name}</h1>\n"
    )
}

/// The end of a page.
pub const END: &str = "</body>\n</html>\n";

/// Returns `text` with the characters of markup escaped.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Lists the method and the machine, and properties of the server that the command line does not show.
pub fn facts(machine: &Machine, command_line: &str, server: Option<&str>) -> String {
    let facts = [
        ("Command", Some(format!("<code>{}</code>", escape(command_line)))),
        ("Server", server.map(escape)),
        (
            "Machine",
            Some(escape(&format!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel))),
        ),
        ("Date", Some(escape(&machine.date))),
        ("Version", Some(format!("switchboard {}", escape(machine.version)))),
    ];
    let mut list = "<dl>\n".to_owned();
    for (term, text) in facts.into_iter().filter_map(|(term, text)| Some((term, text?))) {
        let _ = writeln!(list, "<dt>{term}</dt><dd>{text}</dd>");
    }
    list + "</dl>\n"
}

fn throughput(records: &[Record]) -> String {
    // For payloads of very different sizes, requests per second are not comparable: bytes are.
    let by_size = records.iter().any(|record| record.name == "sizes");
    let (title, unit) =
        if by_size { ("Throughput, MB/s each way", "MB/s") } else { ("Throughput, requests/s", "/s") };
    let value = |side: &Side| if by_size { side.mb_per_s } else { side.requests_per_s };
    let text = |value: f64| {
        if value < 10.0 {
            format!("{value:.2} {unit}")
        } else {
            format!("{} {unit}", report::thousands(value))
        }
    };
    section(title, &chart::bars(title, &bars(records, value, text)), "")
}

fn memory(records: &[Record]) -> String {
    let title = "Server memory, bytes for each idle connection";
    let value = |side: &Side| side.bytes_per_connection.unwrap_or_default();
    section(title, &chart::bars(title, &bars(records, value, report::thousands)), "")
}

fn bars(records: &[Record], value: impl Fn(&Side) -> f64, text: impl Fn(f64) -> String) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (at, record) in records.iter().enumerate() {
        for (name, side) in record.sides() {
            let value = value(side);
            let floor = name == "floor";
            let mut text = text(value);
            if let Some(ratio) = record.floor_ratio.filter(|_| name == "switchboard") {
                let _ = write!(text, " ({} of floor)", report::ratio(ratio));
            }
            if let Some(ratio) = record.chain_ratio.filter(|_| name == CHAINED) {
                let _ = write!(text, " ({} of no chain)", report::ratio(ratio));
            }
            if let Some(ratio) = record.native_ratio.filter(|_| name == "switchboard") {
                let _ = write!(text, " ({} of native)", report::ratio(ratio));
            }
            let label = if name == "switchboard" { record.label.clone() } else { name.to_owned() };
            bars.push(Bar { label, text, value, class: if floor { "floor".to_owned() } else { class(at) } });
        }
    }
    bars
}

fn latency(records: &[Record]) -> String {
    let title = "Latency by percentile";
    let mut curves = Vec::new();
    let mut legend = "<p class=\"legend\">".to_owned();
    for (at, record) in records.iter().enumerate() {
        let class = class(at);
        for (name, side) in record.sides() {
            let dashed = if name == "switchboard" { "" } else { " dashed" };
            let calls = (side.requests + side.missed) / side.rounds.len().max(1) as u64;
            curves.push(Curve { class: format!("{class}{dashed}"), calls, points: &side.curve });
        }
        let _ = write!(legend, "<span><i class=\"{class}\"></i>{}</span> ", escape(&record.label));
    }
    if records.iter().any(|record| record.floor.is_some()) {
        legend += "<span><i class=\"dash\"></i>dashed: floor</span>";
    }
    if records.iter().any(|record| record.chain.is_some()) {
        let _ = write!(legend, "<span><i class=\"dash\"></i>dashed: {CHAINED}</span>");
    }
    if records.iter().any(|record| record.native.is_some()) {
        let _ = write!(legend, "<span><i class=\"dash\"></i>dashed: {NATIVE}</span>");
    }
    section(title, &chart::curves(title, &curves), &format!("{legend}</p>\n"))
}

fn numbers(records: &[Record]) -> String {
    let mut table = self::table(&report::rows(records));
    for (label, side, error) in report::errors(records) {
        let _ = writeln!(table, "<p class=\"error\">{}, {side}: {}</p>", escape(label), escape(&error));
    }
    section("Numbers", &table, "")
}

/// `rows` with the first as the heading.
pub fn table(rows: &Rows) -> String {
    let mut table = "<div class=\"wide\"><table>\n".to_owned();
    for (at, row) in rows.iter().enumerate() {
        let tag = if at == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        let _ = writeln!(table, "<tr>{cells}</tr>");
    }
    table + "</table></div>\n"
}

pub fn section(title: &str, body: &str, below: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{body}{below}</section>\n", escape(title))
}

/// Number of colours that the style sheet has for runs.
const COLOURS: usize = 8;

fn class(at: usize) -> String {
    format!("s{}", at % COLOURS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::example;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
        let page = render(&[example(true)], "switchboard bench echo --html <x>");
        assert!(page.contains("--html &lt;x&gt;"));
    }

    #[test]
    fn the_page_is_self_contained() {
        let mut record = example(true);
        record.ours.first_error = Some("<script>".to_owned());
        let page = render(&[record, example(false)], "switchboard bench echo");
        assert_eq!(page.matches("<svg").count(), 1);
        assert_eq!(page.matches("<polyline").count(), 3);
        assert_eq!(page.matches("--share:").count(), 3);
        assert!(page.contains("(0.50 of floor)") && page.contains("1 000"));
        for foreign in ["<script", "src=", "href=", "url(", "http"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
