//! Shared by `serve` and `demo`: binding an address, output, and graceful shutdown.

use std::{
    error::Error as _,
    io::{self, Write},
    process,
    time::Duration,
};
use switchboard::{Address, Limit, Running, Server, StopOptions, Stopped};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time limit for connections to end after their calls were aborted.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Binds and starts to serve.
///
/// # Errors
/// The address that cannot be listened on, and what to do about it.
pub(crate) async fn start(server: Server) -> Result<Running, String> {
    server.start().await.map_err(|error| {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        match cause.map(io::Error::kind) {
            Some(io::ErrorKind::AddrInUse) => {
                format!(
                    "{error}; end the process that listens there, or choose another with --listen 127.0.0.1:0"
                )
            }
            Some(io::ErrorKind::PermissionDenied) => {
                format!("{error}; choose a port from 1024 on, or a folder of your own, with --listen")
            }
            _ => error.to_string(),
        }
    })
}

/// Formats an address in the form that callers of all wires use.
pub(crate) fn url(address: &Address) -> String {
    let text = address.to_string();
    match text.split_once("://") {
        Some(("tcp", rest)) => format!("http://{rest}"),
        Some(("tls", rest)) => format!("https://{rest}"),
        _ => text,
    }
}

/// Writes to standard output and flushes it.
///
/// # Errors
/// When standard output is closed.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| format!("cannot write to standard output: {error}"))
}

/// Ctrl-C and SIGTERM, and SIGHUP, which reloads certificates and settings; installed when this is created.
#[derive(Debug)]
pub(crate) struct Stop {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn install() -> Result<Stop, String> {
        let install = |kind| signal(kind).map_err(|error| format!("cannot watch for Ctrl-C: {error}"));
        Ok(Stop {
            hangup: install(SignalKind::hangup())?,
            interrupt: install(SignalKind::interrupt())?,
            terminate: install(SignalKind::terminate())?,
        })
    }

    /// Waits for Ctrl-C or SIGTERM. Cancel safe.
    async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits as [`requested`](Self::requested) does, or for a successor that took over; meanwhile SIGHUP reloads
    /// certificates.
    async fn requested_of(&mut self, running: &Running, mut reload: impl FnMut(&Running)) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
                () = running.handed_over() => return,
                // Invalid certificates were logged, and the old ones stay.
                _ = self.hangup.recv() => {
                    let _ = running.reload_tls();
                    reload(running);
                }
            }
        }
    }
}

/// Serves until Ctrl-C or SIGTERM, then lets calls end within the limit `drain_timeout`. A second signal ends the
/// process at once, with exit code 1. SIGHUP reloads certificates, and settings by `reload`.
pub(crate) async fn until_stopped(running: Running, mut stop: Stop, reload: impl FnMut(&Running)) {
    stop.requested_of(&running, reload).await;
    let limit = Duration::from_millis(running.limits().get(Limit::DrainTimeout));
    let stats = running.stats();
    if stats.connections > 0 {
        eprintln!(
            "draining {}, for {limit:?} at most (drain_timeout); once more ends at once",
            connections(stats.connections)
        );
    }
    tokio::select! {
        stopped = running.stop(StopOptions::new().close(limit + LAST_WORDS)) => eprintln!("{}", report(&stopped)),
        () = stop.requested() => {
            eprintln!("ended at once; running calls were aborted");
            process::exit(1);
        }
    }
}

fn report(stopped: &Stopped) -> String {
    let mut text = "drained".to_owned();
    for aborted in &stopped.calls {
        let s = if aborted.calls == 1 { "" } else { "s" };
        text.push_str(&format!(
            "; aborted {} call{s} of {} ({})",
            aborted.calls, aborted.method, aborted.wire
        ));
    }
    for aborted in &stopped.connections {
        text.push_str(&format!("; aborted {} ({})", connections(aborted.connections), aborted.protocol));
    }
    text
}

fn connections(count: u64) -> String {
    format!("{count} connection{}", if count == 1 { "" } else { "s" })
}
