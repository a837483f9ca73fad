//! `events-server`: a server with the event streams of a bus, which the cases in `python/test_events.py` drive.
//!
//! Prints `listening on 127.0.0.1:PORT`. Topics keep 1,000 entries, and a reader that is behind by 64 more misses
//! some. A page at `/` lets a browser open streams. Reads a command from each line of the standard input, and prints a
//! line for each.
//!
//! | command | response |
//! | --- | --- |
//! | `publish TOPIC COUNT BYTES` | `published OFFSET`: so many entries, objects with `n` and a text of this length |
//! | `restart` | `restarted`: the server was killed, and another one listens at its address |
//! | `forget` | `restarted`, with another bus |
//! | `subscriptions` | `subscriptions COUNT` |
//! | `stop` | `stopped`, and the program ends |

use std::{io::BufRead, time::Duration};
use switchboard::{Codec, Result, Running, Server, StopOptions};
use switchboard_bus::BusServer;
use switchboard_message::{Bus, Publication, TopicOptions};
use tokio::sync::mpsc;

fn bus() -> Result<Bus> {
    let kept = TopicOptions::new().history(1_000, Duration::MAX).backlog(64);
    Ok(Bus::builder().topics(">", kept)?.build())
}

async fn start(bus: &Bus, address: &str) -> Result<Running, switchboard::Error> {
    let page = "<!doctype html><title>0</title>";
    let server = || {
        let server = Server::new().plugin(BusServer::new(bus.clone())).websocket_deflate();
        server.page("/", "text/html; charset=utf-8", page).listen(address)
    };
    loop {
        match server().start().await {
            // The sockets of the killed server are closed in a moment.
            Err(error) if error.to_string().contains("in use") => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            started => return started,
        }
    }
}

async fn publish(bus: &Bus, topic: &str, count: u64, bytes: usize) -> Result<u64> {
    let mut offset = 0;
    for number in 1..=count {
        let payload = format!("{{\"n\":{number},\r\n\"text\":\"{}\"}}", "x".repeat(bytes));
        offset = bus.publish_encoded(topic, Publication::new(Codec::Json, payload)).await?.offset;
    }
    Ok(offset)
}

#[switchboard::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut bus = bus()?;
    let mut running = start(&bus, "tcp://127.0.0.1:0").await?;
    let address = running.url();
    println!("listening on {}", address.replace("tcp://", ""));
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin()
            .lock()
            .lines()
            .map_while(std::result::Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    while let Some(line) = lines.recv().await {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["publish", topic, count, bytes] => {
                let offset = publish(&bus, topic, count.parse()?, bytes.parse()?).await?;
                println!("published {offset}");
            }
            ["restart" | "forget"] => {
                running.kill();
                if line == "forget" {
                    bus = self::bus()?;
                }
                running = start(&bus, &address).await?;
                println!("restarted");
            }
            ["subscriptions"] => println!("subscriptions {}", bus.stats().subscriptions),
            ["stop"] => break,
            _ => println!("unknown command {line:?}"),
        }
    }
    running.stop(StopOptions::new()).await;
    println!("stopped");
    Ok(())
}
