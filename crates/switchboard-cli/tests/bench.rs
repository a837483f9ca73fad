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
fn sockets_are_measured_between_two_processes() {
    let runs = runs("bus push-pull --seconds 0.3 --warm-up 0.1 --rounds 2 --peers 1,2 --bytes 100");
    assert_eq!(runs.len(), 2);
    for (run, senders) in runs.iter().zip([1, 2]) {
        assert_eq!((&run["name"], &run["bytes"]), (&"push-pull".into(), &100.into()));
        assert_eq!((&run["senders"], &run["receivers"]), (&senders.into(), &1.into()));
        for member in
            ["messages_per_s", "p50_us", "p99_us", "p999_us", "cpu_us_per_message", "messages_per_cpu_s"]
        {
            assert!(run[member].as_f64().unwrap() > 0.0, "{member}: {run}");
        }
        assert_eq!(
            (&run["lost"], &run["duplicates"], &run["dropped"]),
            (&0.into(), &0.into(), &0.into()),
            "{run}"
        );
        assert_eq!((&run["ratio"], &run["bytes_per_peer"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn every_workload_of_sockets_and_topics_runs() {
    let workloads = [
        "inproc",
        "publish",
        "curve",
        "req-rep",
        "pub-sub --peers 3",
        "router --peers 2",
        "stalled --peers 3",
        "idle --peers 1000",
        "fan-out --peers 5 --floor",
    ];
    for workload in workloads {
        let runs = runs(&format!("bus {workload} --seconds 0.2 --warm-up 0.1 --rounds 1"));
        assert_eq!(
            (&runs[0]["lost"], &runs[0]["duplicates"]),
            (&0.into(), &0.into()),
            "{workload}: {}",
            runs[0]
        );
        let member = if workload.starts_with("idle") { "bytes_per_peer" } else { "messages_per_s" };
        assert!(runs[0][member].as_f64().unwrap() > 0.0, "{workload}: {}", runs[0]);
        let has_reference =
            ["acked", "curve", "fan-out", "stalled"].iter().any(|name| workload.starts_with(name));
        assert_eq!(runs[0]["ratio"].is_number(), has_reference, "{}", runs[0]);
    }
}

#[test]
fn killed_receivers_of_a_group_lose_no_entry() {
    let runs = runs("bus acked --seconds 0.2 --warm-up 0.1 --rounds 1 --kills 3");
    let run = &runs[0];
    assert_eq!((&run["kills"], &run["lost"], &run["unmarked"]), (&3.into(), &0.into(), &0.into()), "{run}");
    assert!(run["killed_entries"].as_u64().unwrap() > 0 && run["ratio"].as_f64().unwrap() > 0.0, "{run}");
}

#[test]
fn workloads_that_cannot_run_say_why() {
    for (line, expected) in [
        ("bus push-pull --floor", "workload push-pull has no floor: leave out --floor"),
        ("bus stalled --peers 1", "workload stalled needs at least 2 peers (--peers)"),
        ("bus push-pull --bytes 19", "20..=64000000"),
    ] {
        let output = bench(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let runs = runs("echo --seconds 0.3 --callers 4 --rate 1000");
    let (served, missed) = (runs[0]["requests"].as_u64().unwrap(), runs[0]["missed"].as_u64().unwrap());
    // Every arrival is accounted for, however slow the machine: 300 were due, less one at each worker's edges.
    assert!(served + missed >= 296, "{}", runs[0]);
}

#[test]
fn echo_is_measured_behind_the_chain() {
    let runs = runs("echo --seconds 0.2 --callers 2 --chain --rounds 1");
    assert_eq!((&runs[0]["errors"], &runs[0]["chain"]["errors"]), (&0.into(), &0.into()), "{}", runs[0]);
    assert!(runs[0]["chain"]["requests"].as_u64().unwrap() > 0);
    assert!(runs[0]["chain_ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(runs[0]["floor"], Value::Null);
}

#[test]
fn overload_is_measured_with_and_without_a_limit() {
    let page = std::env::temp_dir().join(format!("switchboard-overload-{}.html", std::process::id()));
    let line =
        format!("overload --units 4 --work-us 2000 --loads 0.1,3 --seconds 0.2 --html {}", page.display());
    let output = bench(&format!("{line} --json -"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["name"], &report["capacity_per_s"]), (&"overload".into(), &2000.0.into()));
    let points = report["points"].as_array().unwrap();
    let named: Vec<_> = points
        .iter()
        .map(|point| (point["limit"].as_str().unwrap(), point["load"].as_f64().unwrap()))
        .collect();
    assert_eq!(named, [("off", 0.1), ("off", 3.0), ("auto", 0.1), ("auto", 3.0)]);
    for point in points {
        assert_eq!(point["errors"], 0, "{point}");
        let count = |name: &str| point[name].as_f64().unwrap();
        let known =
            count("goodput_per_s") + count("refused_per_s") + count("late_per_s") + count("unsent_per_s");
        assert!((known - count("offered_per_s")).abs() < 20.0, "every call is accounted for: {point}");
    }
    assert_eq!(report["tenants"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["verdicts"].as_array().map(Vec::len), Some(2));
    let html = fs::read_to_string(&page).unwrap();
    fs::remove_file(&page).unwrap();
    assert_eq!(html.matches("<svg").count(), 2);
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
    let callable = switchboard::wire::WIRES.iter().filter(|spec| spec.is_callable());
    for wire in callable.map(|spec| spec.name).chain(["grpc-web-text", "websocket"]) {
        let runs = runs(&format!("echo --seconds 0.2 --callers 2 --wire {wire}"));
        assert_eq!(runs[0]["errors"], 0, "{wire}: {}", runs[0]);
        assert!(runs[0]["requests"].as_u64().unwrap() > 0, "{wire}");
    }
}

#[test]
fn wires_of_others_are_measured_beside_the_native_one() {
    for line in
        ["message --wire rpcx", "message --wire thrift", "message --wire kiss", "echo --wire baidu_std"]
    {
        let runs = runs(&format!("{line} --seconds 0.2 --callers 20 --native --rounds 1"));
        assert_eq!((&runs[0]["errors"], &runs[0]["native"]["errors"]), (&0.into(), &0.into()), "{}", runs[0]);
        assert!(runs[0]["native"]["requests"].as_u64().unwrap() > 0);
        assert!(runs[0]["native_ratio"].as_f64().unwrap() > 0.0);
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
fn an_unreachable_server_is_named() {
    // Port 0 can be given but never connected to.
    let output = bench("echo --target 127.0.0.1:0");
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("connect to tcp://127.0.0.1:0"), "{error}");
}

#[test]
fn errors_of_flags_out_of_range_name_the_allowed_values() {
    let output = bench("echo --callers 0");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("1..=100000"));
}
