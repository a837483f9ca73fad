//! Requests and their replies: REQ to REP, and DEALER to ROUTER.

use super::{PeerArgs, Reading, Tally, end_with_input, message, report, spawn};
use crate::bench::bus::stamp::Checker;
use std::{sync::Arc, time::Instant};
use switchboard_socket::{Dealer, Rep, Req, Result, Router};

/// Requests of each client that are outstanding.
const OUTSTANDING: u64 = 100;

/// Sends each request back.
pub(super) async fn reply(args: &PeerArgs) -> Result<Reading> {
    let rep = Rep::bind(&args.endpoint).await?;
    report(&rep.endpoints());
    let counted = rep.clone();
    end_with_input(move || counted.stats().dropped);
    loop {
        let message = rep.recv().await?;
        rep.send(message).await?;
    }
}

/// Sends one request after the other and measures.
pub(super) async fn request(args: &PeerArgs) -> Result<Reading> {
    let tally = Arc::new(Tally::new());
    for client in 0..args.peers {
        let req = Req::connect(&args.endpoint).await?;
        let (tally, bytes) = (tally.clone(), args.bytes);
        spawn(async move {
            let mut checker = Checker::default();
            for number in 0.. {
                let start = Instant::now();
                req.send(message(client, number, bytes)).await?;
                let reply = req.recv().await?;
                tally.receive_timed(reply.body(), &mut checker, start.elapsed());
            }
            Ok(())
        });
    }
    Ok(tally.measure(args).await)
}

/// Sends each request back to its client.
pub(super) async fn route(args: &PeerArgs) -> Result<Reading> {
    let router = Router::bind(&args.endpoint).await?;
    report(&router.endpoints());
    let counted = router.clone();
    end_with_input(move || counted.stats().dropped);
    loop {
        let message = router.recv().await?;
        router.send(message).await?;
    }
}

/// Keeps requests of each client outstanding and measures.
pub(super) async fn deal(args: &PeerArgs) -> Result<Reading> {
    let tally = Arc::new(Tally::new());
    for client in 0..args.peers {
        let dealer = Dealer::connect(&args.endpoint).await?;
        let (tally, bytes) = (tally.clone(), args.bytes);
        spawn(async move {
            let mut checker = Checker::default();
            for number in 0.. {
                if number >= OUTSTANDING {
                    let reply = dealer.recv().await?;
                    tally.receive(reply.body(), &mut checker, false);
                }
                dealer.send(message(client, number, bytes)).await?;
            }
            Ok(())
        });
    }
    Ok(tally.measure(args).await)
}
