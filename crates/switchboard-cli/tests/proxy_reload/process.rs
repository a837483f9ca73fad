//! A proxy whose settings are in a file, and what it says of them.

use super::support::serving;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Proxy {
    child: Child,
    settings: PathBuf,
    pub(crate) address: String,
    admin: String,
    log: Receiver<String>,
}

impl Proxy {
    pub(crate) fn start(name: &str, settings: &str) -> Proxy {
        let path = serving::file(&format!("{name}.toml"));
        fs::write(&path, settings).unwrap();
        let mut command = serving::switchboard();
        command.args(["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"]).arg(&path);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut line =
            |start: &str| lines.find_map(|line| line.strip_prefix(start).map(str::to_owned)).unwrap();
        let (address, admin) = (line("listening on http://"), line("admin pages on http://"));
        let (say, log) = channel();
        let said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        // Ends with the proxy.
        thread::spawn(move || said.map(|line| say.send(line)).take_while(Result::is_ok).count());
        Proxy { child, settings: path, address, admin, log }
    }

    /// Writes the file and has it read; what was said up to the line with this text.
    pub(crate) fn reload(&self, settings: &str, until: &str) -> Vec<String> {
        fs::write(&self.settings, settings).unwrap();
        self.signal(rustix::process::Signal::HUP);
        self.said(until)
    }

    /// Returns the printed lines up to the one with this text.
    pub(crate) fn said(&self, until: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            said.push(line.unwrap_or_else(|_| panic!("no {until:?} in {said:#?}")));
            if said.last().is_some_and(|line| line.contains(until)) {
                return said;
            }
        }
    }

    /// The settings that may be changed, with their values.
    pub(crate) fn flags(&self) -> String {
        let request =
            format!("GET /flags?format=json HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.admin);
        serving::http(&self.admin, &request).1
    }

    /// The value of one.
    pub(crate) fn flag(&self, name: &str) -> String {
        let all: serde_json::Value = serde_json::from_str(&self.flags()).unwrap();
        let flags = all["flags"].as_array().unwrap();
        let flag = flags.iter().find(|flag| flag["flag"] == name).unwrap();
        flag["value"].as_str().unwrap().to_owned()
    }

    pub(crate) fn settings(&self) -> &str {
        self.settings.to_str().unwrap()
    }

    /// Ends it in order; what it said meanwhile.
    pub(crate) fn stop(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap();
        self.log.iter().collect::<Vec<_>>().join("\n")
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
