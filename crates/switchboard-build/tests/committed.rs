//! The code that other crates of the workspace commit: it is what the generator makes of their schemas now.
//!
//! The binary is built from it and does not build the generator first: that was a tenth of
//! the build, and nothing else could be compiled before it was done.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
};
use switchboard_build::{Error, flatbuffers, proto, thrift};

/// Set to write the files instead of comparing them.
const WRITE: &str = "SWITCHBOARD_GENERATE";

/// The file that nests all packages of a folder; no crate includes it.
const TREE: &str = "_all.rs";

/// Returns a file of another crate.
fn of(krate: &str, file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join(file)
}

/// Compares `generated/` of a crate, or of a folder in it, with the files that `generate` makes, or replaces them.
fn check(krate: &str, generate: impl Fn(&Path) -> Result<(), Error>) {
    let name = krate.replace('/', "-");
    let fresh = std::env::temp_dir().join(format!("switchboard-committed-{name}-{}", std::process::id()));
    generate(&fresh).unwrap();
    fs::remove_file(fresh.join(TREE)).unwrap();
    let committed = of(krate, "generated");
    if std::env::var_os(WRITE).is_some() {
        let _ = fs::remove_dir_all(&committed);
        fs::create_dir_all(&committed).unwrap();
        for name in names(&fresh) {
            fs::copy(fresh.join(&name), committed.join(&name)).unwrap();
        }
    }
    let differing: Vec<_> = [names(&fresh), names(&committed)]
        .concat()
        .into_iter()
        .filter(|name| fs::read(fresh.join(name)).ok() != fs::read(committed.join(name)).ok())
        .collect();
    fs::remove_dir_all(&fresh).unwrap();
    assert!(
        differing.is_empty(),
        "crates/{krate}/generated differs from the schemas of the crate in {differing:?}: run `{WRITE}=1 cargo test -p \
         switchboard-build --test committed` and commit the files"
    );
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn channelz() {
    let schema = of("switchboard-server", "proto/grpc/channelz/v1/channelz.proto");
    check("switchboard-server", |out| proto(&schema).without_views().without_clients().out_dir(out).emit());
}

#[test]
fn services_of_the_binary() {
    let krate = "switchboard-cli";
    check(krate, |out| {
        proto(of(krate, "proto/demo/v1/demo.proto")).out_dir(out).emit()?;
        proto(of(krate, "proto/bench/v1/bench.proto")).out_dir(out).emit()?;
        thrift(of(krate, "thrift/bench.thrift")).out_dir(out).emit()?;
        thrift(of(krate, "thrift/greeter.thrift")).out_dir(out).emit()?;
        flatbuffers(of(krate, "fbs/echo.fbs")).out_dir(out).emit()
    });
}

#[test]
fn etcd() {
    let schema = of("switchboard-registry", "proto/etcd.proto");
    check("switchboard-registry", |out| proto(&schema).without_views().out_dir(out).emit());
}

#[test]
fn bus() {
    let schema = of("switchboard-bus", "proto/switchboard/bus/v1/bus.proto");
    check("switchboard-bus", |out| proto(&schema).without_views().out_dir(out).emit());
}

#[test]
fn push() {
    let schema = of("switchboard-push", "proto/switchboard/push/v1/push.proto");
    check("switchboard-push", |out| proto(&schema).without_views().out_dir(out).emit());
}

#[test]
fn messages_of_the_test_of_views() {
    let folder = "switchboard/tests/view_fields";
    check(folder, |out| {
        proto(of(folder, "every.proto")).out_dir(out).emit()?;
        proto(of(folder, "old.proto")).out_dir(out).emit()
    });
}
