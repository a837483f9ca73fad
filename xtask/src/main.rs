//! The developer command: `cargo xtask test` runs every kind of test that the project has.
//!
//! Only the standard library is used, so that the first run on a fresh machine compiles in seconds.
//! `steps` is the list of what is checked, `peers` installs the foreign programs that some steps need, `tidy`
//! enforces what review should not discuss, `interop` runs foreign programs against the real binary, and `suites` runs
//! whole foreign test suites against servers that implement their services.

mod examples;
mod interop;
mod peers;
mod process;
mod steps;
mod suites;
mod tidy;

use std::process::ExitCode;

use peers::Peers;
use process::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--only STEP[,STEP]] [--list]   run every kind of test, or only the named steps
  peers                                install the foreign programs that the interop steps need
  tidy                                 check the rules that no compiler checks
  help                                 show this text

environment:
  CI                what could not be installed is a failure and no longer just skipped
  SWITCHBOARD_BIN   the server command under test, instead of the binary of this workspace
  SWITCHBOARD_PEERS the folder for installed peers, instead of .peers in the checkout
";

/// Leaves with 0 when all went well, 1 when a check failed, 2 when the command line is not understood.
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let workspace = Workspace::of_this_run();

    match arguments.as_slice() {
        ["test", "--list"] => {
            steps::print_list();
            ExitCode::SUCCESS
        }
        ["test"] => exit(steps::run(&workspace, steps::ALL)),
        ["test", "--only", names] => match steps::select(names) {
            Ok(selected) => exit(steps::run(&workspace, &selected)),
            Err(message) => misuse(&message),
        },
        ["peers"] => exit(Peers::new(&workspace).install_all().is_empty()),
        ["tidy"] => exit(tidy::run(&workspace)),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => misuse("a command is missing"),
        _ => misuse(&format!("`{}` is not understood", arguments.join(" "))),
    }
}

fn exit(all_well: bool) -> ExitCode {
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn misuse(message: &str) -> ExitCode {
    eprintln!("error: {message}\n\n{USAGE}");
    ExitCode::from(2)
}
