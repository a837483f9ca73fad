//! `switchboard bus`: publishes and subscribes to the topics of a server, and to those of ZeroMQ, NATS and Redis.

mod args;
mod escape;
mod input;
mod link;
mod native;
mod nats;
mod output;
mod receive;
mod redis;
mod start;
mod streams;
mod target;
mod zmq;

pub(crate) use args::BusArgs;

/// Clients of other servers, for the demo.
pub(crate) mod peers {
    pub(crate) use super::{nats::Nats, redis::Redis, target::Remote};
}

/// Parts of the command that `push` has too.
pub(crate) mod parts {
    pub(crate) use super::{
        args::{MessageCodec, PrintArgs},
        ended,
        escape::{escaped, is_terminal},
        input::{check, messages},
        limited,
        native::connect_to,
        output::{payload, print, print_bytes, print_json},
        receive::Signals,
        report,
    };
}

use crate::call::Failure;
use args::{Command, Common};
use receive::Signals;
use serde_json::json;
use std::{
    future::Future,
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};
use switchboard::{Runtime, Status};
use switchboard_socket::SocketType;
use target::{Target, refuse};

/// Group of `pull` without `--group`.
const WORKERS: &str = "workers";

/// Runs the command.
pub(crate) fn run(args: BusArgs) -> ExitCode {
    let runtime = Runtime::new().workers(1).spin(Duration::ZERO);
    let is_json = args.command.is_json();
    let outcome = runtime.run(async move { run_command(&args.command).await });
    ended(outcome, is_json)
}

/// Prints the failure of a command, as JSON on request, and returns the exit code.
pub(crate) fn ended(outcome: Result<(), Failure>, is_json: bool) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    let printed = match &failure {
        // A failed write is not repeated.
        Failure::Usage(_) | Failure::Status(_) if is_json => {
            output::print_json(&json!({"status": failure.json(&[])})).is_ok()
        }
        _ => false,
    };
    if !printed {
        report(&failure.text());
    }
    failure.exit_code()
}

/// Writes to standard error. Texts of servers are in it, so a terminal gets their control characters escaped.
pub(crate) fn report(text: &str) {
    if io::stderr().is_terminal() {
        text.split('\n').for_each(|line| eprintln!("{}", escape::escaped(line.as_bytes())));
    } else {
        eprintln!("{text}");
    }
}

async fn run_command(command: &Command) -> Result<(), Failure> {
    let Some(common) = command.common() else { return proxy(command).await };
    match Target::of(common)? {
        Target::Native => run_native(command, common).await,
        target => {
            let limit = match command {
                // They apply the time limit to each reply, and to waiting for a peer.
                Command::Req(_) => None,
                Command::Pub(_) | Command::Push(_) if matches!(target, Target::Zmq(_)) => None,
                _ => common.timeout,
            };
            let running = run_foreign(command, &target);
            let mut signals = Signals::install()?;
            limited(limit, signals.or(running)).await
        }
    }
}

async fn proxy(command: &Command) -> Result<(), Failure> {
    let Command::Proxy(args) = command else { return Ok(()) };
    Signals::install()?.or(zmq::forward(args)).await
}

async fn run_native(command: &Command, common: &Common) -> Result<(), Failure> {
    match command {
        Command::Pub(args) | Command::Push(args) => limited(common.timeout, native::publish(args)).await,
        // These apply the time limit themselves: they acknowledge what they have printed, even after it.
        Command::Sub(args) => receive::subscribe(args, args.group.as_deref()).await,
        Command::Pull(args) => receive::subscribe(args, Some(args.group.as_deref().unwrap_or(WORKERS))).await,
        Command::Req(args) => native::request(args).await,
        Command::Rep(args) => receive::reply(args).await,
        Command::Topics(args) => limited(common.timeout, native::topics(args)).await,
        Command::Proxy(_) => Ok(()),
    }
}

async fn run_foreign(command: &Command, target: &Target) -> Result<(), Failure> {
    let unsupported = |what: &str, why: &str| refuse(&[(what, true, why)]);
    match (target, command) {
        (Target::Nats(remote), Command::Pub(args) | Command::Push(args)) => nats::publish(remote, args).await,
        (Target::Nats(remote), Command::Sub(args)) => {
            nats::subscribe(remote, args, args.group.as_deref()).await
        }
        (Target::Nats(remote), Command::Pull(args)) => {
            nats::subscribe(remote, args, Some(args.group.as_deref().unwrap_or(WORKERS))).await
        }
        (Target::Nats(remote), Command::Req(args)) => nats::request(remote, args).await,
        (Target::Nats(remote), Command::Rep(args)) => nats::reply(remote, args).await,
        (Target::Nats(_), Command::Topics(_)) => {
            unsupported("`bus topics`", "servers of NATS do not list their subjects")
        }
        (Target::Redis(remote), Command::Pub(args)) => redis::publish(remote, args).await,
        (Target::Redis(remote), Command::Sub(args)) => {
            redis::subscribe(remote, args, args.group.as_deref()).await
        }
        (Target::Redis(remote), Command::Push(args)) => streams::push(remote, args).await,
        (Target::Redis(remote), Command::Pull(args)) => {
            streams::pull(remote, args, args.group.as_deref().unwrap_or(WORKERS)).await
        }
        (Target::Redis(_), Command::Req(_) | Command::Rep(_)) => {
            unsupported("a request", "channels of Redis have no replies")
        }
        (Target::Redis(remote), Command::Topics(args)) => redis::topics(remote, args).await,
        (Target::Zmq(endpoint), Command::Pub(args)) => zmq::publish(endpoint, args).await,
        (Target::Zmq(endpoint), Command::Push(args)) => zmq::push(endpoint, args).await,
        (Target::Zmq(endpoint), Command::Sub(args)) => zmq::receive(endpoint, args, SocketType::Sub).await,
        (Target::Zmq(endpoint), Command::Pull(args)) => zmq::receive(endpoint, args, SocketType::Pull).await,
        (Target::Zmq(endpoint), Command::Req(args)) => zmq::request(endpoint, args).await,
        (Target::Zmq(endpoint), Command::Rep(args)) => zmq::reply(endpoint, args).await,
        (Target::Zmq(_), Command::Topics(_)) => {
            unsupported("`bus topics`", "sockets of ZeroMQ do not list their topics")
        }
        (Target::Native, _) | (_, Command::Proxy(_)) => Ok(()),
    }
}

/// Runs a part of the command within the time limit, if there is one.
pub(crate) async fn limited<T>(
    limit: Option<Duration>,
    running: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(limit) = limit else { return running.await };
    tokio::time::timeout(limit, running).await.unwrap_or_else(|_| {
        let text = format!("the command did not end within {limit:?} (--timeout)");
        Err(Status::deadline_exceeded(text).into())
    })
}

impl Command {
    /// Returns the common arguments; `proxy` has none.
    fn common(&self) -> Option<&Common> {
        Some(match self {
            Command::Pub(args) | Command::Push(args) => &args.common,
            Command::Sub(args) | Command::Pull(args) => &args.common,
            Command::Req(args) => &args.common,
            Command::Rep(args) => &args.common,
            Command::Topics(args) => &args.common,
            Command::Proxy(_) => return None,
        })
    }

    fn is_json(&self) -> bool {
        match self {
            Command::Proxy(args) => args.json,
            _ => self.common().is_some_and(|common| common.json),
        }
    }
}
