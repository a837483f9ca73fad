//! The current measurement and the estimated time, on standard error: one line that changes on a terminal, a line for
//! each cell elsewhere.

use super::plan::{Plan, Step};
use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};
use switchboard_cli::terminal::Terminal;

/// Shows a run until dropped.
pub(super) struct Progress<'a> {
    plan: &'a Plan,
    is_terminal: bool,
    total: usize,
    made: usize,
    /// Remaining seconds by the plan, and the ratio of actual to planned time.
    left_s: f64,
    planned_s: f64,
    start: Instant,
    cell: String,
}

impl<'a> Progress<'a> {
    /// Shows the estimate for `steps`.
    pub(super) fn start(plan: &'a Plan, steps: &[Step<'_>]) -> Self {
        let left_s: f64 = steps.iter().map(|&step| plan.seconds_of(step)).sum();
        if !steps.is_empty() {
            eprintln!(
                "{} measurements of {} s after {} s of warm-up: about {}",
                steps.len(),
                plan.seconds,
                plan.warm_up,
                time(left_s)
            );
        }
        Self {
            plan,
            is_terminal: io::stderr().is_terminal(),
            total: steps.len(),
            made: 0,
            left_s,
            planned_s: 0.0,
            start: Instant::now(),
            cell: String::new(),
        }
    }

    /// Shows that `step` is running.
    pub(super) fn show(&mut self, step: Step<'_>) {
        let title = format!("{}: {}", step.cell.preset.name(), step.cell.label);
        if self.is_terminal {
            let (bar, rounds, name) = (self.bar(), self.plan.rounds, &step.subject.name);
            let line = format!("{bar}  {title}, round {} of {rounds}, {name}", step.round);
            // A line that the terminal breaks would not be written over.
            eprint!("\r\x1b[2K{}", Terminal::stderr().clip(&line));
            let _ = io::stderr().flush();
        } else if title != self.cell {
            eprintln!("{}  {title}", self.bar());
            self.cell = title;
        }
    }

    /// Counts `step` as done.
    pub(super) fn done(&mut self, step: Step<'_>) {
        self.planned_s += self.plan.seconds_of(step);
        self.skip(step);
    }

    /// Counts `step` as not needed.
    pub(super) fn skip(&mut self, step: Step<'_>) {
        self.made += 1;
        self.left_s -= self.plan.seconds_of(step);
    }

    fn bar(&self) -> String {
        let share = self.made as f64 / self.total.max(1) as f64;
        bar(share, left(self.left_s, self.planned_s, self.start.elapsed()))
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.is_terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Returns the seconds left: by the plan, scaled by the ratio of actual to planned time so far.
fn left(left_s: f64, planned_s: f64, elapsed: Duration) -> f64 {
    if planned_s > 0.0 { left_s * elapsed.as_secs_f64() / planned_s } else { left_s }
}

const WIDTH: usize = 16;

fn bar(share: f64, left_s: f64) -> String {
    let full = (share * WIDTH as f64) as usize;
    format!(
        "[{}{}] {:3.0} %, {} left",
        "#".repeat(full),
        ".".repeat(WIDTH - full),
        share * 100.0,
        time(left_s)
    )
}

fn time(seconds: f64) -> String {
    if seconds < 90.0 { format!("{:.0} s", seconds.max(0.0)) } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_time_taken() {
        assert_eq!(left(100.0, 0.0, Duration::ZERO), 100.0);
        assert_eq!(left(100.0, 10.0, Duration::from_secs(20)), 200.0);
        assert_eq!(bar(0.5, 600.0), "[########........]  50 %, 10 min left");
        assert_eq!(bar(1.0, 0.0), "[################] 100 %, 0 s left");
    }
}
