//! The benchmark command from the outside: its own servers, its formats, its complaints.

use serde_json::Value;
use std::{
    fs,
    process::{Command, Output},
};

fn bench(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_switchboard"))
        .arg("bench")
        .args(line.split_whitespace())
        .output()
        .expect("the program was built for this test")
}

/// The runs that `line` measured, as JSON.
fn runs(line: &str) -> Vec<Value> {
    let output = bench(&format!("{line} --json -"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("standard output is JSON")
}

#[test]
fn echo_is_measured_beside_the_floor() {
    let runs = runs("echo --seconds 0.2 --callers 1,2 --bytes 0,1000 --floor --rounds 1");
    assert_eq!(runs.len(), 4);
    for run in &runs {
        assert_eq!(run["errors"], 0, "{run}");
        assert!(run["requests"].as_u64().unwrap() > 0);
        assert!(run["p50_us"].as_f64().unwrap() <= run["max_us"].as_f64().unwrap());
        assert!(run["floor"]["requests"].as_u64().unwrap() > 0);
        assert!(run["floor_ratio"].as_f64().unwrap() > 0.0);
    }
    assert_eq!((&runs[3]["callers"], &runs[3]["bytes"]), (&2.into(), &1000.into()));
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let runs = runs("echo --seconds 0.3 --callers 4 --rate 1000");
    let (served, missed) = (runs[0]["requests"].as_u64().unwrap(), runs[0]["missed"].as_u64().unwrap());
    // Every arrival is accounted for, however slow the machine: 300 were due, less one at each worker's edges.
    assert!(served + missed >= 296, "{}", runs[0]);
}

#[test]
fn a_number_of_calls_is_made_on_one_connection() {
    let runs = runs("connection --calls 2000");
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!((&run["requests"], &run["connections"]), (&2000.into(), &1.into()));
    }
    assert_eq!(runs[1]["callers"], 1000);
}

#[test]
fn every_wire_is_measured() {
    for wire in ["grpc", "grpc-web", "connect", "jsonrpc", "websocket"] {
        let runs = runs(&format!("echo --seconds 0.2 --callers 2 --wire {wire}"));
        assert_eq!(runs[0]["errors"], 0, "{wire}: {}", runs[0]);
        assert!(runs[0]["requests"].as_u64().unwrap() > 0, "{wire}");
    }
}

#[test]
fn many_json_rpc_calls_are_outstanding_on_one_connection() {
    for line in [
        "connection --calls 2000 --wire jsonrpc",
        "message --requests 500 --callers 50 --connections 1 --wire jsonrpc",
        "sizes --requests 20 --bytes 0,1000000 --wire jsonrpc",
        "idle --connections 20 --wire jsonrpc",
    ] {
        for run in runs(line) {
            assert_eq!(run["errors"], 0, "{line}: {run}");
        }
    }
}

#[test]
fn large_payloads_come_back_whole_and_leave_nothing_behind() {
    let runs = runs("sizes --requests 60 --bytes 10,1000000");
    assert!(runs.iter().all(|run| run["errors"] == 0 && run["mb_per_s"].as_f64().unwrap() > 0.0), "{runs:?}");
    assert!(runs.iter().all(|run| run["requests"] == 60), "{runs:?}");
    let rss = |when: &str| runs[1][when].as_u64().unwrap();
    let (after_10, end) = (rss("server_rss_after_10"), rss("server_rss_end"));
    assert!(
        after_10 > 0 && end < after_10 + 30_000_000,
        "{after_10} bytes after ten replies, {end} at the end"
    );
}

#[test]
fn idle_connections_have_a_size() {
    let runs = runs("idle --connections 200");
    assert_eq!((&runs[0]["requests"], &runs[0]["errors"]), (&200.into(), &0.into()));
    assert!(runs[0]["bytes_per_connection"].is_number());
}

#[test]
fn people_get_a_table_and_a_page() {
    let page = std::env::temp_dir().join(format!("switchboard-bench-{}.html", std::process::id()));
    let output = bench(&format!("message --seconds 0.1 --callers 3 --html {}", page.display()));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("requests/s") && table.contains("3 callers, 581 B"), "{table}");
    let html = fs::read_to_string(&page).unwrap();
    fs::remove_file(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("bench message --seconds 0.1"));
}

#[test]
fn a_server_that_is_not_there_is_named() {
    // Port 0 can be asked for but never connected to.
    let output = bench("echo --target 127.0.0.1:0");
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("connect to tcp://127.0.0.1:0"), "{error}");
}

#[test]
fn flags_out_of_range_say_what_is_allowed() {
    let output = bench("echo --callers 0");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("1..=100000"));
}
