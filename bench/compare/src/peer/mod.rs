//! Switchboard and the floor as programs of the contract in `bench/peers/README.md`, so that they run
//! like their rivals: a server and a client process, selected by their command lines.

mod client;
mod codecs;
mod floor;
mod per_call;
mod reply;
mod stream;
mod threads;

use ::switchboard::Runtime;
use clap::{Args, Subcommand, ValueEnum};
use std::net::{IpAddr, Ipv4Addr};
use switchboard_cli::bench::{self, process, switchboard, worker};
use tokio::runtime;

pub(super) use reply::ClientReport;

/// `bench-compare peer`.
#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    subject: Engine,
    #[command(subcommand)]
    role: Role,
}

/// The implementation that serves and calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Engine {
    /// The bare loop.
    Floor,
    /// Switchboard on its own workers.
    Pinned,
    /// Switchboard under the multi-thread runtime of tokio.
    Tokio,
}

#[derive(Debug, Subcommand)]
enum Role {
    Server {
        #[arg(long, value_enum)]
        call: Call,
        /// The address to listen on.
        #[arg(long, default_value_t = Ipv4Addr::LOCALHOST.into())]
        host: IpAddr,
    },
    Client(client::ClientArgs),
}

/// The method that is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Call {
    Echo,
    Message,
    /// No call: measures the codecs.
    Codecs,
}

/// The call pattern.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    Unary,
    /// A new connection for each call.
    PerCall,
    /// One bidirectional stream.
    Stream,
}

/// Serves or calls.
///
/// # Errors
/// When it cannot listen, connect or run this combination. Calls that fail are counted in the client's output.
pub(crate) fn run(args: &PeerArgs) -> Result<(), String> {
    match &args.role {
        Role::Client(client) => client::run(args.subject, client),
        Role::Server { call: Call::Codecs, .. } => Err("codecs are measured in the client alone".to_owned()),
        // The same services serve every call, and the floor echoes.
        Role::Server { host, .. } => serve(args.subject, *host),
    }
}

fn serve(engine: Engine, host: IpAddr) -> Result<(), String> {
    let serving = async move {
        let running = switchboard::start(host).await?;
        process::report_address(running.url().trim_start_matches("tcp://"));
        process::end_with_parent();
        std::future::pending().await
    };
    match engine {
        Engine::Floor => bench::listen_floor(host, worker::cores()),
        Engine::Pinned => Runtime::new().run(serving),
        Engine::Tokio => runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start a runtime: {error}"))?
            .block_on(serving),
    }
}
