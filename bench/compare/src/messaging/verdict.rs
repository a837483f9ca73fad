//! Compares a result with a goal.

use super::goals::Goal;
use switchboard_cli::bench::bus::record::{Other, Record};

/// A goal, what was measured, and whether it is met.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) goal: String,
    /// `None` if the rival was not measured.
    pub(super) measured: Option<String>,
    pub(super) is_met: bool,
    /// The measured value as a part of the goal: 1 and more is met.
    pub(super) part: Option<f64>,
}

/// Compares `record` with `goal`.
pub(super) fn verdict(goal: Goal, record: &Record) -> Verdict {
    let other = |name: &str| record.others.iter().find(|other| other.name == name);
    let of = |name: &str, value: fn(&Other) -> Option<f64>| other(name).and_then(value);
    let times = |value: f64| format!("{value:.2} x");
    match goal {
        Goal::Rate(name, least) => {
            let text = format!("at least {least} x {name}");
            let per_core = of(name, |other| Some(other.core_ratio)).unwrap_or_default();
            let both = |value: f64| format!("{value:.2} x; per core {per_core:.2} x");
            at_least(text, of(name, |other| Some(other.ratio)), least, both)
        }
        Goal::P50(name, most) => {
            at_most(format!("p50 at most {most} x {name}"), of(name, |other| other.p50_ratio), most, times)
        }
        Goal::P99(name, most) => {
            at_most(format!("p99 at most {most} x {name}"), of(name, |other| other.p99_ratio), most, times)
        }
        Goal::MessagesPerSecond(least) => {
            let per_core = record.ours.messages_per_core_s / 1e6;
            let millions = |rate: f64| format!("{:.2} M/s; per core {per_core:.2} M/s", rate / 1e6);
            at_least(
                format!("at least {} M/s", least / 1e6),
                Some(record.ours.messages_per_s),
                least,
                millions,
            )
        }
        Goal::NoneLost => {
            let (lost, unmarked) = (record.ours.lost, record.unmarked);
            let is_met = record.kills > 0 && lost == 0 && unmarked == 0;
            Verdict {
                goal: format!("receiver killed {} times: none lost, repeated ones marked", record.kills),
                measured: (record.kills > 0).then(|| {
                    let repeated = record.ours.duplicates;
                    format!(
                        "{lost} of {} lost, {repeated} repeated, {unmarked} not marked",
                        record.killed_entries
                    )
                }),
                is_met,
                part: Some(if is_met { 1.0 } else { 0.0 }),
            }
        }
        Goal::BytesPerPeer(most) => {
            let bytes = |bytes: f64| format!("{bytes:.0} B");
            at_most(format!("at most {most:.0} B per peer"), record.ours.bytes_per_peer, most, bytes)
        }
    }
}

fn at_least(goal: String, measured: Option<f64>, least: f64, text: impl Fn(f64) -> String) -> Verdict {
    let part = measured.map(|measured| measured / least);
    Verdict { goal, measured: measured.map(text), is_met: part.is_some_and(|part| part >= 1.0), part }
}

fn at_most(goal: String, measured: Option<f64>, most: f64, text: impl Fn(f64) -> String) -> Verdict {
    let part = measured.map(|measured| most / measured.max(f64::EPSILON));
    Verdict { goal, measured: measured.map(text), is_met: part.is_some_and(|part| part >= 1.0), part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_from_its_limit_on() {
        let least = |measured| at_least("x".to_owned(), measured, 2.0, |value| value.to_string());
        assert!(least(Some(2.0)).is_met && !least(Some(1.9)).is_met);
        assert_eq!((least(None).is_met, least(None).measured), (false, None));
        let most = |measured| at_most("x".to_owned(), Some(measured), 2.0, |value| value.to_string());
        assert!(most(2.0).is_met && !most(2.1).is_met);
        assert_eq!((most(4.0).part, most(4.0).measured), (Some(0.5), Some("4".to_owned())));
    }
}
