//! Programs that serve until the test ends: `switchboard serve`, `switchboard proxy`.

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// The program where the schemas are.
pub fn switchboard() -> Command {
    let mut command = super::switchboard();
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// A command that serves on a free port, ended with the test.
pub struct Serving {
    child: Child,
    pub address: String,
}

impl Serving {
    pub fn start(arguments: &[&str]) -> Serving {
        let mut command = switchboard();
        command.args(arguments).args(["--listen", "127.0.0.1:0", "--workers", "1"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| Some(line.strip_prefix("listening on http://")?.to_owned()));
        Serving { child, address: address.unwrap() }
    }

    pub fn server() -> Serving {
        Serving::start(&["serve"])
    }

    /// A proxy in front of it, that speaks to it with these options.
    pub fn proxied(&self, options: &str, arguments: &[&str]) -> Serving {
        let to = format!("{}{options}", self.address);
        Serving::start(&[&["proxy", "--to", &to], arguments].concat())
    }

    /// Ends it in order, so that all is written.
    pub fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn demo_schema() -> [&'static str; 4] {
    ["--proto", "demo/v1/demo.proto", "-I", "proto"]
}

/// A file of one test.
pub fn file(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_file(&path);
    path
}

/// An answer of HTTP/1.1, status and body.
pub fn http(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub fn post(address: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json");
    http(address, &format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}"))
}

/// The lines of a tap that has ended.
pub fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
