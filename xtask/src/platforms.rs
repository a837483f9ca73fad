//! Builds for systems other than Linux, as docs/packages.md describes them. The crates are checked and not linked, with
//! features that need no C compiler for the target.

use std::{path::Path, process::Command};

use crate::process::{self, Failure, Workspace};
use crate::steps::{Outcome, Run};

const MACOS: &str = "aarch64-apple-darwin";
const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// The beginning of the only error of a build for a system that is not Unix.
const NOT_UNIX: &str = "error: switchboard compiles for Unix systems only";

/// Checks what compiles for macOS and for Windows, and the error of what does not.
pub(crate) fn check(run: &Run<'_>) -> Outcome {
    match install_targets(run.workspace) {
        Ok(()) => compile(run.workspace).into(),
        Err(reason) => Outcome::Skipped(reason.to_string()),
    }
}

/// Installs the targets that the toolchain of the workspace does not have, with rustup.
///
/// # Errors
/// Says which targets are missing, and why they were not installed.
fn install_targets(workspace: &Workspace) -> Result<(), Failure> {
    let missing = missing_targets(workspace)?;
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" and ");
    if !process::is_in_path("rustup") {
        let text =
            format!("the toolchain has no {names}, and rustup, which installs targets, is not in the path");
        return Err(Failure::new(text));
    }
    // In the workspace, so that the targets are those of its toolchain.
    let mut install = Command::new("rustup");
    install.args(["target", "add"]).args(&missing).current_dir(&workspace.root);
    process::run(&mut install)
        .map_err(|failure| Failure::new(format!("{names} cannot be installed (offline?): {failure}")))?;
    // A compiler that rustup does not manage does not get its targets.
    match missing_targets(workspace)?.join(" and ") {
        names if names.is_empty() => Ok(()),
        names => {
            Err(Failure::new(format!("rustup installed {names} for another toolchain than the one in use")))
        }
    }
}

/// Returns the targets whose standard library the compiler of the workspace does not have.
fn missing_targets(workspace: &Workspace) -> Result<Vec<&'static str>, Failure> {
    let mut missing = Vec::new();
    for target in [MACOS, WINDOWS] {
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command.args(["--print", "target-libdir", "--target", target]).current_dir(&workspace.root);
        if !has_standard_library(Path::new(process::output(&mut command)?.trim())) {
            missing.push(target);
        }
    }
    Ok(missing)
}

/// Returns whether this folder of a target's libraries contains the standard library.
fn has_standard_library(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
}

fn compile(workspace: &Workspace) -> Result<(), Failure> {
    let check = ["check", "--lib", "--no-default-features", "--target"];
    let framework = ["--package", "switchboard", "--features", "macros,proto,wires,handover"];
    workspace.cargo(&[&check[..], &[MACOS], &framework].concat())?;
    let portable = ["--package", "switchboard-wire", "--package", "switchboard-core"];
    workspace.cargo(&[&check[..], &[WINDOWS], &portable].concat())?;
    let mut command = workspace.cargo_command();
    match process::output(command.args(check).args([WINDOWS, "--quiet", "--package", "switchboard-net"])) {
        Ok(_) => {
            Err(Failure::new(format!("switchboard-net compiles for {WINDOWS}: docs/packages.md denies it")))
        }
        Err(failure) if has_one_error(&failure.to_string()) => Ok(()),
        Err(failure) => Err(Failure::new(format!("expected `{NOT_UNIX}` alone: {failure}"))),
    }
}

/// Returns whether the output of the compiler has the error about the system, and no other.
fn has_one_error(output: &str) -> bool {
    output.contains(NOT_UNIX) && output.contains("due to 1 previous error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_its_standard_library_is_missing() {
        let folder = std::env::temp_dir().join(format!("switchboard-targets-{}", std::process::id()));
        assert!(!has_standard_library(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(!has_standard_library(&folder));
        std::fs::write(folder.join("libstd-0123.rlib"), "").unwrap();
        assert!(has_standard_library(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_error_about_the_system_is_the_only_one() {
        let end = |count: &str| format!("\nerror: could not compile `switchboard-net` (lib) due to {count}");
        assert!(has_one_error(&format!("{NOT_UNIX}, because{}", end("1 previous error"))));
        assert!(!has_one_error(&format!("{NOT_UNIX}, because{}", end("3 previous errors"))));
        assert!(!has_one_error(&end("1 previous error")));
    }
}
