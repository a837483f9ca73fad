//! `switchboard push`: a push gateway for devices, and its operation from a terminal.
//!
//! [`serve`] runs the [`Gateway`] of its [settings](settings); the other commands call `switchboard.push.v1.Push` and
//! `Devices` of any server.

mod args;
mod client;
mod gateway;
mod hints;
mod page;
mod rooms;
mod send;
mod serve;
mod settings;
mod table;
mod top;
mod watch;

pub(crate) use args::PushArgs;
pub(crate) use gateway::Gateway;
pub(crate) use settings::GatewayArgs;

use crate::{
    bus::parts::{Signals, ended},
    call::Failure,
};
use args::Command;
use std::{process::ExitCode, time::Duration};
use switchboard::Runtime;

/// Runs the command.
pub(crate) fn run(args: PushArgs) -> ExitCode {
    let command = match args.command {
        Command::Serve(args) => {
            return match serve::run(*args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("switchboard: {error}");
                    ExitCode::FAILURE
                }
            };
        }
        command => command,
    };
    let is_json = command.is_json();
    let runtime = Runtime::new().workers(1).spin(Duration::ZERO);
    ended(runtime.run(async move { run_client(&command).await }), is_json)
}

async fn run_client(command: &Command) -> Result<(), Failure> {
    match command {
        // A signal ends it as a failure: its message may not be sent.
        Command::Send(args) => send::run(args).await,
        Command::Top(args) => Signals::install()?.or(top::run(args)).await,
        Command::Watch(args) => Signals::install()?.or(watch::run(args)).await,
        Command::Serve(_) => Ok(()),
    }
}
