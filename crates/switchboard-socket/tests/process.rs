//! A process without free descriptors, and a process that forks: each test runs itself again in a child.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use fork::{Fork, fork};
use std::{fs::File, io, process::Command, time::Duration};
use switchboard_socket::{
    ErrorKind, Event, Monitor, Socket, SocketOptions,
    SocketType::{Pull, Push},
    blocking,
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// Time for anything that must happen; tests fail after it.
const LIMIT: Duration = Duration::from_secs(20);
/// Set in a child; the value is the name of its test.
const CHILD: &str = "SWITCHBOARD_SOCKET_CHILD";

/// Runs a test of this program in a child with a limit of descriptors. Returns false in the child, which runs on.
fn runs_in_child(test: &str, descriptors: u32) -> bool {
    if std::env::var(CHILD).is_ok_and(|child| child == test) {
        return false;
    }
    let script =
        format!("ulimit -n {descriptors} && exec \"$0\" --exact {test} --nocapture --test-threads 1");
    let itself = std::env::current_exe().unwrap();
    let output = Command::new("sh").arg("-c").arg(script).arg(itself).env(CHILD, test).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

/// Uses all descriptors of the process.
fn exhaust() -> Vec<File> {
    let mut files = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => {
                assert!(error.to_string().contains("Too many open files"), "{error}");
                return files;
            }
        }
    }
}

fn socket(kind: switchboard_socket::SocketType) -> Socket {
    let mut options = SocketOptions::default();
    options.reconnect.interval = Duration::from_millis(5);
    Socket::new(kind, options).unwrap()
}

async fn event<T>(monitor: &mut Monitor, mut select: impl FnMut(Event) -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(selected) = select(monitor.next().await.unwrap()) {
                return selected;
            }
        }
    };
    timeout(LIMIT, wait).await.expect("the event arrives in time")
}

/// Completes the handshake of a PUSH and sends a message.
async fn push_raw(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xff, 0x7f, 3, 1);
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting).await?;
    stream.write_all(b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PUSH").await?;
    stream.write_all(b"\x00\x04late").await?;
    Ok(stream)
}

#[test]
fn a_socket_without_free_descriptors_reports_it_and_continues() {
    if runs_in_child("a_socket_without_free_descriptors_reports_it_and_continues", 48) {
        return;
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let (pull, push) = (socket(Pull), socket(Push));
        let bound = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
        push.connect_to(&bound).await.unwrap();
        push.send("before").await.unwrap();
        assert_eq!(timeout(LIMIT, pull.recv()).await.unwrap().unwrap().body(), b"before");
        // The own socket of a client exists already; the accepted one cannot be created.
        let client = TcpSocket::new_v4().unwrap();
        let (mut bound_monitor, other) = (pull.monitor(), socket(Push));
        let mut monitor = other.monitor();
        let files = exhaust();
        let client = client.connect(bound.trim_start_matches("tcp://").parse().unwrap()).await.unwrap();
        let client = push_raw(client).await.unwrap();
        let reason = event(&mut bound_monitor, |event| match event {
            Event::AcceptFailed { reason, .. } => Some(reason),
            _ => None,
        })
        .await;
        assert!(reason.contains("Too many open files"), "{reason}");
        let error = pull.bind_to("tcp://127.0.0.1:0").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Address, "{error}");
        assert!(error.to_string().contains("Too many open files"), "{error}");
        other.connect_to(&bound).await.unwrap();
        let reason = event(&mut monitor, |event| match event {
            Event::ConnectRetried { reason, .. } => Some(reason),
            _ => None,
        })
        .await;
        assert!(reason.contains("Too many open files"), "{reason}");
        let error = blocking::Socket::new(Push, SocketOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        // Connections go on.
        push.send("meanwhile").await.unwrap();
        assert_eq!(timeout(LIMIT, pull.recv()).await.unwrap().unwrap().body(), b"meanwhile");
        drop(files);
        assert_eq!(timeout(LIMIT, pull.recv()).await.unwrap().unwrap().body(), b"late");
        other.send("again").await.unwrap();
        assert_eq!(timeout(LIMIT, pull.recv()).await.unwrap().unwrap().body(), b"again");
        drop(client);
    });
    // The thread of blocking sockets is started now.
    assert!(blocking::Socket::new(Push, SocketOptions::default()).is_ok());
}

/// Returns the exit status of a child that executes `work`.
fn in_fork(work: impl FnOnce() -> bool) -> i32 {
    match fork().unwrap() {
        Fork::Child => std::process::exit(if work() { 0 } else { 1 }),
        Fork::Parent(child) => {
            // A child that hangs is a failure of this test.
            let pid = child.to_string();
            let script =
                format!("for i in $(seq 200); do kill -0 {pid} || exit 0; sleep 0.1; done; kill -9 {pid}");
            let mut watch = Command::new("sh").arg("-c").arg(script).spawn().unwrap();
            let status = fork::waitpid(child);
            let _ = watch.kill();
            let _ = watch.wait();
            status.unwrap()
        }
    }
}

#[test]
fn a_socket_in_a_fork_returns_an_error_instead_of_waiting() {
    if runs_in_child("a_socket_in_a_fork_returns_an_error_instead_of_waiting", 256) {
        return;
    }
    let pull = blocking::Socket::new(Pull, SocketOptions::default()).unwrap();
    let endpoint = pull.bind("tcp://127.0.0.1:0").unwrap().to_string();
    let mut options = SocketOptions::default();
    options.queues.send_messages_max = 1;
    let push = blocking::Socket::new(Push, options).unwrap();
    push.connect("tcp://127.0.0.1:1").unwrap();
    push.send("fills the queue").unwrap();
    let dropped = blocking::Socket::new(Pull, SocketOptions::default()).unwrap();
    dropped.bind("tcp://127.0.0.1:0").unwrap();
    let is_fork_error = |error: switchboard_socket::Error| {
        error.kind() == ErrorKind::State && error.to_string().contains("after a fork")
    };
    let status = in_fork(|| {
        let receives = pull.recv().is_err_and(is_fork_error);
        let sends = push.send("waits").is_err_and(is_fork_error);
        let binds = pull.bind("tcp://127.0.0.1:0").is_err_and(is_fork_error);
        let connects = push.connect("tcp://127.0.0.1:2").is_err_and(is_fork_error);
        let closes = pull.close().is_err_and(is_fork_error);
        // The last handle that is dropped closes nothing.
        let mut monitor = dropped.as_async().monitor();
        drop(dropped);
        let is_quiet = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            tokio::select! {
                biased;
                event = monitor.next() => event.is_none(),
                () = std::future::ready(()) => true,
            }
        });
        // A socket of the child works.
        let own = blocking::Socket::new(Push, SocketOptions::default()).unwrap();
        own.connect(&endpoint).unwrap();
        own.send("from the child").unwrap();
        own.close().unwrap();
        receives && sends && binds && connects && closes && is_quiet
    });
    assert_eq!(status, 0);
    // The parent is not affected.
    assert_eq!(pull.recv().unwrap().body(), b"from the child");
}
