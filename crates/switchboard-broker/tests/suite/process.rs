//! Real servers as child processes.

use std::{future::Future, path::PathBuf, process::Stdio, time::Duration};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

/// Returns the path of a program; prints why a test is skipped if it is not installed.
///
/// If `SWITCHBOARD_ENGINES` is `required`, a missing program panics, so that no test is skipped.
pub(crate) fn find(variable: &str, program: &str, package: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|file| file.is_file());
    if found.is_none() {
        let required = std::env::var_os("SWITCHBOARD_ENGINES").is_some_and(|value| value == "required");
        let why = format!("{program} is not installed: {package}");
        assert!(!required, "SKIPPED: {why}");
        eprintln!("SKIPPED: {why}");
    }
    found
}

/// A child that is killed with its owner.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts a program and waits until it is ready.
    pub(crate) async fn start<F: Future<Output = bool>>(
        command: &mut Command,
        mut is_ready: impl FnMut() -> F,
    ) -> Server {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("the program starts");
        let ready = timeout(Duration::from_secs(60), async {
            while !is_ready().await {
                let ended = child.try_wait().expect("it is our child");
                assert!(ended.is_none(), "the server has ended: {ended:?}");
                sleep(Duration::from_millis(20)).await;
            }
        });
        ready.await.expect("the server becomes ready");
        Server { child }
    }

    /// Kills it and waits for its end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it is our child");
    }
}
