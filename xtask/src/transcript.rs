//! A step in a process of its own, whose output is kept in a file and shown only when the step fails. A run
//! of every step prints some thousand lines, most of them of programs that succeeded. On a build machine only
//! the output of failed steps is shown, so that the lines of a failure are easy to find.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::process::{Failure, Workspace};
use crate::steps::{Outcome, Step};

/// The command of this binary that runs one step and reports its outcome.
pub(crate) const COMMAND: &str = "step";

/// Separator between the output of a step and its reason, which ends the transcript.
const REASON: &str = "\n<== because ";

const FAILED: u8 = 1;
const SKIPPED: u8 = 3;

/// How much of a failed step's output is shown, from its end.
const SHOWN_LINES: usize = 60;

/// Runs the step in a process of its own; its output goes to `STEP.log` beside what cargo builds, and the end of it
/// to `shown`, on lines of its own, when the step failed.
pub(crate) fn run(workspace: &Workspace, step: &Step, shown: &mut String) -> Outcome {
    match try_run(workspace, step, shown) {
        Ok(outcome) => outcome,
        Err(failure) => Outcome::Failed(failure.to_string()),
    }
}

fn try_run(workspace: &Workspace, step: &Step, shown: &mut String) -> Result<Outcome, Failure> {
    let path = log(workspace, step.name)?;
    let cannot = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    let file = File::create(&path).map_err(cannot)?;
    let errors = file.try_clone().map_err(cannot)?;
    let itself = std::env::current_exe().map_err(|error| Failure::new(format!("own path: {error}")))?;
    let status = Command::new(itself)
        .args([COMMAND, step.name])
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .status()
        .map_err(|error| Failure::new(format!("own binary: {error}")))?;
    let text = String::from_utf8_lossy(&fs::read(&path).map_err(cannot)?).into_owned();
    let outcome =
        outcome(status.code(), &text).unwrap_or_else(|| Outcome::Failed(format!("ended by {status}")));
    if let Outcome::Failed(_) = outcome {
        *shown = format!("\n{}", end_of(&text, &path));
    }
    Ok(outcome)
}

/// Ends this process with the outcome of the step.
pub(crate) fn exit(outcome: &Outcome) -> ExitCode {
    match outcome {
        Outcome::Passed | Outcome::PassedAtSecondTry(_) => ExitCode::SUCCESS,
        Outcome::Failed(reason) => {
            println!("{REASON}{reason}");
            ExitCode::from(FAILED)
        }
        Outcome::Skipped(reason) => {
            println!("{REASON}{reason}");
            ExitCode::from(SKIPPED)
        }
    }
}

/// Parses the outcome that [`exit`] printed; `None` when the process ended otherwise.
fn outcome(code: Option<i32>, text: &str) -> Option<Outcome> {
    let code = u8::try_from(code?).ok()?;
    if code == 0 {
        return Some(Outcome::Passed);
    }
    let reason = text.rsplit_once(REASON)?.1.trim_end().to_owned();
    match code {
        FAILED => Some(Outcome::Failed(reason)),
        SKIPPED => Some(Outcome::Skipped(reason)),
        _ => None,
    }
}

/// The last lines of a transcript before its reason, and where the others are.
fn end_of(text: &str, path: &Path) -> String {
    let output = text.rsplit_once(REASON).map_or(text, |(output, _)| output);
    let lines: Vec<&str> = output.lines().collect();
    let left_out = lines.len().saturating_sub(SHOWN_LINES);
    let whole = if left_out == 0 {
        String::new()
    } else {
        format!("({left_out} lines before: {})\n", path.display())
    };
    format!("{whole}{}", lines[left_out..].join("\n"))
}

fn log(workspace: &Workspace, step: &str) -> Result<PathBuf, Failure> {
    let folder = workspace.built()?.join("steps");
    fs::create_dir_all(&folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    Ok(folder.join(format!("{step}.log")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_ends_the_transcript() {
        let text = format!("a\nb{REASON}`cargo`: exit status: 101\nand more\n");
        let failed = outcome(Some(1), &text);
        assert!(
            matches!(&failed, Some(Outcome::Failed(reason)) if reason == "`cargo`: exit status: 101\nand more"),
            "{failed:?}"
        );
        assert!(matches!(outcome(Some(3), &text), Some(Outcome::Skipped(_))));
        assert!(matches!(outcome(Some(0), "a"), Some(Outcome::Passed)));
    }

    #[test]
    fn a_killed_process_has_no_outcome() {
        assert!(outcome(None, "a").is_none());
        assert!(outcome(Some(101), "panicked").is_none());
    }

    #[test]
    fn the_end_is_shown_and_the_rest_is_named() {
        let text: String = (0..100).map(|at| format!("line {at}\n")).collect();
        let shown = end_of(&text, Path::new("fmt.log"));
        assert!(shown.starts_with("(40 lines before: fmt.log)\nline 40\n"), "{shown}");
        assert!(shown.ends_with("line 99"), "{shown}");
        assert_eq!(end_of(&format!("one\n{REASON}two"), Path::new("fmt.log")), "one");
    }
}
