//! The machine and the time of a measurement, which are needed to interpret its numbers.

use super::worker;
use serde::Serialize;
use std::{fs, time::SystemTime};

/// The machine properties that affect benchmark results.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    pub kernel: String,
    /// UTC, in ISO 8601.
    pub date: String,
    /// The version of this program.
    pub version: &'static str,
}

impl Machine {
    /// Returns the current machine and time.
    pub fn here() -> Self {
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            cpu: cpu_model(&cpu_info).unwrap_or("unknown").to_owned(),
            cores: worker::cores(),
            kernel: if kernel.is_empty() { "unknown".to_owned() } else { kernel.trim().to_owned() },
            date: iso_date(now.as_secs()),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

fn cpu_model(cpu_info: &str) -> Option<&str> {
    let line = cpu_info.lines().find(|line| line.starts_with("model name") || line.starts_with("Model"))?;
    Some(line.split_once(':')?.1.trim())
}

/// Converts seconds since 1970 to a date in the Gregorian calendar, by eras of 400 years that begin in March.
fn iso_date(unix: u64) -> String {
    let days = unix / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (unix / 3600 % 24, unix / 60 % 60, unix % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(iso_date(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso_date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(iso_date(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(iso_date(1_798_761_600), "2027-01-01T00:00:00Z");
    }

    #[test]
    fn the_cpu_is_named_once() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n"), Some("Some CPU @ 3 GHz"));
        assert_eq!(cpu_model(""), None);
    }
}
