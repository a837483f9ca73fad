//! A group with acknowledgements whose only receiver is killed again and again: each entry must arrive, and one that
//! arrives again must be marked as a repeated delivery.

use super::{
    options::Load,
    peer::{self, Reading, Side},
    process::PeerProcess,
    rival::Program,
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Time that a receiver lives after its first entry.
const LIFE: Duration = Duration::from_millis(20);
/// Time in which a process must print its next line.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time without a new entry after which the missing ones are lost. An entry whose delivery failed is delivered again
/// once its connection is closed.
const QUIET: Duration = Duration::from_secs(10);

/// Result of the kills.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Kills {
    pub(super) entries: u64,
    pub(super) lost: u64,
    /// Entries that arrived again.
    pub(super) duplicates: u64,
    /// Entries that arrived again without the mark of a repeated delivery.
    pub(super) unmarked: u64,
}

/// Kills a receiver `load.kills` times while entries are published, then lets a last one receive the rest.
///
/// # Errors
/// When a process does not start or prints nothing for a minute.
pub(super) fn measure(program: &Program, load: &Load) -> Result<Kills, String> {
    let mut arguments = peer::command_line(Side::Bind, load, None);
    arguments.push("--killed".to_owned());
    let mut publisher = PeerProcess::start(program, &arguments, None)?;
    let endpoint = publisher.line_after("listening on ", PATIENCE)?;
    let mut arguments = peer::command_line(Side::Connect, load, Some(&endpoint));
    arguments.push("--killed".to_owned());
    let start = || PeerProcess::start(program, &arguments, None);
    let mut deliveries = Deliveries::default();
    for _ in 0..load.kills {
        let mut receiver = start()?;
        deliveries.add(&receiver.line(PATIENCE)?)?;
        thread::sleep(LIFE);
        receiver.kill();
        // The lines that it printed before.
        while let Ok(line) = receiver.line(PATIENCE) {
            deliveries.add(&line)?;
        }
    }
    let mut last = start()?;
    deliveries.add(&last.line(PATIENCE)?)?;
    publisher.go_on()?;
    let published: Reading =
        serde_json::from_str(&publisher.line(PATIENCE)?).map_err(|error| error.to_string())?;
    let mut quiet = Instant::now();
    while deliveries.distinct < published.messages && quiet.elapsed() < QUIET {
        if let Ok(line) = last.line(QUIET) {
            deliveries.add(&line)?;
            quiet = Instant::now();
        }
    }
    Ok(deliveries.result(published.messages))
}

/// Entries that arrived.
#[derive(Debug, Default)]
struct Deliveries {
    /// By number.
    arrived: Vec<bool>,
    distinct: u64,
    duplicates: u64,
    unmarked: u64,
}

impl Deliveries {
    /// Counts a line with the number of an entry and of its delivery. A line that its process did not complete has not
    /// been acknowledged.
    fn add(&mut self, line: &str) -> Result<(), String> {
        let fields = line.strip_suffix('.').and_then(|line| line.split_once(' '));
        let Some((number, attempt)) = fields else { return Ok(()) };
        let number: usize = number.parse().map_err(|error| format!("{line:?}: {error}"))?;
        if self.arrived.len() <= number {
            self.arrived.resize(number + 1, false);
        }
        if std::mem::replace(&mut self.arrived[number], true) {
            self.duplicates += 1;
            self.unmarked += u64::from(attempt == "1");
        } else {
            self.distinct += 1;
        }
        Ok(())
    }

    fn result(&self, published: u64) -> Kills {
        Kills {
            entries: published,
            lost: published.saturating_sub(self.distinct),
            duplicates: self.duplicates,
            unmarked: self.unmarked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_repeated_entries_are_counted() {
        let mut deliveries = Deliveries::default();
        for line in ["0 1.", "1 1.", "1 2.", "3 1.", "3 1.", "4"] {
            deliveries.add(line).unwrap();
        }
        assert_eq!(deliveries.result(5), Kills { entries: 5, lost: 2, duplicates: 2, unmarked: 1 });
        assert!(deliveries.add("x 1.").is_err());
    }
}
