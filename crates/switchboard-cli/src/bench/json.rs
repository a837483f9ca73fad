//! Results for programs: an array with an object for each run.

use super::record::Record;

/// `records` as JSON, indented, with a line feed at the end.
pub(super) fn render(records: &[Record]) -> String {
    let mut text =
        serde_json::to_string_pretty(records).expect("records have no maps with keys that are not text");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::example;
    use serde_json::Value;

    #[test]
    fn runs_have_the_promised_fields() {
        let text = render(&[example(true), example(false)]);
        let runs: Vec<Value> = serde_json::from_str(&text).unwrap();
        for run in &runs {
            for field in [
                "callers",
                "bytes",
                "connections",
                "seconds",
                "requests",
                "requests_per_s",
                "mb_per_s",
                "mean_us",
                "p50_us",
                "p90_us",
                "p99_us",
                "p999_us",
                "max_us",
                "errors",
                "missed",
            ] {
                assert!(run[field].is_number(), "{field}: {}", run[field]);
            }
            for field in ["cpu", "kernel", "date", "version"] {
                assert!(run["machine"][field].is_string(), "{field}");
            }
            assert_eq!(run["name"], "echo");
            assert_eq!(run["rate"], Value::Null);
            assert!(run["machine"]["cores"].is_u64());
        }
        assert_eq!(runs[0]["floor_ratio"], 0.5);
        assert_eq!(runs[0]["floor"]["requests_per_s"], 2000.0);
        assert_eq!(runs[0]["rounds"].as_array().unwrap().len(), 3);
        assert_eq!((&runs[1]["floor_ratio"], &runs[1]["floor"]), (&Value::Null, &Value::Null));
    }
}
