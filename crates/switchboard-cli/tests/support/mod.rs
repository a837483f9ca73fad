//! The program, run by tests of `switchboard call`, and servers for it.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses its part")]

pub mod echo;
pub mod greeter;
pub mod serving;

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
};

pub fn switchboard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard"));
    command.env_remove("COLUMNS").stdin(Stdio::null());
    command
}

/// `switchboard serve` on a free port, killed at the end of the test.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    pub fn with(arguments: &[&str]) -> Server {
        let mut command = switchboard();
        command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| {
            let (_, rest) = line.split_once("listening on http")?;
            rest.split_once("://").map(|(_, address)| address.to_owned())
        });
        Server { child, address: address.unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Outcome of `switchboard call ADDRESS …`.
pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    pub fn of(output: Output) -> Done {
        Done {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The values on standard output, of a call that ended well.
    #[track_caller]
    pub fn values(&self) -> Vec<Value> {
        assert_eq!(self.code, 0, "{}", self.stderr);
        serde_json::Deserializer::from_str(&self.stdout).into_iter().map(Result::unwrap).collect()
    }
}

pub fn call(address: &str, arguments: &[&str]) -> Done {
    Done::of(switchboard().args(["call", address]).args(arguments).output().unwrap())
}

/// A folder for files of one test.
pub fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A server that reads a little and answers every connection with these bytes.
pub fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer);
            // Closing with bytes unread would take the answer back.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    address
}

/// Where a server of this service listens, for as long as the tests run.
pub fn serve(server: switchboard::Server) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        switchboard::run(async move {
            let running = server.listen("127.0.0.1:0").start().await.unwrap();
            sender.send(running.addresses()[0].to_string()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().unwrap()
}
