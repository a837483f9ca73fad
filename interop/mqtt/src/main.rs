//! `mqtt-server`: a server with the plugin for MQTT, which the cases in `python/test_mqtt.py` drive.
//!
//! Prints `listening on` and HOST:PORT of the listener of all wires, of MQTT in WebSockets as well, and with `tls` that
//! of a second one with TLS. Reads a command from each line of the standard input, and prints a line for each.
//!
//! | argument | meaning |
//! | --- | --- |
//! | `auth` | clients need the token `t0ken` or the user `carol` with the password `p4ss` |
//! | `history=ENTRIES` | entries that each topic keeps; default 20,000 |
//! | `tls=CERT,KEY` | a second listener with TLS |
//!
//! | command | response |
//! | --- | --- |
//! | `publish TOPIC TEXT` | `published OFFSET` |
//! | `stats` | `stats` and the counters |
//! | `stop` | `stopped` |

use std::{io::BufRead, time::Duration};
use switchboard::{
    Address, Caller, Codec, Running, Server, StopOptions,
    auth::{Basic, Tokens},
};
use switchboard_adapter::Mqtt;
use switchboard_message::{Bus, Publication, TopicOptions};
use tokio::sync::mpsc;

/// Arguments of the program.
struct Arguments {
    has_auth: bool,
    history: usize,
    tls: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments { has_auth: false, history: 20_000, tls: None };
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            None if argument == "auth" => arguments.has_auth = true,
            Some(("history", entries)) => {
                arguments.history = entries.parse().map_err(|error| format!("{argument}: {error}"))?;
            }
            Some(("tls", files)) => {
                let (cert, key) = files.split_once(',').ok_or("tls=CERT,KEY")?;
                arguments.tls = Some(format!("tls://127.0.0.1:0?cert={cert}&key={key}"));
            }
            _ => return Err(format!("unknown argument {argument:?}")),
        }
    }
    Ok(arguments)
}

async fn start(mqtt: &Mqtt, arguments: &Arguments) -> Result<Running, Box<dyn std::error::Error>> {
    let mut server = Server::new().plugin(mqtt.clone()).listen("tcp://127.0.0.1:0");
    if arguments.has_auth {
        server = server
            .auth(Tokens::default().token("t0ken", Caller::new("alice")))
            .auth(Basic::default().user("carol", "p4ss", Caller::new("carol")));
    }
    if let Some(tls) = &arguments.tls {
        server = server.listen(tls);
    }
    Ok(server.start().await?)
}

#[switchboard::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments()?;
    let history = TopicOptions::new().history(arguments.history, Duration::MAX);
    let bus = Bus::builder().topics(">", history)?.build();
    let mqtt = Mqtt::new(bus.clone());
    let running = start(&mqtt, &arguments).await?;
    let place = |address: &Address| match address {
        Address::Tcp(host, port) | Address::Tls(host, port) => format!("{host}:{port}"),
        other => other.to_string(),
    };
    let addresses: Vec<_> = running.addresses().iter().map(place).collect();
    println!("listening on {}", addresses.join(" "));
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
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
            ["stats"] => println!("stats {:?}", mqtt.stats()),
            ["stop"] => break,
            _ => println!("unknown command {line:?}"),
        }
    }
    running.stop(StopOptions::new()).await;
    println!("stopped");
    Ok(())
}
