//! Real servers as child processes on free ports of loopback.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::{sleep, timeout},
};

/// Returns the path of a program, or prints a line that says what to install.
///
/// If `SWITCHBOARD_REGISTRIES` is `required`, a missing program panics, so that no test is skipped.
pub(crate) fn find(programs: &[&str], package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/usr/share/java"].map(PathBuf::from));
    let found = folders
        .iter()
        .flat_map(|folder| programs.iter().map(move |program| folder.join(program)))
        .find(|file| file.is_file());
    if found.is_none() {
        skip(&format!("{} is not installed: apt-get install {package}", programs[0]));
    }
    found
}

/// Returns the program that a variable names, or prints a line that says how to set it.
pub(crate) fn named(variable: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        skip(&format!("{variable} is not set: run `cargo xtask test --only registries`"));
    }
    program
}

/// Prints why a test is skipped; panics if none may be skipped.
fn skip(why: &str) {
    let required = std::env::var_os("SWITCHBOARD_REGISTRIES").is_some_and(|value| value == "required");
    assert!(!required, "SKIPPED: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Returns a port that is free now, for servers that cannot use port 0; the caller tries another port if this one was
/// taken meanwhile.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// A child that is killed with its owner.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts `command` and waits until `port` accepts connections; `None` when it ends before that.
    pub(crate) async fn start(command: &mut Command, port: u16) -> Option<Server> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("the program starts");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let up = timeout(Duration::from_secs(60), async {
            loop {
                if child.try_wait().expect("it is our child").is_some() {
                    return false;
                }
                if TcpStream::connect(address).await.is_ok() {
                    return true;
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        up.await.expect("the server takes connections").then_some(Server { child })
    }

    /// Starts a server again on the port that it had. A connection of another process may have the port for a while.
    pub(crate) async fn start_again(mut command: impl FnMut() -> Command, port: u16) -> Server {
        for _ in 0..100 {
            if let Some(server) = Server::start(&mut command(), port).await {
                return server;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("port {port} is in use")
    }

    /// Kills it and waits for its end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it is our child");
    }
}
