//! Builds for systems other than Linux, as docs/packages.md describes them. The crates are checked and not linked, with
//! features that need no C compiler for the target.

use std::process::Command;

use crate::process::{self, Failure, Workspace};
use crate::steps::{Outcome, Run};

const MACOS: &str = "aarch64-apple-darwin";
const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// The beginning of the only error of a build for a system that is not Unix.
const NOT_UNIX: &str = "error: switchboard compiles for Unix systems only";

/// Checks what compiles for macOS and for Windows, and the error of what does not.
pub(crate) fn check(run: &Run<'_>) -> Outcome {
    if !process::is_in_path("rustup") {
        return Outcome::Skipped("rustup is not installed".into());
    }
    // In the workspace, so that the targets are those of its toolchain.
    let mut install = Command::new("rustup");
    install.args(["target", "add", MACOS, WINDOWS]).current_dir(&run.workspace.root);
    if let Err(failure) = process::run(&mut install) {
        return Outcome::Skipped(failure.to_string());
    }
    compile(run.workspace).into()
}

fn compile(workspace: &Workspace) -> Result<(), Failure> {
    let check = ["check", "--lib", "--no-default-features", "--target"];
    let framework = ["--package", "switchboard", "--features", "macros,proto,wires"];
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
    fn the_error_about_the_system_is_the_only_one() {
        let end = |count: &str| format!("\nerror: could not compile `switchboard-net` (lib) due to {count}");
        assert!(has_one_error(&format!("{NOT_UNIX}, because{}", end("1 previous error"))));
        assert!(!has_one_error(&format!("{NOT_UNIX}, because{}", end("3 previous errors"))));
        assert!(!has_one_error(&end("1 previous error")));
    }
}
