//! Peers that are connected and idle: each has sent a message and received its reply.

use super::{PeerArgs, Reading, message};
use std::io;
use switchboard_socket::{Dealer, Result};

/// Peers that connect at the same time.
const AT_ONCE: u32 = 64;

/// Connects the first peer, prints `begin`, waits for a line, and connects the others.
pub(super) async fn connect(args: &PeerArgs) -> Result<Reading> {
    let mut held = vec![open(args, 0).await?];
    println!("begin");
    // The end of the input is an answer too.
    let _ = io::stdin().read_line(&mut String::new());
    let mut client = 1;
    while client < args.peers {
        let end = args.peers.min(client + AT_ONCE);
        let opening: Vec<_> = (client..end)
            .map(|client| {
                let args = args.clone();
                tokio::spawn(async move { open(&args, client).await })
            })
            .collect();
        for opened in opening {
            // A task that panicked has printed its message, and its peer is missing in the count.
            if let Ok(opened) = opened.await {
                held.push(opened?);
            }
        }
        client = end;
    }
    Reading { messages: held.len() as u64, ..Reading::default() }.print();
    // The peers stay while the memory is read.
    let _ = io::stdin().read_line(&mut String::new());
    Ok(Reading::default())
}

async fn open(args: &PeerArgs, client: u32) -> Result<Dealer> {
    let dealer = Dealer::connect(&args.endpoint).await?;
    dealer.send(message(client, 0, args.bytes)).await?;
    dealer.recv().await?;
    Ok(dealer)
}
