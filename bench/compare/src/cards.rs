//! The charts of a preset: a card with sorted bars for each cell, and lines over all of them.

use super::{
    cell::Preset,
    result::{Line, Numbers, Results},
    subject::{Kind, OURS, Subject},
    summary::compact,
};
use std::fmt::Write;
use switchboard_cli::bench::{
    html::escape,
    plot::{self, Axis},
    report::duration,
};

/// Charts of the cells `own` of `preset`; `one_server` are those of the preset `message`.
pub(super) fn cards(preset: Preset, own: &[&Results<'_>], one_server: &[&Results<'_>]) -> String {
    let mut html = String::new();
    match preset {
        Preset::Callers | Preset::Message => {
            html +=
                &lines(own, "Throughput by callers", THROUGHPUT, |results| f64::from(results.cell.callers));
            html += &grid(own.iter().map(|results| throughput(results)));
            for (title, latency) in
                [("Median latency by callers", MEDIAN), ("99th percentile by callers", P99)]
            {
                html += &lines(own, title, latency, |results| f64::from(results.cell.callers));
            }
            html += &grid(own.last().into_iter().flat_map(|results| [cpu(results), memory(results)]));
        }
        Preset::Sizes => {
            html += &lines(own, "Throughput by size", MEGABYTES, |results| results.cell.bytes as f64);
            html += &grid(own.iter().map(|results| throughput(results)));
        }
        Preset::Servers => {
            let of = |callers| one_server.iter().find(move |results| results.cell.callers == callers);
            let pairs = own.iter().flat_map(|two| of(two.cell.callers).into_iter().chain([two]));
            html += &grid(pairs.map(|results| throughput(results)));
        }
        Preset::Connection | Preset::Connections | Preset::Wires => {
            html += &grid(own.iter().map(|results| throughput(results)));
        }
        Preset::Codecs => {
            html += &grid(own.iter().flat_map(|results| {
                [
                    codecs(results, "Encode", |cost| cost.encode_ns),
                    codecs(results, "Decode", |cost| cost.decode_ns),
                ]
            }));
        }
        // The preset `messaging` draws a page of its own.
        Preset::All | Preset::Messaging => {}
    }
    html
}

fn grid(cards: impl Iterator<Item = String>) -> String {
    let cards: String = cards.collect();
    if cards.is_empty() { cards } else { format!("<div class=\"cards\">\n{cards}</div>\n") }
}

/// A bar: its subject, its length, and the text next to it.
struct Bar<'a> {
    name: String,
    class: &'a str,
    value: f64,
    text: String,
    note: String,
}

fn card(title: &str, note: &str, bars: &[Bar<'_>]) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let mut html = format!(
        "<figure>\n<figcaption>{}<small>{}</small></figcaption>\n<div class=\"bars\">\n",
        escape(title),
        escape(note)
    );
    for bar in bars {
        let _ = writeln!(
            html,
            r#"<span class="who {class}">{name}</span><span class="bar {class}"><i style="--share:{share:.4}"></i><b>{text}</b><small>{note}</small></span>"#,
            class = bar.class,
            name = escape(&bar.name),
            share = bar.value.max(0.0) / most,
            text = escape(&bar.text),
            note = escape(&bar.note),
        );
    }
    html + "</div>\n</figure>\n"
}

fn throughput(results: &Results<'_>) -> String {
    let ours = results.of(OURS).map(|numbers| numbers.requests_per_s);
    let bytes = results.cell.preset == Preset::Sizes;
    let bars = results.lines.iter().filter_map(|line| {
        let numbers = line.numbers.as_ref()?;
        let text = if bytes && numbers.mb_per_s >= 1.0 {
            format!("{} MB/s", megabytes(numbers.mb_per_s))
        } else {
            compact(numbers.requests_per_s)
        };
        let note = match line.subject.kind {
            Kind::Rival => {
                ours.map_or(String::new(), |ours| format!("{} \u{d7}", ratio(ours / numbers.requests_per_s)))
            }
            Kind::Floor | Kind::Foreign | Kind::Ours | Kind::OursToo => String::new(),
        };
        Some(bar(line, numbers.requests_per_s, text, note))
    });
    let note = if bytes { "throughput" } else { "requests/s" };
    card(&results.cell.label, &format!("{note}, times behind Switchboard"), &bars.collect::<Vec<_>>())
}

fn cpu(results: &Results<'_>) -> String {
    let title = format!("CPU time of a call, {}", results.cell.label);
    least(results, &title, "client and server; less is better", |numbers| numbers.cpu_us, duration)
}

fn memory(results: &Results<'_>) -> String {
    let title = format!("Peak memory of the server, {}", results.cell.label);
    least(
        results,
        &title,
        "less is better",
        |numbers| numbers.peak_bytes,
        |bytes| format!("{:.0} MB", bytes / 1e6),
    )
}

/// Draws bars of a quantity of which less is better, the least first.
fn least(
    results: &Results<'_>,
    title: &str,
    note: &str,
    of: fn(&Numbers) -> f64,
    text: fn(f64) -> String,
) -> String {
    let bars = results.lines.iter().filter_map(|line| {
        let value = of(line.numbers.as_ref()?);
        Some(bar(line, value, text(value), String::new()))
    });
    let mut bars: Vec<_> = bars.collect();
    bars.sort_by(|one, other| one.value.total_cmp(&other.value));
    card(title, note, &bars)
}

fn codecs(results: &Results<'_>, title: &str, of: fn(&super::trial::CodecCost) -> f64) -> String {
    let costs = results.lines.iter().flat_map(|line| line.codecs.iter().map(move |cost| (line, cost)));
    let mut bars: Vec<_> = costs
        .map(|(line, cost)| {
            let one = bar(line, of(cost), format!("{} ns", compact(of(cost))), String::new());
            Bar { name: format!("{}: {}", line.subject.name, cost.name), ..one }
        })
        .collect();
    bars.sort_by(|one, other| one.value.total_cmp(&other.value));
    card(title, "nanoseconds; less is better", &bars)
}

fn bar<'a>(line: &Line<'a>, value: f64, text: String, note: String) -> Bar<'a> {
    let limit = if line.subject.kind == Kind::Floor { ", the limit" } else { "" };
    Bar {
        name: format!("{}{limit}", line.subject.name),
        class: kind_class(line.subject.kind),
        value,
        text,
        note,
    }
}

fn kind_class(kind: Kind) -> &'static str {
    match kind {
        Kind::Floor => "floor",
        Kind::Ours => "ours",
        Kind::OursToo | Kind::Foreign => "ours too",
        Kind::Rival => "rival",
    }
}

/// The quantity that a line chart shows of each cell.
#[derive(Clone, Copy)]
struct Shown {
    unit: &'static str,
    of: fn(&Numbers) -> f64,
    label: fn(f64) -> String,
}

const THROUGHPUT: Shown = Shown { unit: "requests/s", of: |numbers| numbers.requests_per_s, label: short };
const MEGABYTES: Shown = Shown { unit: "MB/s each way", of: |numbers| numbers.mb_per_s, label: megabytes };
const MEDIAN: Shown = Shown { unit: "latency", of: |numbers| numbers.p50_us, label: short_duration };
const P99: Shown = Shown { unit: "latency", of: |numbers| numbers.p99_us, label: short_duration };

fn lines(own: &[&Results<'_>], title: &str, shown: Shown, at: fn(&Results<'_>) -> f64) -> String {
    let by_size = own.iter().any(|results| results.cell.preset == Preset::Sizes);
    let ticks = own.iter().map(|results| {
        let name = if by_size { results.cell.label.clone() } else { results.cell.callers.to_string() };
        (at(results), name)
    });
    let axis = Axis { title: if by_size { "payload" } else { "callers" }, ticks: ticks.collect() };
    let mut subjects: Vec<&Subject> = Vec::new();
    for line in own.iter().flat_map(|results| &results.lines) {
        if !subjects.iter().any(|known| known.name == line.subject.name) {
            subjects.push(line.subject);
        }
    }
    // Each name has the same colour in all charts, independent of its rank.
    subjects.sort_by_key(|subject| (rank(subject.kind), subject.name.clone()));
    let mut rivals = 0;
    let drawn: Vec<_> = subjects
        .into_iter()
        .map(|subject| {
            let class = if subject.kind == Kind::Rival {
                rivals += 1;
                format!("line c{}", (rivals - 1) % COLOURS)
            } else {
                format!("line {}", kind_class(subject.kind))
            };
            let numbers = |results: &&&Results<'_>| {
                let line = results.lines.iter().find(|line| line.subject.name == subject.name)?;
                Some((at(results), (shown.of)(line.numbers.as_ref()?)))
            };
            plot::Line {
                name: &subject.name,
                class,
                points: own.iter().filter_map(|results| numbers(&results)).collect(),
            }
        })
        .collect();
    let plot = if own.len() > 1 {
        plot::lines(title, &drawn, &axis, shown.unit, shown.label)
    } else {
        String::new()
    };
    if plot.is_empty() {
        return plot;
    }
    format!("<figure class=\"plot\">\n<figcaption>{}</figcaption>\n{plot}</figure>\n", escape(title))
}

/// Number of colours that the style sheet has for rivals.
const COLOURS: usize = 12;

fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Ours => 0,
        Kind::OursToo | Kind::Foreign => 1,
        Kind::Floor => 2,
        Kind::Rival => 3,
    }
}

fn megabytes(value: f64) -> String {
    match value {
        value if value < 0.0995 => format!("{value:.3}"),
        value if value < 0.995 => format!("{value:.2}"),
        value if value < 9.95 => format!("{value:.1}"),
        value => switchboard_cli::bench::report::thousands(value),
    }
}

/// A number at a tick, without decimals that a round number does not have.
fn short(value: f64) -> String {
    trimmed(&compact(value))
}

fn short_duration(us: f64) -> String {
    trimmed(&duration(us))
}

fn trimmed(text: &str) -> String {
    let (number, unit) = text.rsplit_once(' ').unwrap_or((text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}").trim_end().to_owned()
}

fn ratio(ratio: f64) -> String {
    if ratio >= 9.95 { format!("{ratio:.0}") } else { format!("{ratio:.1}") }
}
