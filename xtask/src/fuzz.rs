//! `cargo xtask fuzz`: runs the fuzz targets for a time each, and keeps a small corpus of each in the tree.
//!
//! libFuzzer's own corpora, logs and inputs that fail are below `fuzz/target/runs` and are kept for the next run.
//! `fuzz/corpus/TARGET` has the smallest inputs that reach the most code; `tests/corpora.rs` of `switchboard-wire` runs
//! them without a fuzzer. An input that made a target fail belongs there too, once its cause is fixed.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::process::{self, Failure, Workspace};

/// Bytes and files of one target's corpus in the tree: 24 targets stay below 100 KB.
const CORPUS_BYTES_MAX: u64 = 4096;
const CORPUS_FILES_MAX: usize = 32;

/// Memory of one fuzzer, in MiB, and seconds for one input; a target that needs more has failed.
const RSS_LIMIT_MB: &str = "-rss_limit_mb=2048";
const TIMEOUT: &str = "-timeout=20";

/// The targets to fuzz, and the time for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    seconds: u64,
    /// Fuzzers at the same time.
    jobs: usize,
    only: Option<Vec<String>>,
}

impl Plan {
    /// Reads the arguments after `fuzz`.
    ///
    /// # Errors
    ///
    /// Names the argument that is not understood.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut plan = Self { seconds: 60, jobs: 1, only: None };
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("`{option}` needs a value"))?;
            let number = || match value.parse::<u64>() {
                Ok(number @ 1..) => Ok(number),
                _ => Err(format!("`{option} {value}`: a whole number above 0 is expected")),
            };
            match *option {
                "--seconds" => plan.seconds = number()?,
                "--jobs" => plan.jobs = number()? as usize,
                "--only" => plan.only = Some(value.split(',').map(|name| name.trim().to_owned()).collect()),
                _ => return Err(format!("`{option}` is not an option of `fuzz`")),
            }
        }
        Ok(plan)
    }
}

/// Runs the fuzzers and prints a table; returns whether no input failed.
pub(crate) fn run(workspace: &Workspace, plan: &Plan) -> bool {
    match run_all(workspace, plan) {
        Ok(crashes) => crashes == 0,
        Err(failure) => {
            eprintln!("error: {failure}");
            false
        }
    }
}

fn run_all(workspace: &Workspace, plan: &Plan) -> Result<usize, Failure> {
    let targets = chosen(targets(workspace)?, plan.only.as_deref())?;
    check_tools(workspace)?;
    for target in &targets {
        process::run(fuzz(workspace).args(["build", target]))?;
    }
    println!("{} targets, {} s each, {} at a time", targets.len(), plan.seconds, plan.jobs);
    let waiting = Mutex::new(targets.iter());
    let finished = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs {
            scope.spawn(|| {
                // The guard is released before the target runs.
                let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
                while let Some(target) = next() {
                    let report = fuzz_one(workspace, target, plan.seconds);
                    if let Ok(mut finished) = finished.lock() {
                        finished.push(report);
                    }
                }
            });
        }
    });
    let mut reports = finished.into_inner().unwrap_or_default();
    reports.sort_by(|one, other| one.target.cmp(&other.target));
    print!("\n{}", table(&reports));
    Ok(reports.iter().map(|report| report.crashes.len() + usize::from(report.failure.is_some())).sum())
}

/// The targets that exist, in order.
fn targets(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let folder = workspace.root.join("fuzz/fuzz_targets");
    let entries =
        fs::read_dir(&folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

/// Returns the targets of `all` that are wanted.
fn chosen(all: Vec<String>, only: Option<&[String]>) -> Result<Vec<String>, Failure> {
    let Some(only) = only else { return Ok(all) };
    match only.iter().find(|name| !all.contains(name)) {
        Some(unknown) => {
            Err(Failure::new(format!("fuzz target `{unknown}` not found; there are {}", all.join(", "))))
        }
        None => Ok(only.to_vec()),
    }
}

/// Checks that the nightly toolchain and cargo-fuzz can be started.
fn check_tools(workspace: &Workspace) -> Result<(), Failure> {
    let nightly = process::output(Command::new("rustup").args(["run", "nightly", "rustc", "--version"]));
    if let Err(failure) = nightly {
        let hint = "fuzzing needs a nightly toolchain: `rustup toolchain install nightly`";
        return Err(Failure::new(format!("{hint} ({failure})")));
    }
    if let Err(failure) = process::output(fuzz(workspace).arg("--version")) {
        let hint = "fuzzing needs cargo-fuzz: `cargo install cargo-fuzz`";
        return Err(Failure::new(format!("{hint} ({failure})")));
    }
    Ok(())
}

/// `cargo fuzz` on the nightly toolchain, which its flags of the compiler need.
fn fuzz(workspace: &Workspace) -> Command {
    let mut command = Command::new("rustup");
    // Cargo sets the variable `CARGO` for its children; a fuzzer is built by another cargo.
    command.args(["run", "nightly", "cargo", "fuzz"]).env_remove("CARGO").current_dir(&workspace.root);
    command
}

/// How the run of one target ended.
#[derive(Debug, Default)]
struct Report {
    target: String,
    took: Duration,
    executions: u64,
    /// Inputs in the corpus of libFuzzer, and in that of the tree.
    corpus: [usize; 2],
    /// Files with inputs that failed in this run.
    crashes: Vec<PathBuf>,
    /// The fuzzer itself could not run or end.
    failure: Option<String>,
}

/// Fuzzes one target, then replaces its corpus in the tree.
fn fuzz_one(workspace: &Workspace, target: &str, seconds: u64) -> Report {
    let runs = workspace.root.join("fuzz/target/runs");
    let [corpus, artifacts, least] =
        ["corpus", "artifacts", "least"].map(|kind| runs.join(kind).join(target));
    let kept = workspace.root.join("fuzz/corpus").join(target);
    let log = runs.join(format!("{target}.log"));
    let mut report = Report { target: target.to_owned(), ..Report::default() };
    for folder in [&corpus, &artifacts, &kept] {
        if let Err(error) = fs::create_dir_all(folder) {
            report.failure = Some(format!("{}: {error}", folder.display()));
            return report;
        }
    }
    let before = files(&artifacts);
    let mut said = String::new();
    let began = Instant::now();
    let mut command = fuzz(workspace);
    command.args(["run", target]).args([&corpus, &kept]).arg("--");
    command.args([TIMEOUT, RSS_LIMIT_MB, "-print_final_stats=1"]).arg(format!("-max_total_time={seconds}"));
    command.arg(with_path("-artifact_prefix=", &artifacts));
    let ended = process::run_watching(&mut command, |line| {
        report.executions = executions(line).unwrap_or(report.executions);
        let _ = writeln!(said, "{line}");
    });
    report.took = began.elapsed();
    report.crashes = files(&artifacts).into_iter().filter(|file| !before.contains(file)).collect();
    if let Err(failure) = ended
        && report.crashes.is_empty()
    {
        report.failure = Some(failure.to_string());
    }
    // Empties the folder: it holds inputs of an earlier run, which this run does not need.
    let _ = fs::remove_dir_all(&least);
    let merged = fs::create_dir_all(&least).is_ok() && {
        let mut command = fuzz(workspace);
        command.args(["run", target]).args([&least, &corpus, &kept]).args([
            "--",
            "-set_cover_merge=1",
            TIMEOUT,
        ]);
        process::run_watching(&mut command, |line| {
            let _ = writeln!(said, "{line}");
        })
        .is_ok()
    };
    if merged && let Err(error) = keep_smallest(&least, &kept) {
        report.failure = Some(format!("corpus: {error}"));
    }
    let _ = fs::write(&log, said);
    report.corpus = [files(&corpus).len(), files(&kept).len()];
    report
}

/// A flag of libFuzzer with the path of a folder.
fn with_path(flag: &str, folder: &Path) -> OsString {
    let mut argument = OsString::from(flag);
    argument.push(folder);
    argument.push("/");
    argument
}

/// The count in a line of libFuzzer's closing statistics.
fn executions(line: &str) -> Option<u64> {
    line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok()
}

/// Replaces the files of `kept` by the smallest of `least`, within the limits of a corpus.
fn keep_smallest(least: &Path, kept: &Path) -> std::io::Result<()> {
    let mut inputs: Vec<(u64, PathBuf)> = files(least)
        .into_iter()
        .filter_map(|file| fs::metadata(&file).ok().map(|metadata| (metadata.len(), file)))
        .collect();
    inputs.sort();
    for file in files(kept) {
        fs::remove_file(file)?;
    }
    let mut bytes = 0;
    for (len, file) in inputs.into_iter().take(CORPUS_FILES_MAX) {
        bytes += len;
        if bytes > CORPUS_BYTES_MAX {
            break;
        }
        if let Some(name) = file.file_name() {
            fs::copy(&file, kept.join(name))?;
        }
    }
    Ok(())
}

/// The files of a folder, in order; none where there is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// One line per target, the sums, and below them the inputs that failed.
fn table(reports: &[Report]) -> String {
    let mut text = String::from("target                  seconds    executions  corpus    kept  crashes\n");
    let mut line = |name: &str, report: &Report| {
        let (seconds, executions) = (report.took.as_secs(), report.executions);
        let ([corpus, kept], crashes) = (report.corpus, report.crashes.len());
        let _ = writeln!(
            text,
            "{name:<22}  {seconds:>7}  {executions:>12}  {corpus:>6}  {kept:>6}  {crashes:>7}"
        );
    };
    let mut sum = Report::default();
    for report in reports {
        line(&report.target, report);
        sum.took += report.took;
        sum.executions += report.executions;
        sum.corpus = [sum.corpus[0] + report.corpus[0], sum.corpus[1] + report.corpus[1]];
        sum.crashes.extend(report.crashes.iter().cloned());
    }
    line("all", &sum);
    for report in reports {
        for crash in &report.crashes {
            let _ = writeln!(text, "CRASH   {}: {}", report.target, crash.display());
        }
        if let Some(failure) = &report.failure {
            let _ = writeln!(text, "FAILED  {}: {failure}", report.target);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_order() {
        let plan = Plan::parse(&["--only", "sniff, metadata", "--seconds", "5"]).unwrap();
        assert_eq!(plan.seconds, 5);
        assert_eq!(plan.only, Some(vec!["sniff".to_owned(), "metadata".to_owned()]));
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--jobs", "x"], &["--often", "1"]] {
            assert!(Plan::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_target_that_does_not_exist_is_named_with_those_that_do() {
        let failure = chosen(vec!["sniff".into()], Some(&["snif".into()])).unwrap_err().to_string();
        assert!(failure.contains("`snif`") && failure.contains("there are sniff"), "{failure}");
    }

    #[test]
    fn executions_come_from_the_closing_statistics() {
        assert_eq!(executions("stat::number_of_executed_units: 8123"), Some(8123));
        assert_eq!(executions("#8123 DONE cov: 12"), None);
    }

    #[test]
    fn crashes_and_failures_are_listed_below_the_table() {
        let crashed = Report { target: "sniff".into(), crashes: vec!["crash-1".into()], ..Report::default() };
        let failed = Report { target: "wire".into(), failure: Some("no memory".into()), ..Report::default() };
        let table = table(&[crashed, failed]);
        assert!(
            table.contains("CRASH   sniff: crash-1") && table.contains("FAILED  wire: no memory"),
            "{table}"
        );
    }
}
