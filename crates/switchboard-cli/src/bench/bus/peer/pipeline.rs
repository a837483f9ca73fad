//! PUSH to PULL: between processes, between threads, and with a receiver that is stalled.

use super::{PeerArgs, Reading, Tally, end_with_input, message, report, spawn};
use crate::bench::bus::{
    options::Mode,
    stamp::{Checker, Stamp},
};
use std::{pin::pin, sync::Arc, thread};
use switchboard_socket::{
    Pull, Push, Result, SocketOptions,
    options::{Security, curve_keypair},
};
use switchboard_wire::zmtp::SecretKey;

/// Secret key of the server of CURVE in Z85, the same for all programs: both sides know it.
const SERVER_KEY: &str = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W8b!Ni{Lh6";

/// Receives from all senders and measures.
pub(super) async fn pull(args: &PeerArgs) -> Result<Reading> {
    let mut options = SocketOptions::default();
    if args.mode == Mode::Curve {
        options.security = Security::curve_server(server_key(), |_| true);
    }
    let pull = Pull::with_options(options)?;
    pull.bind_to(&args.endpoint).await?;
    report(&pull.endpoints());
    receive_measured(&pull, args).await
}

/// Returns the key of the server of CURVE.
fn server_key() -> SecretKey {
    SERVER_KEY.parse().expect("valid constant key")
}

async fn receive_measured(pull: &Pull, args: &PeerArgs) -> Result<Reading> {
    let tally = Tally::new();
    let received = async {
        let mut checkers = vec![Checker::default(); args.peers as usize];
        loop {
            let message = pull.recv().await?;
            let sender = Stamp::read(message.body()).map_or(0, |stamp| stamp.sender as usize);
            if let Some(checker) = checkers.get_mut(sender) {
                tally.receive(message.body(), checker, false);
            }
        }
    };
    tokio::select! {
        reading = tally.measure(args) => Ok(reading),
        error = received => error,
    }
}

/// Sends from each socket in turn.
pub(super) async fn push(args: &PeerArgs) -> Result<Reading> {
    let mut sockets = Vec::new();
    for _ in 0..args.peers {
        let mut options = SocketOptions::default();
        if args.mode == Mode::Curve {
            let (_, secret) = curve_keypair()?;
            options.security = Security::curve_client(secret, server_key().public_key());
        }
        let push = Push::with_options(options)?;
        push.connect_to(&args.endpoint).await?;
        sockets.push(push);
    }
    let counted = sockets.clone();
    end_with_input(move || counted.iter().map(|push| push.stats().dropped).sum());
    send(&sockets, args.bytes).await
}

async fn send(sockets: &[Push], bytes: u32) -> Result<Reading> {
    for number in 0.. {
        for (sender, push) in sockets.iter().enumerate() {
            push.send(message(sender as u32, number, bytes)).await?;
        }
    }
    Ok(Reading::default())
}

/// Sends to all receivers in turn.
pub(super) async fn push_bound(args: &PeerArgs) -> Result<Reading> {
    let push = Push::bind(&args.endpoint).await?;
    report(&push.endpoints());
    let counted = push.clone();
    end_with_input(move || counted.stats().dropped);
    send(&[push], args.bytes).await
}

/// Receives at all sockets but a stalled one, and measures.
pub(super) async fn pull_connected(args: &PeerArgs) -> Result<Reading> {
    let tally = Arc::new(Tally::new());
    let mut stalled = Vec::new();
    for at in 0..args.peers {
        let pull = Pull::connect(&args.endpoint).await?;
        if args.stalled && at + 1 == args.peers {
            stalled.push(pull);
            continue;
        }
        let tally = tally.clone();
        spawn(async move {
            let mut checker = Checker::default();
            loop {
                let message = pull.recv().await?;
                tally.receive(message.body(), &mut checker, true);
            }
        });
    }
    let reading = tally.measure(args).await;
    drop(stalled);
    Ok(reading)
}

/// Sends from another thread of this process, and measures.
pub(super) async fn inproc(args: &PeerArgs) -> Result<Reading> {
    const NAME: &str = "inproc://bench";
    let pull = Pull::bind(NAME).await?;
    let bytes = args.bytes;
    let (error, failed) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let sent = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
            let sent = runtime.block_on(async { send(&[Push::connect(NAME).await?], bytes).await });
            sent.map_err(|error: switchboard_socket::Error| error.to_string())
        });
        // The receiver is gone when the measurement has ended.
        let _ = error.send(sent.err());
    });
    let mut failed = pin!(failed);
    tokio::select! {
        reading = receive_measured(&pull, args) => reading,
        error = &mut failed => {
            if let Ok(Some(error)) = error {
                tracing::error!(error, "the sender ended");
            }
            Ok(Reading::default())
        }
    }
}
