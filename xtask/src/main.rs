//! The developer command: `cargo xtask test` runs every kind of test that the project has.
//!
//! Only the standard library is used, so that the first run on a fresh machine compiles in seconds. `steps`
//! is the list of checks, `peers` installs the foreign programs that some steps need, `rivals` builds those
//! that `bench/compare` measures, `gates` counts what calls cost, `tidy` enforces what review
//! should not discuss, `interop` runs foreign programs against the real binary, `suites` runs whole foreign
//! test suites against servers that implement their services, `packages` checks the crates as users get them,
//! `tutorial` follows the first page of the documentation, `fuzz` runs the fuzz targets for as long as is
//! wanted, and `changelog` joins the fragments of the changelog.

mod changelog;
mod examples;
mod fuzz;
mod gates;
mod interop;
mod json;
mod packages;
mod peers;
mod platforms;
mod process;
mod rivals;
mod steps;
mod suites;
mod tidy;
mod transcript;
mod tutorial;

use std::process::ExitCode;

use peers::Peers;
use process::Workspace;
use rivals::Rivals;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--only STEP[,STEP]] [--list]   run every kind of test, or only the named steps
  quick                                format, lints, tidy and the tests that need no foreign program: run it before
                                       each commit
  peers [--only NAME[,NAME]]           install the programs that the interop steps need (`interop`), and build the
                                       rivals of `bench/compare`, or only those that are named
  fuzz [--seconds N] [--jobs N] [--only TARGET[,TARGET]]
                                       run every fuzz target, or only the named ones, for N seconds each (60), so many
                                       at a time (1), and keep their smallest inputs in fuzz/corpus; needs a nightly
                                       toolchain and cargo-fuzz
  changelog                            move the fragments in changelog/ into CHANGELOG.md, for a release
  tidy                                 check the rules that no compiler checks
  help                                 show this text

environment:
  CI                what could not be installed is a failure and no longer just skipped or absent, and a step's
                    output is shown only when it fails; all of it is kept in steps/STEP.log beside what cargo builds
  SWITCHBOARD_BIN   the server command under test, instead of the binary of this workspace
  SWITCHBOARD_PEERS the folder for installed peers, instead of .peers in the checkout
";

/// Exits with 0 on success, 1 when a check failed, 2 when the command line is not understood.
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
        ["quick"] => match steps::select(steps::QUICK) {
            Ok(selected) => exit(steps::run(&workspace, &selected)),
            Err(message) => misuse(&message),
        },
        [transcript::COMMAND, name] => match steps::select(name) {
            Ok(selected) => steps::run_one(&workspace, &selected),
            Err(message) => misuse(&message),
        },
        ["peers"] => install(&workspace, None),
        ["peers", "--only", names] => install(&workspace, Some(names)),
        ["fuzz", options @ ..] => match fuzz::Plan::parse(options) {
            Ok(plan) => exit(fuzz::run(&workspace, &plan)),
            Err(message) => misuse(&message),
        },
        ["changelog"] => match changelog::join(&workspace.root) {
            Ok(fragments) => {
                println!("changelog: {fragments} fragments");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("error: {why}");
                ExitCode::FAILURE
            }
        },
        ["tidy"] => exit(tidy::run(&workspace)),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => misuse("a command is missing"),
        _ => misuse(&format!("`{}` is not understood", arguments.join(" "))),
    }
}

/// Installs peers. Fails when a peer of the interop steps is missing; absent rivals are a failure only in CI.
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
