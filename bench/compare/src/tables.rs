//! The tables of a preset: a short one for comparison, followed by all numbers.

use super::{
    cell::Preset,
    result::{Line, Results},
    subject::Kind,
    summary::compact,
};
use std::fmt::Write;
use switchboard_cli::bench::{
    html::escape,
    report::{duration, thousands},
};

/// Tables of the cells `own` of `preset`; `one_server` are those of the preset `message`.
pub(super) fn tables(preset: Preset, own: &[&Results<'_>], one_server: &[&Results<'_>]) -> String {
    if preset == Preset::Codecs {
        return own.iter().map(|results| codecs(results)).collect();
    }
    let one_server =
        one_server.iter().filter(|one| own.iter().any(|two| two.cell.callers == one.cell.callers));
    let shown: Vec<&Results<'_>> = match preset {
        Preset::Servers => one_server.chain(own).copied().collect(),
        _ => own.to_vec(),
    };
    let mut html = matrix(preset, &shown);
    html += "<details><summary>All numbers</summary>\n<div class=\"wide\"><table class=\"all\">\n";
    html += "<thead><tr><th></th><th>requests/s</th><th>slowest to fastest round</th><th>MB/s</th><th>mean</th><th>median</th>\
             <th>p90</th><th>p99</th><th>p99.9</th><th>max</th><th>min</th>\
             <th>CPU/call</th><th>peak memory</th><th>errors</th></tr></thead>\n";
    for results in shown {
        let _ = writeln!(
            html,
            "<tbody><tr class=\"cell\"><th colspan=\"14\">{}</th></tr>",
            escape(&results.cell.label)
        );
        for line in &results.lines {
            html += &row(line);
        }
        html += "</tbody>\n";
    }
    html + "</table></div></details>\n"
}

/// Throughput and 99th percentile, a row for each subject and a column for each cell.
fn matrix(preset: Preset, shown: &[&Results<'_>]) -> String {
    let mut html = "<div class=\"wide\"><table class=\"matrix\">\n<thead><tr><th></th>".to_owned();
    for results in shown {
        let _ = write!(html, "<th>{}</th>", escape(&results.cell.label));
    }
    html += "</tr></thead>\n<tbody>\n";
    for name in order(shown) {
        let of = |results: &&Results<'_>| results.lines.iter().position(|line| line.subject.name == name);
        let Some(kind) = shown.iter().find_map(|results| Some(results.lines[of(results)?].subject.kind))
        else {
            continue;
        };
        let _ = write!(html, "<tr class=\"{}\"><th>{}</th>", class(kind), escape(name));
        for results in shown {
            let line = of(results).map(|at| &results.lines[at]);
            match line.and_then(|line| line.numbers.as_ref()) {
                Some(numbers) => {
                    let rate = if preset == Preset::Sizes && numbers.mb_per_s >= 1.0 {
                        format!("{:.1} MB/s", numbers.mb_per_s)
                    } else {
                        compact(numbers.requests_per_s)
                    };
                    let best = results.rivals().next().is_some_and(|(best, _)| best.name == name);
                    let class = if best { " class=\"best\"" } else { "" };
                    let _ = write!(
                        html,
                        "<td{class}>{}<small>{}</small></td>",
                        escape(&rate),
                        escape(&duration(numbers.p99_us))
                    );
                }
                None => {
                    let why = line.and_then(|line| line.failed).unwrap_or("does not offer this");
                    let _ = write!(html, "<td class=\"none\" title=\"{}\">&ndash;</td>", escape(why));
                }
            }
        }
        html += "</tr>\n";
    }
    html + "</tbody>\n</table></div>\n<p class=\"note\">Requests a second; below them the 99th percentile of latency. The fastest rival of each column is bold.</p>\n"
}

/// Returns the names of all measured subjects: the floor, then by the mean of their ranks.
fn order<'a>(shown: &[&Results<'a>]) -> Vec<&'a str> {
    let mut ranks: Vec<(&str, bool, Vec<usize>)> = Vec::new();
    for results in shown {
        for (rank, line) in results.lines.iter().enumerate() {
            let name = line.subject.name.as_str();
            match ranks.iter_mut().find(|(known, ..)| *known == name) {
                Some((.., known)) => known.push(rank),
                None => ranks.push((name, line.subject.kind != Kind::Floor, vec![rank])),
            }
        }
    }
    let mean = |ranks: &[usize]| ranks.iter().sum::<usize>() as f64 / ranks.len().max(1) as f64;
    ranks.sort_by(|one, other| one.1.cmp(&other.1).then(mean(&one.2).total_cmp(&mean(&other.2))));
    ranks.into_iter().map(|(name, ..)| name).collect()
}

fn row(line: &Line<'_>) -> String {
    let subject = line.subject;
    let mut html = format!("<tr class=\"{}\"><th>{}</th>", class(subject.kind), escape(&subject.name));
    let Some(numbers) = &line.numbers else {
        let why = line.failed.unwrap_or("not measured yet");
        return html + &format!("<td class=\"none\" colspan=\"13\">{}</td></tr>\n", escape(why));
    };
    let cells = [
        thousands(numbers.requests_per_s),
        format!("{} to {}", thousands(numbers.spread.0), thousands(numbers.spread.1)),
        format!("{:.1}", numbers.mb_per_s),
        duration(numbers.mean_us),
        duration(numbers.p50_us),
        duration(numbers.p90_us),
        duration(numbers.p99_us),
        duration(numbers.p999_us),
        duration(numbers.max_us),
        duration(numbers.min_us),
        duration(numbers.cpu_us),
        format!("{:.1} MB", numbers.peak_bytes / 1e6),
    ];
    for cell in cells {
        let _ = write!(html, "<td>{}</td>", escape(&cell));
    }
    let first = numbers.first_error.as_deref().unwrap_or_default();
    let error = if numbers.errors > 0 { " class=\"error\"" } else { "" };
    let _ = writeln!(html, "<td{error} title=\"{}\">{}</td></tr>", escape(first), numbers.errors);
    html
}

fn codecs(results: &Results<'_>) -> String {
    let mut html = "<div class=\"wide\"><table class=\"all\">\n<thead><tr><th></th><th>codec</th><th>encode</th><th>decode</th>\
                    <th>both</th><th>allocations, encode</th><th>decode</th><th>bytes</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for line in &results.lines {
        let name = escape(&line.subject.name);
        if let Some(why) = line.failed.filter(|_| line.codecs.is_empty()) {
            let _ = writeln!(
                html,
                "<tr><th>{name}</th><td class=\"none\" colspan=\"7\">{}</td></tr>",
                escape(why)
            );
        }
        for cost in &line.codecs {
            let count =
                |count: Option<f64>| count.map_or("not counted".to_owned(), |count| format!("{count:.1}"));
            let _ = writeln!(
                html,
                "<tr class=\"{}\"><th>{name}</th><td class=\"text\">{}</td><td>{} ns</td><td>{} ns</td><td>{} ns</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                class(line.subject.kind),
                escape(&cost.name),
                thousands(cost.encode_ns),
                thousands(cost.decode_ns),
                thousands(cost.encode_ns + cost.decode_ns),
                count(cost.encode_allocs),
                count(cost.decode_allocs),
                cost.bytes,
            );
        }
    }
    html + "</tbody>\n</table></div>\n"
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Floor => "floor",
        Kind::Ours => "ours",
        Kind::OursToo | Kind::Foreign => "ours too",
        Kind::Rival => "rival",
    }
}
