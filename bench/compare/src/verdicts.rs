//! The comparison with the goals: first the missed ones, then all.

use super::{judge::Verdict, subject::OURS};
use std::fmt::Write;
use switchboard_cli::bench::{
    html::escape,
    report::{duration, thousands},
};

/// Returns the section of the page.
pub(super) fn section(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let missed: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.met == Some(false)).collect();
    let mut html = "<section id=\"bar\">\n<h2>The bar</h2>\n<p class=\"about\">What Switchboard is meant to be better at, \
                    by how much, and what was measured here.</p>\n"
        .to_owned();
    if missed.is_empty() {
        html += "<p>Nothing that could be tested was missed.</p>\n";
    } else {
        let _ = writeln!(html, "<h3>Missed: {}</h3>", missed.len());
        html += &table(&missed);
    }
    let _ = writeln!(html, "<details><summary>All {} demands</summary>", verdicts.len());
    html += &table(&verdicts.iter().collect::<Vec<_>>());
    html + "</details>\n</section>\n"
}

/// Formats a verdict as a line, for a terminal.
pub(super) fn text(verdict: &Verdict) -> String {
    format!(
        "{}: {}{} {} {}: {} ({} to {})",
        verdict.cell,
        if is_of_ours(verdict) { String::new() } else { format!("{}: ", verdict.subject) },
        verdict.metric,
        wanted(verdict),
        verdict.rival,
        measured(verdict),
        value(verdict, verdict.ours),
        value(verdict, verdict.theirs)
    )
}

fn table(verdicts: &[&Verdict]) -> String {
    let mut html = "<div class=\"wide\"><table class=\"verdicts\">\n<thead><tr><th>cell</th><th>of what</th><th>against</th>\
                    <th>wanted</th><th>measured</th><th>Switchboard</th><th>rival</th><th></th></tr></thead>\n<tbody>\n"
        .to_owned();
    for verdict in verdicts {
        let (class, word) = match verdict.met {
            Some(true) => ("met", "met"),
            Some(false) => ("missed", "missed"),
            None => ("open", "no rival here"),
        };
        let mut label = escape(&verdict.label);
        if !is_of_ours(verdict) {
            let _ = write!(label, "<br>{}", escape(&verdict.subject));
        }
        let mut against = escape(&verdict.rival);
        if !verdict.without.is_empty() && verdict.met.is_some() {
            let _ = write!(against, "<small>not here: {}</small>", escape(&verdict.without.join(", ")));
        }
        let _ = writeln!(
            html,
            "<tr class=\"{class}\"><th>{}<small>{}</small></th><td class=\"text\">{}</td>\
             <td class=\"text\">{against}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"word\">{word}</td></tr>",
            escape(verdict.cell.split('/').next().unwrap_or_default()),
            label,
            verdict.metric,
            escape(&wanted(verdict)),
            escape(&measured(verdict)),
            value(verdict, verdict.ours),
            value(verdict, verdict.theirs),
        );
    }
    html + "</tbody>\n</table></div>\n"
}

/// Returns whether the verdict is about Switchboard in its default configuration.
fn is_of_ours(verdict: &Verdict) -> bool {
    verdict.subject == OURS
}

/// Returns whether a latency is compared with another one of the same subject, of which it may be a multiple.
fn is_own(verdict: &Verdict) -> bool {
    verdict.wanted < 1.0 && verdict.metric != "requests/s"
}

fn wanted(verdict: &Verdict) -> String {
    let comparison = if verdict.metric == "requests/s" { "more" } else { "less" };
    match verdict.wanted {
        1.0 => comparison.to_owned(),
        share if is_own(verdict) => format!("at most {:.0} \u{d7}", 1.0 / share),
        factor => format!("at least {factor} \u{d7}"),
    }
}

fn measured(verdict: &Verdict) -> String {
    match verdict.measured {
        None => "\u{2013}".to_owned(),
        Some(ratio) if is_own(verdict) => format!("{:.1} \u{d7}", 1.0 / ratio),
        Some(ratio) if ratio >= 9.95 => format!("{ratio:.0} \u{d7}"),
        Some(ratio) => format!("{ratio:.2} \u{d7}"),
    }
}

fn value(verdict: &Verdict, value: Option<f64>) -> String {
    value.map_or("\u{2013}".to_owned(), |value| match verdict.metric {
        "requests/s" => thousands(value),
        "peak memory" => format!("{:.1} MB", value / 1e6),
        _ => duration(value),
    })
}
