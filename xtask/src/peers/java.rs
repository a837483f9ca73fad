//! Java programs with their libraries, which Maven gets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{absolute, apt_install, attempt, create, read, write};
use crate::process::{self, Failure};

/// The programs in the folder `peer` of `sources` compiled into `classes`, with what its `pom.xml` needs in `lib`; both
/// are in `folder`, and so is all that Maven keeps.
pub(super) fn compiled(sources: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    create(folder)?;
    let folder = absolute(folder)?;
    let programs = programs(&sources.join("peer"))?;
    let pom = sources.join("pom.xml");
    let wanted = programs.iter().try_fold(read(&pom)?, |all, file| read(file).map(|text| all + &text))?;
    let stamp = folder.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) && process::is_in_path("java") {
        return Ok(folder);
    }
    install("javac", "default-jdk-headless")?;
    copy_dependencies(&pom, &folder)?;
    let mut compiler = Command::new("javac");
    compiler.arg("-d").arg(folder.join("classes")).arg("-cp").arg(folder.join("lib/*"));
    process::run(compiler.args(programs))?;
    write(&stamp, &wanted)?;
    Ok(folder)
}

/// The libraries that the `pom.xml` in `sources` needs, in the folder `lib` of `folder`, whose path is returned.
pub(super) fn libraries(sources: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    create(folder)?;
    let folder = absolute(folder)?;
    let pom = sources.join("pom.xml");
    let (wanted, stamp) = (read(&pom)?, folder.join("installed.txt"));
    install("java", "default-jre-headless")?;
    if !fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        copy_dependencies(&pom, &folder)?;
        write(&stamp, &wanted)?;
    }
    Ok(folder.join("lib"))
}

fn install(program: &str, package: &str) -> Result<(), Failure> {
    if process::is_in_path(program) { Ok(()) } else { apt_install(package) }
}

/// Copies what a `pom.xml` needs into the folder `lib` of `folder`.
fn copy_dependencies(pom: &Path, folder: &Path) -> Result<(), Failure> {
    install("mvn", "maven")?;
    let setting = |name: &str, folder: PathBuf| format!("-D{name}={}", folder.display());
    attempt(|| {
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "dependency:copy-dependencies", "-f"]).arg(pom);
        maven.arg(setting("maven.repo.local", folder.join("repository")));
        process::run(maven.arg(setting("outputDirectory", folder.join("lib"))))
    })
}

/// The sources, in order.
fn programs(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |error| Failure::new(format!("{}: {error}", folder.display()));
    let entries = fs::read_dir(folder).map_err(wrong)?;
    let mut files: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "java"));
    files.sort();
    Ok(files)
}
