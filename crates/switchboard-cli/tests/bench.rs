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
    for wire in ["baidu_std", "connect", "grpc", "grpc-web", "jsonrpc", "rpcx", "thrift", "websocket"] {
        let runs = runs(&format!("echo --seconds 0.2 --callers 2 --wire {wire}"));
        assert_eq!(runs[0]["errors"], 0, "{wire}: {}", runs[0]);
        assert!(runs[0]["requests"].as_u64().unwrap() > 0, "{wire}");
    }
}

#[test]
fn wires_of_others_are_measured_beside_the_native_one() {
    for line in ["message --wire rpcx", "message --wire thrift", "echo --wire baidu_std"] {
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

/// A folder of this test's own, gone when dropped.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("switchboard-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("peers")).expect("the temporary folder can be written");
        Self(folder)
    }

    /// `bench compare` with no rivals but those in this folder.
    fn compare(&self, line: &str) -> Output {
        let folder = self.0.display();
        bench(&format!("compare --peers {folder}/peers {line}"))
    }

    fn json(&self) -> Value {
        let text = fs::read(self.0.join("raw.json")).expect("the measurements were written");
        serde_json::from_slice(&text).expect("they are JSON")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("the folder is this test's own");
    }
}

#[test]
fn a_comparison_measures_everybody_and_is_drawn() {
    let folder = Folder::new("compare");
    let (raw, page) = (folder.0.join("raw.json"), folder.0.join("report.html"));
    // A rival that speaks the contract: Switchboard's floor under another name.
    let peer = folder.0.join("peers/twin");
    fs::create_dir(&peer).unwrap();
    let program = env!("CARGO_BIN_EXE_switchboard");
    let manifest = format!(
        r#"{{ "name": "twin", "version": "9", "language": "Rust", "calls": ["echo"],
        "server": ["{program}", "bench-peer", "floor", "server"],
        "client": ["{program}", "bench-peer", "floor", "client"] }}"#
    );
    fs::write(peer.join("peer.json"), manifest).unwrap();
    let line = format!(
        "--preset connection --rounds 1 --seconds 0.3 --json {} --html {}",
        raw.display(),
        page.display()
    );
    let output = folder.compare(&line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = folder.json();
    // Three cells of four subjects, but the twin makes no stream.
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 11, "{rows:?}");
    for row in rows {
        let measured = &row["outcome"]["measured"];
        assert!(measured["requests"].as_u64().unwrap() > 0, "{row}");
        assert!(
            measured["total_requests"].as_u64().unwrap() > measured["requests"].as_u64().unwrap(),
            "{row}"
        );
        assert_eq!(measured["errors"], 0, "{row}");
        assert!(measured["server_peak_bytes"].as_u64().unwrap() > 1_000_000, "{row}");
    }
    // The system counts in hundredths of a second, of which a short measurement may have none.
    let cpu_s = |row: &Value| row["outcome"]["measured"]["cpu_client_s"].as_f64().unwrap();
    assert!(rows.iter().map(cpu_s).sum::<f64>() > 0.0);
    assert!(found["verdicts"].as_array().is_some_and(|verdicts| !verdicts.is_empty()));
    assert_eq!(found["medians"].as_array().unwrap().len(), 11);
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("twin") && html.contains("switchboard, tokio runtime") && html.contains("one by one")
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("connection: one by one") && text.contains("twin"), "{text}");

    // Complete: not measured again unasked, but drawn again.
    assert!(!folder.compare(&line).status.success());
    fs::remove_file(&page).unwrap();
    let again = folder.compare(&format!("--resume {} --html {}", raw.display(), page.display()));
    assert!(again.status.success() && page.exists(), "{}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn rivals_of_a_wire_are_measured_with_switchboard_at_either_end() {
    let folder = Folder::new("wires");
    // A rival that speaks the wire: Switchboard under another name.
    let peer = folder.0.join("peers/twin");
    fs::create_dir(&peer).unwrap();
    let program = env!("CARGO_BIN_EXE_switchboard");
    let manifest = format!(
        r#"{{ "name": "twin", "version": "9", "language": "Rust", "calls": ["message"], "wire": "rpcx",
        "server": ["{program}", "bench-peer", "pinned", "server"],
        "client": ["{program}", "bench-peer", "pinned", "client", "--wire", "rpcx"] }}"#
    );
    fs::write(peer.join("peer.json"), manifest).unwrap();
    let raw = folder.0.join("raw.json");
    let line = format!("--preset wires --rounds 1 --seconds 0.1 --json {}", raw.display());
    let output = folder.compare(&line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = folder.json()["rows"].as_array().unwrap().clone();
    let mut subjects: Vec<_> =
        rows.iter().map(|row| (row["cell"].as_str().unwrap(), row["subject"].as_str().unwrap())).collect();
    subjects.sort_unstable();
    let named: Vec<_> =
        subjects.iter().filter(|(cell, _)| *cell == "wires/100").map(|(_, name)| *name).collect();
    assert_eq!(
        named,
        [
            "switchboard",
            "switchboard client, twin server",
            "switchboard on baidu_std",
            "switchboard on rpcx",
            "switchboard on thrift",
            "twin",
            "twin client, switchboard server"
        ]
    );
    assert!(rows.iter().all(|row| row["outcome"]["measured"]["errors"] == 0), "{rows:?}");
}

#[test]
fn an_interrupted_comparison_continues_with_the_missing_measurements() {
    let folder = Folder::new("interrupted");
    let raw = folder.0.join("raw.json");
    let line = format!("--preset callers --rivals floor --rounds 2 --seconds 0.2 --json {}", raw.display());
    assert!(folder.compare(&line).status.success());
    let mut kept = folder.json();
    let all = kept["rows"].as_array().unwrap().len();
    assert_eq!(all, 4 * 2 * 2);
    kept["rows"].as_array_mut().unwrap().truncate(all - 3);
    kept["rows"][0]["outcome"]["measured"]["requests"] = 424_242.into();
    fs::write(&raw, kept.to_string()).unwrap();

    let other = folder.compare(&line.replace("--rounds 2", "--rounds 3"));
    let error = String::from_utf8(other.stderr).unwrap();
    assert!(error.contains("--rounds is 2 there and 3 here"), "{error}");

    let output = folder.compare(&line);
    let output_text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output_text.contains("3 measurements of 0.2 s"), "{output_text}");
    let rows = folder.json()["rows"].clone();
    assert_eq!(rows.as_array().unwrap().len(), all);
    assert_eq!(rows[0]["outcome"]["measured"]["requests"], 424_242);
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    use std::{
        io::{BufRead, BufReader, Read},
        process::Stdio,
    };
    let folder = Folder::new("ctrl-c");
    let line = format!(
        "bench compare --peers {0}/peers --json {0}/raw.json --preset connection --rivals floor --rounds 1 --seconds 0.2",
        folder.0.display()
    );
    let mut run = Command::new(env!("CARGO_BIN_EXE_switchboard"))
        .args(line.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(run.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("connection: one by one") {
        assert_ne!(stderr.read_line(&mut text).unwrap(), 0, "{text}");
    }
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    stderr.read_to_string(&mut text).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1), "{text}");
    assert!(text.contains("the same command goes on with the"), "{text}");
    let rows = folder.json()["rows"].as_array().unwrap().clone();
    assert!((1..6).contains(&rows.len()), "{rows:?}");
    assert!(rows.iter().all(|row| row["outcome"]["measured"].is_object()), "{rows:?}");
    let again = folder.compare(&format!("--resume {}/raw.json", folder.0.display()));
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(folder.json()["rows"].as_array().unwrap().len(), 6);
}

#[test]
fn a_comparison_says_what_presets_and_rivals_there_are() {
    let folder = Folder::new("names");
    let stderr_of = |line: &str| String::from_utf8(folder.compare(line).stderr).unwrap();
    let error = stderr_of("--preset pigeons");
    assert!(error.contains("callers") && error.contains("codecs"), "{error}");
    let error = stderr_of("--rivals pigeon");
    assert!(error.contains("unknown rival \"pigeon\"") && error.contains("floor"), "{error}");
}

#[test]
fn own_subjects_speak_the_contract_in_every_mode() {
    use std::{
        io::{BufRead, BufReader},
        process::Stdio,
    };
    let program = env!("CARGO_BIN_EXE_switchboard");
    for subject in ["floor", "pinned", "tokio"] {
        let mut server = Command::new(program)
            .args(["bench-peer", subject, "server", "--call", "echo", "--host", "127.0.7.7"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        assert!(address.starts_with("127.0.7.7:"), "{subject}: {address}");
        let two = format!("{address},{address}");
        for (address, rest) in [
            (address, "--call echo --callers 3 --bytes 1000 --connections 1"),
            (address, "--call message --callers 3"),
            (two.as_str(), "--call message --callers 4"),
            (address, "--call echo --callers 2 --mode per-call"),
            (address, "--call echo --callers 50 --bytes 10000 --mode stream"),
        ] {
            let client = Command::new(program)
                .args(["bench-peer", subject, "client", "--address", address, "--warm-up", "0.05"])
                .args(["--seconds", "0.1"])
                .args(rest.split(' '))
                .output()
                .unwrap();
            let what = format!("{subject} {rest}: {}", String::from_utf8_lossy(&client.stderr));
            assert!(client.status.success(), "{what}");
            let answer: Value = serde_json::from_slice(&client.stdout).expect(&what);
            assert_eq!(answer["errors"], 0, "{what} {answer}");
            assert!(answer["requests"].as_u64().unwrap() > 0, "{what} {answer}");
        }
        // It ends with its standard input.
        drop(server.stdin.take());
        assert!(server.wait().unwrap().success(), "{subject}");
    }
}
