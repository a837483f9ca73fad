//! `switchboard bus`: publishes and subscribes to the topics of a server.

mod args;
mod input;
mod native;
mod output;
mod receive;
mod start;

pub(crate) use args::BusArgs;

use crate::call::Failure;
use args::{Command, Common};
use serde_json::json;
use std::{future::Future, process::ExitCode, time::Duration};
use switchboard::{Runtime, Status};

/// Runs the command.
pub(crate) fn run(args: BusArgs) -> ExitCode {
    let runtime = Runtime::new().workers(1).spin(Duration::ZERO);
    let is_json = args.command.common().json;
    let outcome = runtime.run(async move { run_command(&args.command).await });
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    let printed = match &failure {
        // A failed write is not repeated.
        Failure::Usage(_) | Failure::Status(_) if is_json => {
            output::print(&format!("{}\n", json!({"status": failure.json(&[])}))).is_ok()
        }
        _ => false,
    };
    if !printed {
        eprintln!("{}", failure.text());
    }
    failure.exit_code()
}

async fn run_command(command: &Command) -> Result<(), Failure> {
    let common = command.common();
    if let Some((scheme @ ("nats" | "redis" | "rediss" | "zmq+tcp"), _)) = common.address.split_once("://") {
        let text =
            format!("addresses {scheme}:// are not supported yet; use HOST:PORT of a server with topics");
        return Err(Failure::Usage(text));
    }
    match command {
        Command::Pub(args) | Command::Push(args) => limited(common, native::publish(args)).await,
        // These apply the time limit themselves: they acknowledge what they have printed, even after it.
        Command::Sub(args) => receive::subscribe(args, args.group.as_deref()).await,
        Command::Pull(args) => {
            receive::subscribe(args, Some(args.group.as_deref().unwrap_or("workers"))).await
        }
        Command::Req(args) => native::request(args).await,
        Command::Rep(args) => receive::reply(args).await,
        Command::Topics(args) => limited(common, native::topics(args)).await,
    }
}

/// Runs a part of the command within the time limit, if there is one.
async fn limited(common: &Common, running: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let Some(limit) = common.timeout else { return running.await };
    tokio::time::timeout(limit, running).await.unwrap_or_else(|_| {
        let text = format!("the command did not end within {limit:?} (--timeout)");
        Err(Status::deadline_exceeded(text).into())
    })
}

impl Command {
    fn common(&self) -> &Common {
        match self {
            Command::Pub(args) | Command::Push(args) => &args.common,
            Command::Sub(args) | Command::Pull(args) => &args.common,
            Command::Req(args) => &args.common,
            Command::Rep(args) => &args.common,
            Command::Topics(args) => &args.common,
        }
    }
}
