//! Servers that are processes of their own: this package's binary, killed and started again.

use std::{
    future::IntoFuture,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// A test that waits longer is stuck.
const GIVE_UP: Duration = Duration::from_secs(20);

/// Waits for the outcome of a future, with a time limit that only a failure reaches.
pub(crate) async fn soon<F: IntoFuture>(what: &str, future: F) -> F::Output {
    timeout(GIVE_UP, future.into_future()).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_or(what, is_so, String::new).await;
}

/// The same, with what to say when it does not come.
pub(crate) async fn until_or(what: &str, mut is_so: impl FnMut() -> bool, why: impl FnOnce() -> String) {
    let came = timeout(GIVE_UP, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    if came.await.is_err() {
        panic!("{what} did not come: {}", why());
    }
}

/// The program with the words of `line`.
pub(crate) fn switchboard(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

/// Runs it to its end, beside the test.
pub(crate) async fn run(line: &str) -> Output {
    let mut command = switchboard(line);
    let ended = tokio::task::spawn_blocking(move || command.output());
    soon(line, ended).await.unwrap().expect("the program was built for this test")
}

/// `switchboard serve`; dropping it kills it.
pub(crate) struct Process {
    child: Child,
    /// `HOST:PORT` of its services.
    pub(crate) address: String,
    admin: String,
}

impl Process {
    /// Starts it at `address`, on one thread, with further flags, and waits until it serves. The port of a killed
    /// server may be in use for a while: by a connection of a client that dialled from it.
    pub(crate) fn start(address: &str, flags: &str) -> Process {
        let began = Instant::now();
        loop {
            match Process::try_start(address, flags) {
                Ok(process) => return process,
                Err(said) if said.contains("in use") && began.elapsed() < GIVE_UP => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(said) => panic!("{said}"),
            }
        }
    }

    fn try_start(address: &str, flags: &str) -> Result<Process, String> {
        let line = format!("serve --listen {address} --admin 127.0.0.1:0 --workers 1 --log off {flags}");
        let spawned = switchboard(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut address, mut admin) = (String::new(), String::new());
        for line in lines.map_while(Result::ok) {
            if let Some(listening) = line.strip_prefix("listening on http://") {
                address = listening.to_owned();
            }
            if let Some(pages) = line.strip_prefix("admin pages on http://") {
                admin = pages.to_owned();
                break;
            }
        }
        if address.is_empty() || admin.is_empty() {
            let (_, said) = ended(&mut child);
            return Err(format!("{line}: {said}"));
        }
        Ok(Process { child, address, admin })
    }

    /// As channels name it.
    pub(crate) fn url(&self) -> String {
        format!("tcp://{}", self.address)
    }

    /// As those name it who look for servers there.
    pub(crate) fn registry(&self) -> String {
        format!("switchboard://{}", self.address)
    }

    /// Calls of the method that this very process has answered.
    pub(crate) fn answered(&self, service: &str, method: &str) -> u64 {
        let metrics = get(&self.admin, "/metrics");
        let start = format!("switchboard_calls_total{{service=\"{service}\",method=\"{method}\"");
        let counts = metrics.lines().filter(|line| line.starts_with(&start) && line.contains("code=\"ok\""));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Exit code and standard error, once it has ended.
    pub(crate) fn ended(&mut self) -> (Option<i32>, String) {
        ended(&mut self.child)
    }
}

fn ended(child: &mut Child) -> (Option<i32>, String) {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns head and body of the response to a GET of the path.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GIVE_UP)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
