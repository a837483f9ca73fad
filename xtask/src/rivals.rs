//! Builds the rivals under `bench/peers`, which `bench/compare` measures.
//!
//! Each folder has a `peer.json` that says what it needs and how it is built; `bench/peers/README.md`
//! documents it. Products go to the folder of the other peers. A rival that cannot be built is not a failure:
//! the reason is written to a file beside its products, and the comparison names it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::json::Value;
use crate::peers;
use crate::process::{self, Failure, Workspace};

/// File in the folder of products that has the reason why there are none.
const ABSENT: &str = "absent.txt";

/// Where the rivals are and where their products go.
pub(crate) struct Rivals {
    sources: PathBuf,
    products: PathBuf,
}

impl Rivals {
    pub(crate) fn new(workspace: &Workspace) -> Self {
        Self { sources: workspace.root.join("bench/peers"), products: peers::folder(workspace).join("bench") }
    }

    /// The folders with a manifest, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let folders = fs::read_dir(&self.sources).into_iter().flatten().flatten();
        let rivals = folders.filter(|folder| folder.path().join("peer.json").is_file());
        let mut names: Vec<String> =
            rivals.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Builds those named and returns one line for each that could not be had.
    pub(crate) fn build_all(&self, names: &[String]) -> Vec<String> {
        let mut absent = Vec::new();
        for (at, name) in names.iter().enumerate() {
            println!("\n==> [{}/{}] rival {name}", at + 1, names.len());
            if let Err(failure) = self.build(name) {
                absent.push(format!("{name}: {failure}"));
            }
        }
        println!();
        for name in
            names.iter().filter(|name| !absent.iter().any(|line| line.starts_with(&format!("{name}: "))))
        {
            println!("{name} is in {}", self.products.join(name).display());
        }
        for line in &absent {
            eprintln!("ABSENT {line}");
        }
        absent
    }

    fn build(&self, name: &str) -> Result<(), Failure> {
        let folder = self.sources.join(name);
        let out = std::path::absolute(self.products.join(name)).map_err(|error| failure(&folder, &error))?;
        fs::create_dir_all(&out).map_err(|error| failure(&out, &error))?;
        let result =
            Recipe::read(&folder, &out).and_then(|recipe| recipe.follow(&folder)).map_err(|failure| {
                // The reason goes into reports, which folders of this machine do not belong in.
                Failure::new(failure.to_string().replace(&*out.to_string_lossy(), "{out}"))
            });
        let note = out.join(ABSENT);
        match &result {
            Ok(()) if note.exists() => fs::remove_file(&note).map_err(|error| failure(&note, &error))?,
            Ok(()) => {}
            Err(reason) => fs::write(&note, format!("{reason}\n")).map_err(|error| failure(&note, &error))?,
        }
        result
    }
}

/// Fields of a manifest that concern the build.
#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    /// Debian packages.
    packages: Vec<String>,
    /// Commands, each the program and its arguments.
    commands: Vec<Vec<String>>,
}

impl Recipe {
    fn read(folder: &Path, out: &Path) -> Result<Self, Failure> {
        let file = folder.join("peer.json");
        let text = fs::read_to_string(&file).map_err(|error| failure(&file, &error))?;
        Self::parse(&text, out).map_err(|error| failure(&file, &error))
    }

    fn parse(text: &str, out: &Path) -> Result<Self, String> {
        let manifest = Value::read(text)?;
        let texts = |value: &Value, what: &str| {
            let texts = value.texts().ok_or_else(|| format!("{what}: not an array of strings"))?;
            Ok::<_, String>(
                texts.into_iter().map(|text| text.replace("{out}", &out.to_string_lossy())).collect(),
            )
        };
        let packages = manifest.get("apt").map_or(Ok(Vec::new()), |apt| texts(apt, "apt"))?;
        let commands = manifest.get("build").ok_or("build: missing")?;
        let commands = commands.elements().ok_or("build: not an array of commands")?;
        let commands: Vec<Vec<String>> =
            commands.iter().map(|command| texts(command, "build")).collect::<Result<_, _>>()?;
        if commands.iter().any(Vec::is_empty) {
            return Err("build: a command without a program".to_owned());
        }
        Ok(Self { packages, commands })
    }

    fn follow(&self, folder: &Path) -> Result<(), Failure> {
        for package in self.packages.iter().filter(|package| !is_installed(package)) {
            peers::apt_install(package)?;
        }
        for command in &self.commands {
            // Registries answer slowly at times; a second attempt usually succeeds.
            peers::attempt(|| run(Command::new(&command[0]).args(&command[1..]).current_dir(folder)))?;
        }
        Ok(())
    }
}

/// Runs a command with its output shown; the most informative line becomes part of the failure.
fn run(command: &mut Command) -> Result<(), Failure> {
    let mut first: Option<String> = None;
    let mut last: Option<String> = None;
    let result = process::run_watching(command, |line| {
        eprintln!("{line}");
        if line.contains("error") || line.contains("Error") {
            first.get_or_insert_with(|| line.trim().to_owned());
        }
        if !line.trim().is_empty() {
            last = Some(line.trim().to_owned());
        }
    });
    result.map_err(|failure| match first.or(last) {
        Some(line) => Failure::new(format!("{failure}: {}", line.chars().take(200).collect::<String>())),
        None => failure,
    })
}

/// Returns whether Debian has this package installed. On other systems the build fails with the name of the missing
/// package.
fn is_installed(package: &str) -> bool {
    if !process::is_in_path("dpkg-query") {
        return true;
    }
    process::output(Command::new("dpkg-query").args(["--show", "--showformat=${Status}", package]))
        .is_ok_and(|status| status.ends_with(" installed"))
}

fn failure(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_says_what_to_install_and_to_run() {
        let text = r#"{ "name": "x", "apt": ["libx-dev"], "build": [["make", "OUT={out}/x"], ["true"]] }"#;
        let recipe = Recipe::parse(text, Path::new("/products")).unwrap();
        assert_eq!(recipe.packages, ["libx-dev"]);
        assert_eq!(recipe.commands, [vec!["make", "OUT=/products/x"], vec!["true"]]);
        for (text, named) in [
            ("{}", "build"),
            (r#"{ "build": [[]] }"#, "without a program"),
            (r#"{ "build": "make" }"#, "build"),
            (r#"{ "build": [], "apt": [1] }"#, "apt"),
        ] {
            let error = Recipe::parse(text, Path::new("")).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_rival_that_cannot_be_built_leaves_the_reason() {
        let folder = std::env::temp_dir().join(format!("switchboard-rivals-{}", std::process::id()));
        let rivals = Rivals { sources: folder.join("sources"), products: folder.join("products") };
        let fails = r#"["sh", "-c", "echo ld: error: no zmq in {out} >&2; echo make: stopped >&2; exit 2"]"#;
        for (name, command) in [("fails", fails), ("works", r#"["true"]"#)] {
            let source = rivals.sources.join(name);
            fs::create_dir_all(&source).unwrap();
            fs::write(source.join("peer.json"), format!(r#"{{ "build": [{command}] }}"#)).unwrap();
        }
        fs::create_dir_all(rivals.sources.join("shared")).unwrap();
        assert_eq!(rivals.names(), ["fails", "works"]);
        // A reason of an earlier attempt goes when the build succeeds.
        fs::create_dir_all(rivals.products.join("works")).unwrap();
        fs::write(rivals.products.join("works").join(ABSENT), "earlier").unwrap();
        let absent = rivals.build_all(&rivals.names());
        let reason = fs::read_to_string(rivals.products.join("fails").join(ABSENT)).unwrap();
        let is_there = rivals.products.join("works").join(ABSENT).exists();
        fs::remove_dir_all(&folder).unwrap();
        assert!(absent.len() == 1 && absent[0].starts_with("fails: `sh -c "), "{absent:?}");
        assert!(reason.ends_with(": exit status: 2: ld: error: no zmq in {out}\n") && !is_there, "{reason}");
    }
}
