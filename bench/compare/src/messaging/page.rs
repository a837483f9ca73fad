//! The report: lines for a terminal, and a self-contained page with a bar for each goal.

use super::{
    Measurement,
    verdict::{Verdict, verdict},
};
use std::fmt::Write;
use switchboard_cli::{
    bench::{bus::options::Times, html::escape, machine::Machine},
    terminal::Terminal,
};

/// Returns the result of each goal as a line.
pub(super) fn text(measurements: &[Measurement], absent: &[String], _terminal: Terminal) -> String {
    let mut text = String::new();
    for measurement in measurements {
        let _ = writeln!(text, "{:7} {}", measurement.workload.id, measurement.workload.label);
        match &measurement.result {
            Err(reason) => {
                let _ = writeln!(text, "        not measured: {reason}");
            }
            Ok(_) => {
                for verdict in verdicts(measurement) {
                    let mark = if verdict.is_met { "met" } else { "missed" };
                    let measured = verdict.measured.as_deref().unwrap_or("not measured");
                    let _ = writeln!(text, "        {mark:6} {}: {measured}", verdict.goal);
                }
            }
        }
    }
    for reason in absent {
        let _ = writeln!(text, "absent  {reason}");
    }
    text
}

fn verdicts(measurement: &Measurement) -> Vec<Verdict> {
    let Ok(record) = &measurement.result else { return Vec::new() };
    measurement.workload.goals.iter().map(|&goal| verdict(goal, record)).collect()
}

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1080px;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse}td,th{padding:.2em .6em;text-align:right;border-bottom:1px solid #8884}\
    td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}\
    .met{fill:#2a8f4a}.missed{fill:#c0392b}text{font:13px sans-serif;fill:currentColor}\
    @media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}";

/// Returns the page.
pub(super) fn render(
    measurements: &[Measurement],
    absent: &[String],
    machine: &Machine,
    times: &Times,
) -> String {
    let mut page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Messaging</title>\n<style>{STYLE}</style>\n\
         <h1>Sockets and topics beside libraries of ZeroMQ's protocol</h1>\n\
         <p>{}, {} cores, Linux {}, {}. {} rounds of {} s after {} s of warm-up, in turn; medians, with the slowest \
         and the fastest round. Sender and receiver are processes on a core each. Processor time is that of both. \
         The receiver counts and checks the number of each message. &ldquo;Per core&rdquo; are messages per second \
         of processor time of the busier side: it does not depend on the share of a core that a program got.</p>\n",
        escape(&machine.cpu),
        machine.cores,
        escape(&machine.kernel),
        machine.date,
        times.rounds,
        times.seconds,
        times.warm_up
    );
    page.push_str(
        "<h2>Goals</h2>\n<p>The length of a bar is the measured value as a part of the goal; the line is the \
                   goal.</p>\n",
    );
    bars(&mut page, measurements);
    page.push_str("<h2>Measurements</h2>\n");
    table(&mut page, measurements);
    page.push_str("<h2>Not measured</h2>\n<ul>\n");
    for measurement in measurements {
        if let Err(reason) = &measurement.result {
            let workload = &measurement.workload;
            let _ = writeln!(page, "<li>{}, {}: {}", workload.id, escape(workload.label), escape(reason));
        }
    }
    for reason in absent {
        let _ = writeln!(page, "<li>{}", escape(reason));
    }
    page.push_str("</ul>\n");
    page
}

/// Width of a bar that reaches its goal, and height of a line, in pixels.
const GOAL_WIDTH: f64 = 200.0;
const LINE: usize = 22;
/// Bars end at this part of the goal.
const PART_MAX: f64 = 2.0;
const LABEL_WIDTH: usize = 520;

fn bars(page: &mut String, measurements: &[Measurement]) {
    let lines: Vec<(String, Verdict)> = measurements
        .iter()
        .flat_map(|measurement| {
            let workload = &measurement.workload;
            let name = format!("{}, {}", workload.id, workload.label);
            verdicts(measurement).into_iter().map(move |verdict| (name.clone(), verdict))
        })
        .collect();
    let (height, goal) = (lines.len() * LINE, LABEL_WIDTH as f64 + GOAL_WIDTH);
    let _ = writeln!(page, "<svg width=\"1080\" height=\"{height}\" role=\"img\">");
    for (at, (name, verdict)) in lines.iter().enumerate() {
        let (top, base) = (at * LINE, at * LINE + 15);
        let width = verdict.part.unwrap_or(0.0).min(PART_MAX) * GOAL_WIDTH;
        let class = if verdict.is_met { "met" } else { "missed" };
        let measured = verdict.measured.as_deref().unwrap_or("not measured");
        let (name, label) = (escape(name), escape(&verdict.goal));
        let _ = writeln!(
            page,
            "<text x=\"0\" y=\"{base}\">{name}: {label}</text>\
             <rect class=\"{class}\" x=\"{LABEL_WIDTH}\" y=\"{top}\" width=\"{width:.0}\" height=\"16\"/>\
             <text x=\"{:.0}\" y=\"{base}\">{}</text>",
            LABEL_WIDTH as f64 + width + 6.0,
            escape(measured)
        );
    }
    let _ = writeln!(page, "<path d=\"M{goal} 0V{height}\" stroke=\"currentColor\"/>\n</svg>");
}

fn table(page: &mut String, measurements: &[Measurement]) {
    page.push_str(
        "<table>\n<tr><th>workload<th>program<th>messages/s<th>slowest to fastest<th>CPU us/message<th>p50 us\
         <th>p99 us<th>B/peer<th>lost, duplicates<th>Switchboard is\n",
    );
    for measurement in measurements {
        let Ok(record) = &measurement.result else { continue };
        let name = format!("{}, {}", measurement.workload.id, measurement.workload.label);
        let own = ("switchboard".to_owned(), &record.ours, None);
        let others = record
            .others
            .iter()
            .map(|other| (format!("{} {}", other.name, other.version), &other.side, Some(other)));
        for (program, side, other) in std::iter::once(own).chain(others) {
            let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
            let ratio = other.map_or(String::new(), |other| match other.bytes_per_peer_ratio {
                Some(bytes) => format!("{bytes:.2} x the memory"),
                None => format!(
                    "{:.2} x, per core {:.2} x, CPU {:.2} x",
                    other.ratio, other.core_ratio, other.cpu_ratio
                ),
            });
            let _ = writeln!(
                page,
                "<tr><td>{}<td>{}<td>{:.0}<td>{:.0} to {:.0}<td>{:.3}<td>{}<td>{}<td>{}<td>{}, {}<td>{ratio}",
                escape(&name),
                escape(&program),
                side.messages_per_s,
                side.messages_per_s_min,
                side.messages_per_s_max,
                side.cpu_us_per_message,
                optional(side.p50_us),
                optional(side.p99_us),
                optional(side.bytes_per_peer),
                side.lost,
                side.duplicates
            );
        }
    }
    page.push_str("</table>\n");
}
