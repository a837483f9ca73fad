//! The product crates as their users get them: packages, sets of features, the oldest compiler, licences.

use std::process::Command;

use crate::json::Value;
use crate::peers::Peer;
use crate::process::{self, Failure, Workspace};
use crate::steps::{Outcome, Run};

/// A crate that is published.
struct Package {
    name: String,
    features: Vec<String>,
    /// The oldest compiler that its manifest promises.
    rust_version: String,
}

/// The libraries that programs name; their features enable those of the crates below them.
const NAMED_BY_PROGRAMS: [&str; 3] = ["switchboard", "switchboard-build", "switchboard-registry"];

/// Packs every product crate, in an order in which each finds those that it depends on.
///
/// Cargo reads the manifests as a registry does: it fails for a dependency without a version and for missing metadata.
pub(crate) fn pack(run: &Run<'_>) -> Result<(), Failure> {
    let packages = product(run.workspace)?;
    let mut command = run.workspace.cargo_command();
    command.args(["package", "--no-verify", "--allow-dirty"]);
    packages.iter().for_each(|package| {
        command.args(["--package", &package.name]);
    });
    process::run(&mut command)
}

/// Compiles each library of programs without features, with each of its features alone, and with all.
///
/// Users choose features, and a build of the workspace enables nearly all of them in all crates.
pub(crate) fn features(run: &Run<'_>) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for package in
        product(run.workspace)?.iter().filter(|package| NAMED_BY_PROGRAMS.contains(&package.name.as_str()))
    {
        let alone = package
            .features
            .iter()
            .filter(|feature| *feature != "default")
            .map(|feature| vec!["--features", feature]);
        let sets = std::iter::once(Vec::new()).chain(alone).chain([vec!["--all-features"]]);
        for set in sets {
            let check = ["check", "--package", &package.name, "--lib", "--no-default-features"];
            if let Err(failure) = run.workspace.cargo(&[&check[..], &set].concat()) {
                failures.push(failure.to_string());
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("; "))) }
}

/// Compiles the product crates with the oldest compiler that their manifests promise.
pub(crate) fn oldest_compiler(run: &Run<'_>) -> Outcome {
    let packages = match product(run.workspace) {
        Ok(packages) => packages,
        Err(failure) => return Outcome::Failed(failure.to_string()),
    };
    let Some(version) = packages.iter().map(|package| package.rust_version.clone()).max() else {
        return Outcome::Failed("no crate is published".into());
    };
    if !process::is_in_path("rustup") {
        return Outcome::Skipped("rustup is not installed".into());
    }
    let install = ["toolchain", "install", &version, "--profile", "minimal", "--no-self-update"];
    if let Err(failure) = process::run(Command::new("rustup").args(install)) {
        return Outcome::Skipped(failure.to_string());
    }
    let mut command = Command::new("rustup");
    command
        .args(["run", &version, "cargo", "check", "--locked", "--all-features"])
        .current_dir(&run.workspace.root);
    packages.iter().for_each(|package| {
        command.args(["--package", &package.name]);
    });
    // The two of the toolchain that runs this program.
    process::run(command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN")).into()
}

/// Checks the licences, sources and second versions of dependencies by the rules of `deny.toml`.
pub(crate) fn deny(run: &Run<'_>) -> Outcome {
    let program = match run.peers.path(Peer::CargoDeny) {
        Ok(program) => program,
        Err(failure) => return Outcome::Skipped(failure.to_string()),
    };
    let check = ["check", "bans", "licenses", "sources"];
    process::run(Command::new(program).args(check).current_dir(&run.workspace.root)).into()
}

/// The published crates of the workspace.
fn product(workspace: &Workspace) -> Result<Vec<Package>, Failure> {
    let metadata = ["metadata", "--no-deps", "--format-version", "1"];
    let metadata = process::output(workspace.cargo_command().args(metadata))?;
    let metadata =
        Value::read(&metadata).map_err(|message| Failure::new(format!("cargo metadata: {message}")))?;
    let packages = metadata.get("packages").and_then(Value::elements).unwrap_or_default();
    let packages: Option<Vec<Package>> = packages
        .iter()
        .filter(|package| package.get("publish") == Some(&Value::Null))
        .map(Package::read)
        .collect();
    packages.ok_or_else(|| Failure::new("cargo metadata: a package lacks its name, features or rust-version"))
}

impl Package {
    fn read(package: &Value) -> Option<Self> {
        let Value::Object(features) = package.get("features")? else { return None };
        Some(Self {
            name: package.get("name")?.text()?.to_owned(),
            features: features.keys().cloned().collect(),
            rust_version: package.get("rust_version")?.text()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_read_from_metadata() {
        let text = r#"{"name": "a", "features": {"tls": [], "default": ["tls"]}, "rust_version": "1.92"}"#;
        let package = Package::read(&Value::read(text).unwrap()).unwrap();
        assert_eq!((package.name.as_str(), package.rust_version.as_str()), ("a", "1.92"));
        assert_eq!(package.features, ["default", "tls"]);
    }
}
