//! Results for people.

use super::record::{Other, Record, Side};
use crate::terminal::Terminal;
use std::fmt::Write;

/// Returns a block of lines for each workload.
pub(super) fn render(records: &[Record], _terminal: Terminal) -> String {
    let mut text = String::new();
    for record in records {
        let _ = writeln!(
            text,
            "{}, {} B, {} to {}: medians of {} rounds of {} s",
            record.name, record.bytes, record.senders, record.receivers, record.rounds, record.seconds
        );
        line(&mut text, "switchboard", &record.ours, None);
        if record.kills > 0 {
            let _ = writeln!(
                text,
                "  receiver killed {} times, {} entries: lost {}, repeated {} of which not marked {}",
                record.kills,
                record.killed_entries,
                record.ours.lost,
                record.ours.duplicates,
                record.unmarked
            );
        }
        for other in &record.others {
            line(&mut text, &format!("{} {}", other.name, other.version), &other.side, Some(other));
        }
    }
    text
}

fn line(text: &mut String, name: &str, side: &Side, ratio: Option<&Other>) {
    let _ = write!(text, "  {name:24}");
    if let Some(bytes) = side.bytes_per_peer {
        let _ = write!(text, " {bytes:9.0} B per peer");
    } else {
        let _ = write!(text, " {:11.0}/s {:8.3} us of CPU", side.messages_per_s, side.cpu_us_per_message);
    }
    if let (Some(p50), Some(p99)) = (side.p50_us, side.p99_us) {
        let _ = write!(text, "  p50 {p50:.1} us, p99 {p99:.1} us");
    }
    if side.lost + side.duplicates + side.dropped > 0 {
        let _ =
            write!(text, "  lost {}, duplicates {}, dropped {}", side.lost, side.duplicates, side.dropped);
    }
    if let Some(other) = ratio {
        let _ = match other.bytes_per_peer_ratio {
            Some(bytes) => write!(text, "  switchboard {bytes:.2} x the memory"),
            None => write!(
                text,
                "  switchboard {:.2} x ({:.2} to {:.2}), per core {:.2} x, CPU {:.2} x",
                other.ratio, other.ratio_min, other.ratio_max, other.core_ratio, other.cpu_ratio
            ),
        };
        if let (Some(p50), Some(p99)) = (other.p50_ratio, other.p99_ratio) {
            let _ = write!(text, ", p50 {p50:.2} x, p99 {p99:.2} x");
        }
    }
    text.push('\n');
}
