//! The comparison from the outside: its own subjects, its files, its errors.

use serde_json::Value;
use std::{
    fs,
    process::{Command, Output},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bench-compare");

/// A folder of this test's own, gone when dropped.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("switchboard-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("peers")).expect("the temporary folder can be written");
        Self(folder)
    }

    /// Compares with no rivals but those in this folder.
    fn compare(&self, line: &str) -> Output {
        Command::new(PROGRAM)
            .arg("--peers")
            .arg(self.0.join("peers"))
            .args(line.split_whitespace())
            .output()
            .expect("the program was built for this test")
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
    let manifest = format!(
        r#"{{ "name": "twin", "version": "9", "language": "Rust", "calls": ["echo"],
        "server": ["{PROGRAM}", "peer", "floor", "server"],
        "client": ["{PROGRAM}", "peer", "floor", "client"] }}"#
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
    let manifest = format!(
        r#"{{ "name": "twin", "version": "9", "language": "Rust", "calls": ["message"], "wire": "rpcx",
        "server": ["{PROGRAM}", "peer", "pinned", "server"],
        "client": ["{PROGRAM}", "peer", "pinned", "client", "--wire", "rpcx"] }}"#
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
        "--peers {0}/peers --json {0}/raw.json --preset connection --rivals floor --rounds 1 --seconds 0.2",
        folder.0.display()
    );
    let mut run = Command::new(PROGRAM)
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
    for subject in ["floor", "pinned", "tokio"] {
        let mut server = Command::new(PROGRAM)
            .args(["peer", subject, "server", "--call", "echo", "--host", "127.0.7.7"])
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
            let client = Command::new(PROGRAM)
                .args(["peer", subject, "client", "--address", address, "--warm-up", "0.05"])
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
