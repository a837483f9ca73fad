//! The report as a page: one file without scripts or external resources.

use super::cell::Preset;
use super::{
    cards, facts,
    judge::{self, Verdict},
    raw::Raw,
    result,
    subject::{FLOOR, Kind, OURS},
    summary, tables, verdicts,
};
use std::fmt::Write;
use switchboard_cli::bench::html::escape;

const STYLE: &str = include_str!("page.css");

/// Returns the page of `raw`.
pub(super) fn render(raw: &Raw) -> String {
    let results = result::results(raw);
    let judged = judge::judge(&results);
    let presets: Vec<Preset> = Preset::EACH
        .into_iter()
        .filter(|&preset| results.iter().any(|results| results.cell.preset == preset))
        .collect();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Switchboard and its rivals</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    );
    page += &head(raw);
    page += &tiles(&results, &judged);
    page += "<div class=\"summary\">\n";
    for sentence in summary::sentences(&results, &judged) {
        let _ = writeln!(page, "<p>{}</p>", escape(&sentence));
    }
    page += "</div>\n<nav>";
    for preset in &presets {
        let _ = write!(page, "<a href=\"#{name}\">{name}</a> ", name = preset.name());
    }
    page += "<a href=\"#bar\">the bar</a> <a href=\"#rivals\">subjects</a> <a href=\"#how\">how</a></nav>\n";
    for preset in presets {
        let own: Vec<_> = results.iter().filter(|results| results.cell.preset == preset).collect();
        let one_server: Vec<_> =
            results.iter().filter(|results| results.cell.preset == Preset::Message).collect();
        let _ = writeln!(page, "<section id=\"{}\">\n<h2>{}</h2>", preset.name(), title(preset));
        let _ = writeln!(page, "<p class=\"about\">{}</p>", about(preset));
        page += &cards::cards(preset, &own, &one_server);
        page += &tables::tables(preset, &own, &one_server);
        page += "</section>\n";
    }
    page += &verdicts::section(&judged);
    page += &facts::rivals(raw);
    page += &facts::how(raw);
    page + "</body>\n</html>\n"
}

fn head(raw: &Raw) -> String {
    let plan = &raw.plan;
    let rivals = match plan.subjects.iter().filter(|subject| subject.kind == Kind::Rival).count() {
        1 => "1 rival".to_owned(),
        rivals => format!("{rivals} rivals"),
    };
    format!(
        "<header>\n<h1>Switchboard and its rivals</h1>\n<p class=\"machine\">{} &middot; {} cores &middot; Linux {} \
         &middot; {} &middot; switchboard {} and {rivals} &middot; medians of {} rounds</p>\n</header>\n",
        escape(&plan.cpu),
        plan.cores,
        escape(&plan.kernel),
        escape(raw.started.split('T').next().unwrap_or_default()),
        escape(&raw.version),
        plan.rounds,
    )
}

/// Returns the four most important numbers.
fn tiles(results: &[result::Results<'_>], judged: &[Verdict]) -> String {
    let mut tiles = Vec::new();
    let busiest = ["callers/100", "message/1000", "connection/pipelined"]
        .iter()
        .find_map(|id| results.iter().find(|results| results.cell.id == *id))
        .or(results.first());
    if let Some((results, ours)) = busiest.and_then(|results| Some((results, results.of(OURS)?))) {
        let label = &results.cell.label;
        tiles.push((summary::compact(ours.requests_per_s), format!("requests/s, {label}")));
        if let Some((rival, numbers)) = results.rivals().next() {
            let ratio = ours.requests_per_s / numbers.requests_per_s;
            let times = summary::times(ratio).replace(" times", " \u{d7}");
            tiles.push((times, format!("the fastest rival, {}, {label}", rival.name)));
        }
        if let Some(floor) = results.of(FLOOR) {
            let share = 100.0 * ours.requests_per_s / floor.requests_per_s;
            tiles.push((format!("{share:.0} %"), format!("of the bare loop, {label}")));
        }
    }
    let met = judged.iter().filter(|verdict| verdict.met == Some(true)).count();
    let tested = judged.iter().filter(|verdict| verdict.met.is_some()).count();
    if tested > 0 {
        tiles.push((format!("{met} of {tested}"), "goals are met".to_owned()));
    }
    let tiles: String = tiles
        .iter()
        .map(|(number, text)| format!("<div><b>{}</b><span>{}</span></div>\n", escape(number), escape(text)))
        .collect();
    format!("<div class=\"tiles\">\n{tiles}</div>\n")
}

fn title(preset: Preset) -> &'static str {
    match preset {
        Preset::All => "All",
        Preset::Messaging => "Messaging",
        Preset::Callers => "Concurrent callers",
        Preset::Sizes => "Payload sizes",
        Preset::Message => "A real message",
        Preset::Servers => "One server and two",
        Preset::Connection => "A single connection",
        Preset::Connections => "Long connections and short ones",
        Preset::Codecs => "Codecs",
        Preset::Wires => "The wires of others",
    }
}

fn about(preset: Preset) -> &'static str {
    match preset {
        // The preset `messaging` has a page of its own.
        Preset::All | Preset::Messaging => "",
        Preset::Callers => "Echo of 100 bytes. Each caller waits for its reply before it calls again.",
        Preset::Sizes => "One caller echoes payloads of 10 bytes to 10 MB, one call after the other.",
        Preset::Message => {
            "A message of 581 bytes and 40 fields, decoded and encoded on both sides in each framework's own codec. \
             The floor echoes as many bytes and decodes nothing."
        }
        Preset::Servers => {
            "The same message, against one server process and against two; the client spreads its calls over both. \
             All processes share the cores of one machine, so two servers show what spreading costs, not what a \
             second machine would add."
        }
        Preset::Connection => {
            "Echo of 100 bytes over one connection: one call after the other, 1000 callers at once, and one \
             bidirectional stream."
        }
        Preset::Connections => {
            "Echo of 100 bytes with 100 callers in all: over connections that stay, and with a new one for each call; \
             from one client process and from four."
        }
        Preset::Codecs => {
            "What it takes to encode and to decode the message of 581 bytes, without any network."
        }
        Preset::Wires => {
            "The same message on the wires of other frameworks: Switchboard with itself, beside its native wire, and with \
             those frameworks themselves, each as the client of the other."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn every_preset_has_its_section_and_markup_is_escaped() {
        let raw = fake::raw(&[("grpc-go", 10_000.0, 9.0), ("a<b>", 20_000.0, 3.0)], 1e6, 1.0);
        let page = render(&raw);
        for preset in Preset::EACH {
            assert!(page.contains(&format!("<section id=\"{}\">", preset.name())), "{}", preset.name());
        }
        for cell in raw.plan.cells.iter().filter(|cell| cell.preset != Preset::Codecs) {
            assert!(page.contains(&escape(&cell.label)), "{}", cell.label);
        }
        assert!(page.contains("a&lt;b&gt;") && !page.contains("a<b>"));
        assert!(page.contains("no &lt;go&gt;") && page.contains("--html &lt;x&gt;"));
        assert!(!page.contains("NaN") && !page.contains("inf "));
    }

    #[test]
    fn the_page_is_self_contained() {
        let page = render(&fake::raw(&[("tonic", 20_000.0, 3.0)], 1e6, 1.0));
        for foreign in ["<script", "src=", "href=\"h", "url(", "http:", "https:"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_run_without_measurements_has_a_page() {
        let mut raw = fake::raw(&[("tonic", 20_000.0, 3.0)], 1e6, 1.0);
        raw.rows.clear();
        let page = render(&raw);
        assert!(page.ends_with("</html>\n") && !page.contains("NaN"));
    }
}
