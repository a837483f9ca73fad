//! Compares the costs of calls with bounds: instructions, system calls, clock readings and allocations, which
//! do not depend on the load of the machine.
//!
//! Server and callers of `bench/gates` run under valgrind, each with a short and a long run; the difference is what the
//! calls cost that the long one has more. `bench/gates/bounds.txt` has the bounds.

mod bounds;
mod count;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::peers::Peer;
use crate::process::Failure;
use crate::steps::{Outcome, Run};
use bounds::Bound;
use count::{Costs, METRICS, Program, Side};

/// The table of the bounds, for texts.
const BOUNDS: &str = "bench/gates/bounds.txt";

/// Measures every workload and prints what was counted beside its bound.
pub(crate) fn check(run: &Run<'_>) -> Outcome {
    match run.peers.path(Peer::Valgrind) {
        Ok(valgrind) => measure(run, &valgrind).into(),
        Err(failure) => Outcome::Skipped(failure.to_string()),
    }
}

fn measure(run: &Run<'_>, valgrind: &Path) -> Result<(), Failure> {
    let root = &run.workspace.root;
    let text =
        fs::read_to_string(root.join(BOUNDS)).map_err(|error| Failure::new(format!("{BOUNDS}: {error}")))?;
    let bounds = bounds::read(&text).map_err(|error| Failure::new(format!("{BOUNDS}: {error}")))?;
    let calls = build(run, valgrind, "gates-calls", &["--no-default-features"])?;
    let messaging = build(run, valgrind, "gates-messaging", &[])?;

    let mut report = Report::default();
    println!("{}", Report::heading());
    for workload in bounds::workloads(&bounds) {
        let of_workload = || bounds.iter().filter(|bound| bound.workload == workload);
        let in_process = of_workload().any(|bound| bound.side == Side::Process);
        let program = if bounds::is_messaging(workload) { &messaging } else { &calls };
        for (side, costs) in program.cost(workload, in_process)? {
            match of_workload().find(|bound| bound.side == side) {
                Some(bound) => println!("{}", report.line(bound, costs)),
                None if bounds::has_side(workload, side) => {
                    return Err(Failure::new(format!("{BOUNDS}: {workload} has no {}", side.name())));
                }
                None => {}
            }
        }
    }
    report.end()
}

/// Builds `gates` with some features, under a name of its own.
fn build(run: &Run<'_>, valgrind: &Path, name: &str, features: &[&str]) -> Result<Program, Failure> {
    let build = ["build", "--profile", "gates", "--package", "gates"];
    run.workspace.cargo(&[&build[..], features].concat())?;
    // Beside the folder of the profile that this very program was built with.
    let folder = run.workspace.built()?.with_file_name("gates");
    let path = folder.join(name);
    fs::copy(folder.join("gates"), &path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    Ok(Program { valgrind: valgrind.to_owned(), path })
}

/// Results of the comparisons so far.
#[derive(Debug, Default)]
struct Report {
    over: Vec<String>,
    loose: Vec<String>,
}

/// A bound that is this many times above the count is too high to be useful.
const LOOSE: f64 = 1.4;

impl Report {
    fn heading() -> String {
        let mut line = format!("{:<15} {:<6}", "a call costs", "side");
        for metric in METRICS {
            let _ = write!(line, " {metric:>22}");
        }
        line
    }

    fn line(&mut self, bound: &Bound, costs: Costs) -> String {
        let mut line = format!("{:<15} {:<6}", bound.workload, bound.side.name());
        for (at, metric) in METRICS.into_iter().enumerate() {
            let (measured, most) = (costs.0[at], bound.most.0[at]);
            let what = format!(
                "{}, {}: {} {metric} a call, bound {}",
                bound.workload,
                bound.side.name(),
                number(measured),
                number(most)
            );
            let mark = if measured > most { "!" } else { " " };
            if measured > most {
                self.over.push(what);
            } else if measured * LOOSE < most && most > 0.1 {
                self.loose.push(what);
            }
            let _ = write!(line, " {:>21}{mark}", format!("{} of {}", number(measured), number(most)));
        }
        line
    }

    fn end(self) -> Result<(), Failure> {
        if !self.loose.is_empty() {
            println!("lower these in {BOUNDS}, so that they stay: {}", self.loose.join("; "));
        }
        if self.over.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{}; find what costs more (`{}` shows the functions), or raise the bound in {BOUNDS} and say in the \
             commit what it buys",
            self.over.join("; "),
            "valgrind --tool=callgrind target/gates/gates-calls call WORKLOAD CALLS ADDRESS, then callgrind_annotate"
        )))
    }
}

/// Formats a number with its significant digits.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(most: [f64; 4]) -> Bound {
        Bound { workload: "echo-1".to_owned(), side: Side::Client, most: Costs(most) }
    }

    #[test]
    fn a_cost_over_its_bound_fails_and_names_the_remedy() {
        let mut report = Report::default();
        let line = report.line(&bound([100.0, 2.0, 1.0, 0.0]), Costs([101.0, 2.0, 0.9, 0.0]));
        assert!(line.contains("101 of 100!") && line.contains("2.000 of 2.000 "), "{line}");
        let failure = report.end().unwrap_err().to_string();
        assert!(
            failure.starts_with("echo-1, client: 101 instructions a call, bound 100; find what"),
            "{failure}"
        );
        assert!(failure.contains(BOUNDS), "{failure}");
    }

    #[test]
    fn a_cost_far_below_its_bound_is_named_and_does_not_fail() {
        let mut report = Report::default();
        report.line(&bound([100.0, 2.0, 1.0, 0.0]), Costs([50.0, 2.0, 1.0, 0.0]));
        assert_eq!(report.loose, ["echo-1, client: 50.0 instructions a call, bound 100"]);
        assert!(report.end().is_ok());
    }
}
