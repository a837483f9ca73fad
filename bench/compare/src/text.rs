//! The report on standard output.

use super::{
    judge,
    raw::Raw,
    result::{self, Line, Numbers, Results},
    subject::Kind,
    summary, verdicts,
};
use switchboard_cli::{
    bench::report::{align, duration, thousands},
    terminal::{Style, Terminal},
};

/// Tables of every cell.
pub(super) fn render(raw: &Raw, terminal: Terminal) -> String {
    let plan = &raw.plan;
    let head = format!(
        "bench-compare: {}, {} cores, Linux {}, switchboard {}; {} rounds of {} s, medians",
        plan.cpu, plan.cores, plan.kernel, raw.version, plan.rounds, plan.seconds
    );
    let mut text = terminal.paragraph(Style::Plain, &head);
    let results = result::results(raw);
    for results in &results {
        text.push('\n');
        let title = format!("{}: {}", results.cell.preset.name(), results.cell.label);
        text += &terminal.paragraph(Style::Heading, &title);
        text += &align(&rows(results), terminal);
        for line in &results.lines {
            if let Some(why) = line.failed {
                text += &terminal.paragraph(Style::Failure, &format!("{} failed: {why}", line.subject.name));
            }
        }
    }
    for absent in &plan.absent {
        text.push('\n');
        text += &terminal.paragraph(Style::Plain, &format!("absent: {}: {}", absent.name, absent.reason));
    }
    let judged = judge::judge(&results);
    for verdict in judged.iter().filter(|verdict| verdict.met == Some(false)) {
        text.push('\n');
        text += &terminal.paragraph(Style::Failure, &format!("missed: {}", verdicts::text(verdict)));
    }
    text.push('\n');
    for sentence in summary::sentences(&results, &judged) {
        text += &terminal.paragraph(Style::Plain, &sentence);
    }
    text
}

/// Returns the failures of Switchboard itself.
pub(super) fn own_failures(raw: &Raw) -> Vec<String> {
    let results = result::results(raw);
    let lines = results.iter().flat_map(|results| results.lines.iter().map(move |line| (results.cell, line)));
    lines
        .filter(|(_, line)| matches!(line.subject.kind, Kind::Ours | Kind::Foreign))
        .filter_map(|(cell, line)| {
            let error = line.numbers.as_ref().and_then(|numbers| numbers.first_error.as_deref());
            line.failed.or(error).map(|why| format!("{}: {}: {why}", cell.id, line.subject.name))
        })
        .collect()
}

/// The table of one cell, with its head.
fn rows(results: &Results<'_>) -> Vec<Vec<String>> {
    if results.lines.iter().any(|line| !line.codecs.is_empty()) {
        return codec_rows(results);
    }
    let head = [
        "",
        "",
        "requests/s",
        "spread",
        "MB/s",
        "mean",
        "p50",
        "p99",
        "max",
        "CPU/call",
        "peak MB",
        "errors",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(results.lines.iter().filter_map(|line| Some(row(line, line.numbers.as_ref()?))));
    rows
}

fn row(line: &Line<'_>, numbers: &Numbers) -> Vec<String> {
    vec![
        line.subject.name.clone(),
        line.subject.version.clone(),
        thousands(numbers.requests_per_s),
        format!("{} to {}", thousands(numbers.spread.0), thousands(numbers.spread.1)),
        format!("{:.1}", numbers.mb_per_s),
        duration(numbers.mean_us),
        duration(numbers.p50_us),
        duration(numbers.p99_us),
        duration(numbers.max_us),
        duration(numbers.cpu_us),
        format!("{:.1}", numbers.peak_bytes / 1e6),
        numbers.errors.to_string(),
    ]
}

fn codec_rows(results: &Results<'_>) -> Vec<Vec<String>> {
    let head = ["", "codec", "encode ns", "decode ns", "allocations", "bytes"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for line in &results.lines {
        for cost in &line.codecs {
            let count = |count: Option<f64>| count.map_or("?".to_owned(), |count| format!("{count:.1}"));
            rows.push(vec![
                line.subject.name.clone(),
                cost.name.clone(),
                thousands(cost.encode_ns),
                thousands(cost.decode_ns),
                format!("{} + {}", count(cost.encode_allocs), count(cost.decode_allocs)),
                cost.bytes.to_string(),
            ]);
        }
    }
    rows
}
