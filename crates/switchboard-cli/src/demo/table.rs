//! The results of the calls, as a table and as JSON.

use super::answers::{self, Method};
use serde_json::json;
use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

/// One method called over one wire.
#[derive(Debug)]
pub(super) struct Row {
    wire: String,
    method: Method,
    answer: Result<String, String>,
    time: Duration,
}

/// A call that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

impl Row {
    /// Calls twice and keeps the second reply and its time; the first call opens connections and fills caches.
    pub(super) async fn measure<F>(wire: impl Into<String>, method: Method, call: impl Fn() -> F) -> Row
    where
        F: Future<Output = Result<String, String>>,
    {
        let wire = wire.into();
        let once = async || match tokio::time::timeout(PATIENCE, call()).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no reply within {PATIENCE:?}")),
        };
        let first = once().await;
        if first.is_err() {
            return Row { wire, method, answer: first, time: Duration::ZERO };
        }
        let start = Instant::now();
        let answer = once().await;
        Row { wire, method, answer, time: start.elapsed() }
    }

    pub(super) fn is_right(&self) -> bool {
        self.answer.as_ref().is_ok_and(|answer| *answer == self.method.expected())
    }

    fn micros(&self) -> u128 {
        self.time.as_micros()
    }
}

/// Formats the error of a row.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: ", self.wire, self.method.name())?;
        match &self.answer {
            Ok(answer) => write!(f, "expected {:?}, got {answer:?}", self.method.expected()),
            Err(error) => write!(f, "{error}"),
        }
    }
}

/// Returns the table for people.
pub(super) fn text(rows: &[Row]) -> String {
    let shown = |row: &Row| match &row.answer {
        Ok(answer) if row.is_right() => answer.clone(),
        Ok(answer) => format!("WRONG {answer}"),
        Err(error) => format!("FAILED {error}"),
    };
    let wires = width(rows.iter().map(|row| row.wire.clone()));
    let methods = width(rows.iter().map(|row| row.method.name().to_owned()));
    let answers = width(rows.iter().map(shown));
    let mut table = format!("{:wires$}  {:methods$}  {:answers$}  {:>6}\n", "WIRE", "METHOD", "ANSWER", "US");
    for (at, row) in rows.iter().enumerate() {
        if at > 0 && rows[at - 1].wire != row.wire {
            table.push('\n');
        }
        let (method, answer, micros) = (row.method.name(), shown(row), row.micros());
        table.push_str(&format!("{:wires$}  {method:methods$}  {answer:answers$}  {micros:>6}\n", row.wire));
    }
    let right = rows.iter().filter(|row| row.is_right()).count();
    table.push_str(&format!("\n{right} of {} answers are right.\n", rows.len()));
    table.push_str("US: microseconds of a second call, with a warm connection.\n\n");
    table + &answers::list()
}

fn width(cells: impl Iterator<Item = String>) -> usize {
    cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
}

/// Returns the table for programs.
pub(super) fn json(rows: &[Row]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "wire": row.wire,
                "method": row.method.name(),
                "ok": row.is_right(),
                "answer": row.answer.as_ref().ok(),
                "error": row.answer.as_ref().err(),
                "us": row.time.as_nanos() as f64 / 1e3,
            })
        })
        .collect();
    format!("{:#}\n", serde_json::Value::from(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn row(answer: Result<&str, &str>) -> Row {
        let call = || async { answer.map(str::to_owned).map_err(str::to_owned) };
        Row::measure("native", Method::Greet, call).await
    }

    #[tokio::test(flavor = "current_thread")]
    async fn answers_are_compared() {
        let rows = [row(Ok("hello Ada")).await, row(Ok("hello")).await, row(Err("gone")).await];
        assert_eq!(rows.each_ref().map(Row::is_right), [true, false, false]);
        let table = text(&rows);
        assert!(table.contains("WRONG hello") && table.contains("FAILED gone"), "{table}");
        assert!(table.contains("1 of 3 answers are right"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&json(&rows)).unwrap();
        assert_eq!((&json[0]["ok"], &json[2]["error"]), (&true.into(), &"gone".into()));
        assert_eq!(rows[1].to_string(), "native, Greeter.Greet: expected \"hello Ada\", got \"hello\"");
    }
}
