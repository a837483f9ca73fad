//! Starts a new run, or resumes an interrupted one.
//!
//! Measurements of different flags, machines or versions are never mixed in one file.

use super::{options::CompareArgs, plan::Plan, raw::Raw, subject::Found};
use switchboard_cli::bench::machine::Machine;

/// Returns a new run for `args`, or the existing one in their file.
///
/// # Errors
/// When the file contains something else, or a run with other flags; the text says which.
pub(super) fn begin(args: &CompareArgs, found: Found, machine: Machine) -> Result<Raw, String> {
    let mut kept = Raw::read(args.file())?;
    if let Some(raw) = kept.as_mut().filter(|_| args.retry_failed) {
        raw.forget_failures();
    }
    let raw = match (kept, &args.resume) {
        (Some(raw), Some(_)) => go_on(raw, args, &found, &machine)?,
        (None, Some(file)) => return Err(format!("--resume {}: no such file", file.display())),
        (kept, None) => begin_or_go_on(kept, args, found, machine)?,
    };
    if !raw.rows.is_empty() {
        eprintln!(
            "{} measurements are in {}, {} are to be made",
            raw.rows.len(),
            args.file().display(),
            raw.missing().len()
        );
    }
    Ok(raw)
}

/// Resumes a run with `--resume`: the file determines the measurements.
fn go_on(mut raw: Raw, args: &CompareArgs, found: &Found, machine: &Machine) -> Result<Raw, String> {
    let file = args.file().display();
    if raw.missing().is_empty() {
        // Nothing will be started, so the report can be written on any machine.
        return Ok(raw);
    }
    if let Some(contradiction) = raw.plan.contradiction(args, machine) {
        return Err(format!("--resume {file}: {contradiction} and cannot be changed"));
    }
    raw.plan.equip(&found.subjects).map_err(|error| format!("--resume {file}: {error}"))?;
    Ok(raw)
}

fn begin_or_go_on(
    kept: Option<Raw>,
    args: &CompareArgs,
    found: Found,
    machine: Machine,
) -> Result<Raw, String> {
    let file = args.file().display();
    let plan = Plan::new(args, found.select(&args.rivals)?, &machine);
    let Some(mut raw) = kept else {
        return Ok(Raw {
            command: switchboard_cli::bench::command_line("bench-compare"),
            started: machine.date,
            version: machine.version.to_owned(),
            plan,
            rows: Vec::new(),
        });
    };
    if raw.missing().is_empty() {
        return Err(format!(
            "{file} contains a complete run: give --json FILE for a new one, or --resume {file} to report it again"
        ));
    }
    if let Some(difference) = raw.plan.difference(&plan) {
        return Err(format!(
            "{file} contains another run that was interrupted: {difference}; give its flags to go on with it, or --json \
             FILE for a new one"
        ));
    }
    raw.plan = plan;
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cell::Preset,
        fake,
        raw::{Outcome, Row},
        subject::{Kind, Subject},
    };
    use std::{fs, path::PathBuf};

    fn args(name: &str, resume: bool) -> CompareArgs {
        let file =
            std::env::temp_dir().join(format!("switchboard-resume-{name}-{}.json", std::process::id()));
        CompareArgs {
            preset: vec![Preset::Callers],
            rivals: Vec::new(),
            seconds: Some(1.0),
            rounds: None,
            json: if resume { PathBuf::new() } else { file.clone() },
            resume: resume.then_some(file),
            retry_failed: false,
            html: None,
            peers: None,
        }
    }

    fn found() -> Found {
        let mut subjects = fake::raw(&[("tonic", 1.0, 1.0)], 1.0, 1.0).plan.subjects;
        for subject in &mut subjects {
            subject.server = vec![format!("/{}", subject.name)];
        }
        Found { subjects, absent: Vec::new() }
    }

    fn start(args: &CompareArgs) -> Result<Raw, String> {
        begin(args, found(), Machine::here())
    }

    /// A run that was interrupted after its first cell.
    fn interrupted(args: &CompareArgs) -> Raw {
        let mut raw = start(args).unwrap();
        assert_eq!(raw.missing().len(), 4 * 3 * 4);
        let steps: Vec<_> =
            raw.plan.steps().iter().take(12).map(|step| (step.subject.name.clone(), step.round)).collect();
        for (subject, round) in steps {
            let outcome = Outcome::Failed("never".to_owned());
            raw.rows.push(Row { cell: "callers/1".to_owned(), subject, round, outcome });
        }
        raw.write(args.file()).unwrap();
        raw
    }

    #[test]
    fn an_interrupted_run_resumes_with_the_missing_steps() {
        let args_here = args("on", false);
        let kept = interrupted(&args_here);
        let raw = start(&args_here).unwrap();
        assert_eq!((raw.rows.len(), raw.missing().len()), (12, 36));
        assert_eq!((&raw.rows, &raw.started), (&kept.rows, &kept.started));
        // Resumed by file name, without other flags.
        let resumed = CompareArgs { preset: Vec::new(), seconds: None, ..args("on", true) };
        let raw = start(&resumed).unwrap();
        assert_eq!((raw.missing().len(), raw.plan.seconds), (36, 1.0));
        assert!(raw.plan.subjects.iter().all(|subject| !subject.server.is_empty()));
        fs::remove_file(args_here.file()).unwrap();
    }

    #[test]
    fn a_run_of_other_flags_is_refused() {
        let args_here = args("other", false);
        interrupted(&args_here);
        for (changed, named) in [
            (CompareArgs { rounds: Some(4), ..args("other", false) }, "--rounds is 3 there and 4 here"),
            (CompareArgs { seconds: Some(2.0), ..args("other", false) }, "--seconds is 1 there"),
            (
                CompareArgs { preset: vec![Preset::Sizes], ..args("other", false) },
                "--preset is callers there",
            ),
            (CompareArgs { rivals: vec!["tonic".to_owned()], ..args("other", false) }, "--rivals is"),
            (CompareArgs { rounds: Some(5), ..args("other", true) }, "--rounds is 3 there"),
        ] {
            let error = start(&changed).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        let mut newer = found();
        newer.subjects.retain(|subject| subject.kind != Kind::Rival);
        let error = begin(&args("other", true), newer, Machine::here()).unwrap_err();
        assert!(error.contains("tonic 1.2.3 is not here"), "{error}");
        fs::remove_file(args_here.file()).unwrap();
    }

    #[test]
    fn a_complete_run_is_reported_again_only_on_request() {
        let args_here = args("complete", false);
        let raw = fake::raw(&[("tonic", 1.0, 1.0)], 1.0, 1.0);
        raw.write(args_here.file()).unwrap();
        assert!(start(&args_here).unwrap_err().contains("contains a complete run"));
        assert_eq!(start(&args("complete", true)).unwrap().rows.len(), raw.rows.len());
        fs::remove_file(args_here.file()).unwrap();
        assert!(start(&args("complete", true)).unwrap_err().contains("no such file"));
    }

    #[test]
    fn failed_measurements_are_repeated_on_request() {
        let args_here = args("again", false);
        let mut raw = fake::raw(&[("tonic", 1.0, 1.0)], 1.0, 1.0);
        let rows = raw.rows.len();
        raw.rows[7].outcome = Outcome::Failed("no port".to_owned());
        raw.write(args_here.file()).unwrap();
        assert!(start(&args("again", true)).unwrap().missing().is_empty());
        let flags =
            CompareArgs { retry_failed: true, preset: Vec::new(), seconds: None, ..args("again", true) };
        let again = start(&flags);
        // The machine of a resumed run must be that of its beginning.
        assert!(again.unwrap_err().contains("the machine is"));
        raw.forget_failures();
        assert_eq!((raw.rows.len(), raw.missing().len()), (rows - 1, 1));
        fs::remove_file(args_here.file()).unwrap();
    }

    #[test]
    fn a_foreign_file_is_not_changed() {
        let args_here = args("else", false);
        fs::write(args_here.file(), "[]").unwrap();
        assert!(start(&args_here).unwrap_err().contains("contains no run of `bench-compare`"));
        fs::remove_file(args_here.file()).unwrap();
    }

    #[test]
    fn a_subject_that_failed_twice_in_a_cell_is_not_tried_again() {
        let args_here = args("twice", false);
        let mut raw = start(&args_here).unwrap();
        let failed = |round| Row {
            cell: "callers/1".to_owned(),
            subject: "tonic".to_owned(),
            round,
            outcome: Outcome::Failed("no".to_owned()),
        };
        raw.rows.extend([failed(1), failed(2)]);
        let is_it = |subject: &Subject, cell: &str| subject.name == "tonic" && cell == "callers/1";
        assert!(!raw.missing().iter().any(|step| is_it(step.subject, &step.cell.id)));
        assert_eq!(raw.missing().len(), 48 - 3);
    }
}
