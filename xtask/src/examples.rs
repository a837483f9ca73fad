//! Runs every example of the workspace; an example must end by itself, with exit code 0.

use std::process::Command;
use std::time::Duration;

use crate::process::{self, Failure, Workspace};

/// How long one example may run. They show something and end; the slowest should need a few seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Those that go on until a person ends them, and what makes them show all of it and end.
const TOURS: &[(&str, &str)] = &[("cluster", "--once")];

/// Builds and runs all, and names those that failed.
pub(crate) fn run_all(workspace: &Workspace) -> Result<(), Failure> {
    let built = workspace.built()?;
    let mut failures = Vec::new();
    for (package, kind, name) in list(workspace)? {
        workspace.cargo(&["build", "--package", &package, kind.flag, &name])?;
        let program = built.join(kind.folder).join(&name);
        let mut command = Command::new(program);
        command.args(TOURS.iter().find(|(tour, _)| *tour == name).map(|(_, argument)| argument));
        if let Err(failure) = process::run_within(LIMIT, command.current_dir(&workspace.root)) {
            failures.push(failure.to_string());
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("; "))) }
}

/// The two ways in which a package can offer a program that is an example.
struct Kind {
    flag: &'static str,
    /// Folder of the products, below the target folder of cargo.
    folder: &'static str,
}

const EXAMPLE: &Kind = &Kind { flag: "--example", folder: "examples" };
const BINARY: &Kind = &Kind { flag: "--bin", folder: "" };

/// Package, kind and name of each, in the order of the packages.
fn list(workspace: &Workspace) -> Result<Vec<(String, &'static Kind, String)>, Failure> {
    let mut found = Vec::new();
    for package in packages(workspace)? {
        for name in names(workspace, &package, EXAMPLE)? {
            found.push((package.clone(), EXAMPLE, name));
        }
        if package == "examples" {
            for name in names(workspace, &package, BINARY)? {
                found.push((package.clone(), BINARY, name));
            }
        }
    }
    Ok(found)
}

fn packages(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let tree = ["tree", "--workspace", "--depth", "0", "--prefix", "none"];
    let tree = process::output(workspace.cargo_command().args(tree))?;
    let mut packages: Vec<String> =
        tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    packages.retain(|package| !package.is_empty());
    packages.sort();
    packages.dedup();
    Ok(packages)
}

/// Queries cargo, which prints the list of available names for a flag without its name.
fn names(workspace: &Workspace, package: &str, kind: &Kind) -> Result<Vec<String>, Failure> {
    let arguments = ["build", "--package", package, kind.flag];
    let output = workspace
        .cargo_command()
        .args(arguments)
        .output()
        .map_err(|error| Failure::new(format!("cargo could not be started: {error}")))?;
    let answer = String::from_utf8_lossy(&output.stderr);
    if !answer.contains("takes one argument") {
        return Err(Failure::new(format!("cargo {}: {}", arguments.join(" "), answer.trim())));
    }
    Ok(parse_names(&answer))
}

fn parse_names(answer: &str) -> Vec<String> {
    let indented = answer.lines().filter(|line| line.starts_with("    "));
    indented.map(|line| line.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_indented_lines() {
        let answer = "error: \"--example\" takes one argument.\nAvailable examples:\n    chat\n    hello\n\n";
        assert_eq!(parse_names(answer), ["chat", "hello"]);
        assert!(parse_names("error: \"--bin\" takes one argument.\nNo binaries available.\n").is_empty());
    }
}
