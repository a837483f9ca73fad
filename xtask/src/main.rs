//! The developer command: `cargo xtask test` runs every kind of test that the project has.
//!
//! Only the standard library is used, so that the first run on a fresh machine compiles in seconds.
//! `steps` is the list of what is checked, `peers` installs the foreign programs that some steps need, `rivals` builds
//! those that `switchboard bench compare` measures, `gates` counts what calls cost, `tidy` enforces what review should
//! not discuss, `interop` runs foreign programs against the real binary, and `suites` runs whole foreign test suites
//! against servers that implement their services.

mod examples;
mod gates;
mod interop;
mod json;
mod peers;
mod process;
mod rivals;
mod steps;
mod suites;
mod tidy;
mod transcript;

use std::process::ExitCode;

use peers::Peers;
use process::Workspace;
use rivals::Rivals;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--only STEP[,STEP]] [--list]   run every kind of test, or only the named steps
  peers [--only NAME[,NAME]]           install the programs that the interop steps need (`interop`), and build the
                                       rivals of `switchboard bench compare`, or only those that are named
  tidy                                 check the rules that no compiler checks
  help                                 show this text

environment:
  CI                what could not be installed is a failure and no longer just skipped or absent, and a step's
                    output is shown only when it fails; all of it is kept in steps/STEP.log beside what cargo builds
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
        [transcript::COMMAND, name] => match steps::select(name) {
            Ok(selected) => steps::run_one(&workspace, &selected),
            Err(message) => misuse(&message),
        },
        ["peers"] => install(&workspace, None),
        ["peers", "--only", names] => install(&workspace, Some(names)),
        ["tidy"] => exit(tidy::run(&workspace)),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => misuse("a command is missing"),
        _ => misuse(&format!("`{}` is not understood", arguments.join(" "))),
    }
}

/// What the interop steps need must be there; rivals may be absent, but for CI.
fn install(workspace: &Workspace, only: Option<&str>) -> ExitCode {
    const INTEROP: &str = "interop";
    let rivals = Rivals::new(workspace);
    let known = [&[INTEROP.to_owned()][..], &rivals.names()].concat();
    let wanted: Vec<String> =
        only.map_or_else(|| known.clone(), |names| names.split(',').map(str::to_owned).collect());
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        return misuse(&format!("there is no peer `{unknown}`: there are {}", known.join(", ")));
    }
    let missing = if wanted.iter().any(|name| name == INTEROP) {
        Peers::new(workspace).install_all()
    } else {
        Vec::new()
    };
    let wanted: Vec<String> = wanted.into_iter().filter(|name| name != INTEROP).collect();
    let absent = rivals.build_all(&wanted);
    exit(missing.is_empty() && (absent.is_empty() || !process::is_ci()))
}

fn exit(all_well: bool) -> ExitCode {
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn misuse(message: &str) -> ExitCode {
    eprintln!("error: {message}\n\n{USAGE}");
    ExitCode::from(2)
}
