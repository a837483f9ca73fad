//! Lists the subjects, the machine and the method, which are needed to interpret the numbers.

use super::{raw::Raw, subject::Kind};
use std::fmt::Write;
use switchboard_cli::bench::html::escape;

/// Lists all subjects with version and configuration, and those that are absent.
pub(super) fn rivals(raw: &Raw) -> String {
    let mut html = "<section id=\"rivals\">\n<h2>Who was measured</h2>\n\
                    <div class=\"wide\"><table class=\"who\">\n<thead><tr>\
                    <th></th><th>version</th>\
                    <th>language</th><th>licence</th><th>configuration</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for subject in &raw.plan.subjects {
        let class = if subject.kind == Kind::Rival { "rival" } else { "ours" };
        let _ = writeln!(
            html,
            "<tr class=\"{class}\"><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>",
            escape(&subject.name),
            escape(&subject.version),
            escape(&subject.language),
            escape(&subject.license),
            escape(&subject.configuration),
        );
    }
    html += "</tbody>\n</table></div>\n";
    if !raw.plan.absent.is_empty() {
        html += "<h3>Absent</h3>\n<ul>\n";
        for absent in &raw.plan.absent {
            let _ = writeln!(html, "<li><b>{}</b>: {}</li>", escape(&absent.name), escape(&absent.reason));
        }
        html += "</ul>\n";
    }
    html + "</section>\n"
}

/// The machine, the flags and the method.
pub(super) fn how(raw: &Raw) -> String {
    let plan = &raw.plan;
    let facts = [
        ("Command", format!("<code>{}</code>", escape(&raw.command))),
        ("Machine", escape(&format!("{}, {} cores, Linux {}", plan.cpu, plan.cores, plan.kernel))),
        ("Started", escape(&raw.started)),
        ("Presets", escape(&plan.presets.join(", "))),
        (
            "Each measurement",
            format!("{} s after {} s of warm-up, {} rounds", plan.seconds, plan.warm_up, plan.rounds),
        ),
        ("Measurements", raw.rows.len().to_string()),
    ];
    let mut html = "<section id=\"how\">\n<h2>How it was measured</h2>\n<dl>\n".to_owned();
    for (term, text) in facts {
        let _ = writeln!(html, "<dt>{term}</dt><dd>{text}</dd>");
    }
    html += "</dl>\n<ul>\n";
    for point in METHOD {
        let _ = writeln!(html, "<li>{point}</li>");
    }
    html + "</ul>\n</section>\n"
}

const METHOD: [&str; 8] = [
    "Client and server are processes of their own on the same machine and talk over the loopback interface; every measurement starts both anew.",
    "In each round every subject is measured once, in an order that is shuffled. Medians of the rounds are shown, with the slowest and the fastest round.",
    "Callers form a closed loop: each waits for its reply before it calls again. Every reply is compared with its request.",
    "CPU time is that of client and server together, divided by all calls, those of the warm-up too. Memory is the most that the server ever had.",
    "Of several client processes, means and medians are weighted by calls; of the tails the worst process is shown.",
    "Each rival runs in the best configuration that was found for it on such a machine; the variants that were tried are listed beside it and in its manifest under bench/peers.",
    "The floor is a bare loop of the same shape on the same sockets without codec, limits, deadlines, metrics or calls that can fail one by one: the limit of this machine for this design, not a rival.",
    "Allocations of Switchboard's own codecs are counted by a test of this program: an allocator that counts would slow every other number down.",
];
