//! `zmtp-server`: a server with the plugin for ZeroMQ, which the cases in `python/test_server.py` drive.
//!
//! Prints `listening on 127.0.0.1:PORT`. Reads a command from each line of the standard input, and prints a line for
//! each. PUSH and PULL peers share the topic `jobs`.
//!
//! | command | response |
//! | --- | --- |
//! | `publish TOPIC TEXT` | `published OFFSET` |
//! | `stats` | `stats` and the counters |
//! | `next` | `entry TOPIC TEXT`, the next entry of any topic since the start |
//! | `stop` | `stopped` |

use std::io::BufRead;
use switchboard::{Codec, Cx, Result, Server, StopOptions};
use switchboard_adapter::Zmtp;
use switchboard_message::{Bus, Delivery, Pattern, Publication};
use tokio::sync::mpsc;

/// A service on the same port.
#[switchboard::service(name = "interop.v1.Clock")]
trait Clock {
    #[switchboard(read_only)]
    async fn ping(&self, text: String, cx: &Cx) -> Result<String>;
}

struct Echo;

impl Clock for Echo {
    async fn ping(&self, text: String, _: &Cx) -> Result<String> {
        Ok(text)
    }
}

#[switchboard::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Bus::new();
    let zmtp = Zmtp::new(bus.clone()).pipeline("jobs", "workers")?;
    let mut all = bus.subscribe_encoded(Pattern::prefix("")).await?;
    let server = Server::new().add(ClockServer::new(Echo)).plugin(zmtp.clone());
    let running = server.listen("tcp://127.0.0.1:0").start().await?;
    println!("listening on {}", running.url().replace("tcp://", ""));
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["publish", topic, text] => {
                let publication = Publication::new(Codec::Raw, text.to_owned());
                println!("published {}", bus.publish_encoded(topic, publication).await?.offset);
            }
            ["stats"] => println!("stats {:?}", zmtp.stats()),
            ["next"] => match all.next().await? {
                Some(Delivery::Entry(entry)) => {
                    println!("entry {} {}", entry.topic(), String::from_utf8_lossy(&entry));
                }
                other => println!("other {other:?}"),
            },
            ["stop"] => break,
            _ => println!("unknown command {line:?}"),
        }
    }
    running.stop(StopOptions::new()).await;
    println!("stopped");
    Ok(())
}
