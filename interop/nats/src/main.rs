//! `nats-server`: a server with the plugin for NATS, which the cases in `python/test_nats.py` drive.
//!
//! Prints `listening on` and three times HOST:PORT: the listener of NATS, the one of all other wires, and one for NATS
//! in WebSockets at the path `/`. Reads a command from each line of the standard input, and prints a line for each.
//!
//! | argument | meaning |
//! | --- | --- |
//! | `auth` | clients need the token `t0ken` or the user `carol` with the password `p4ss` |
//! | `pending=BYTES` | bytes that wait for a client before it is a slow consumer |
//! | `tls=CERT,KEY` | TLS on the listener of NATS |
//!
//! | command | response |
//! | --- | --- |
//! | `publish TOPIC TEXT` | `published OFFSET` |
//! | `flood TOPIC COUNT BYTES` | `flooded`, after that many entries |
//! | `stats` | `stats` and the counters |
//! | `watch TOPIC` | `watching`: a native caller of the bus service subscribes |
//! | `next` | `entry TOPIC TEXT`, the next entry of that subscription |
//! | `stop` | `stopped` |

use std::{io::BufRead, time::Duration};
use switchboard::{
    Address, Caller, Codec, Cx, Result, Running, Server, Status, StopOptions,
    auth::{Basic, Tokens},
};
use switchboard_adapter::{Nats, NatsStats};
use switchboard_bus::{
    BusServer,
    v1::{BusClient, SubscribeRequest, subscribe_event::Event},
};
use switchboard_fanout::Options;
use switchboard_message::{Bus, Publication};
use tokio::sync::mpsc;

/// A service that clients of NATS call.
#[switchboard::service(name = "interop.v1.Greeter")]
trait Greeter {
    #[switchboard(read_only)]
    async fn greet(&self, name: String, cx: &Cx) -> Result<String>;
}

struct Desk;

impl Greeter for Desk {
    async fn greet(&self, name: String, cx: &Cx) -> Result<String> {
        if name.is_empty() {
            return Err(Status::invalid_argument("the name is empty"));
        }
        let caller = cx.caller().map_or("unknown", |caller| &caller.name);
        Ok(format!("hello {name} from {caller}"))
    }
}

/// Arguments of the program.
#[derive(Default)]
struct Arguments {
    has_auth: bool,
    pending: Option<usize>,
    tls: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            None if argument == "auth" => arguments.has_auth = true,
            Some(("pending", bytes)) => {
                arguments.pending = Some(bytes.parse().map_err(|error| format!("{argument}: {error}"))?);
            }
            Some(("tls", files)) => {
                let (cert, key) = files.split_once(',').ok_or("tls=CERT,KEY")?;
                arguments.tls = Some(format!("?cert={cert}&key={key}"));
            }
            _ => return Err(format!("unknown argument {argument:?}")),
        }
    }
    Ok(arguments)
}

async fn start(bus: &Bus, arguments: &Arguments) -> Result<(Running, Nats), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    options.outbox_bytes_max = arguments.pending.unwrap_or(64 << 20);
    options.drain_notice = Duration::from_millis(500);
    let nats = Nats::new(bus.clone()).server_name("interop").options(options);
    let mut server = Server::new().add(GreeterServer::new(Desk)).add(BusServer::new(bus.clone()));
    if arguments.has_auth {
        server = server
            .auth(Tokens::default().token("t0ken", Caller::new("alice")))
            .auth(Basic::default().user("carol", "p4ss", Caller::new("carol")));
    }
    let tls = arguments.tls.as_deref().unwrap_or_default();
    let server = server
        .plugin(nats.clone())
        .listen("tcp://127.0.0.1:0")
        .listen(format!("nats://127.0.0.1:0{tls}"))
        .listen("tcp://127.0.0.1:0?wires=connect,nats");
    Ok((server.start().await?, nats))
}

/// Sends the entries of a subscription of a native caller.
async fn watch(url: &str, topic: &str, entries: mpsc::UnboundedSender<String>) -> Result<()> {
    let client = BusClient::connect(url).await?;
    let request = SubscribeRequest { topic: topic.to_owned(), ..Default::default() };
    let mut events = client.subscribe(request).await?;
    // The first event: the subscription has begun.
    events.next().await?;
    tokio::spawn(async move {
        let _client = client;
        while let Ok(Some(event)) = events.next().await {
            if let Some(Event::Entry(entry)) = event.event {
                let text = String::from_utf8_lossy(&entry.payload);
                let line = format!("entry {} {text}", entry.topic);
                if entries.send(line).is_err() {
                    return;
                }
            }
        }
    });
    Ok(())
}

fn counters(stats: &NatsStats) -> String {
    format!("stats {stats:?}")
}

#[switchboard::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Bus::new();
    let (running, nats) = start(&bus, &arguments()?).await?;
    let place = |address: &Address| match address {
        Address::Tcp(host, port) | Address::Tls(host, port) => format!("{host}:{port}"),
        other => other.to_string(),
    };
    let addresses: Vec<_> = running.addresses().iter().map(place).collect();
    println!("listening on {} {} {}", addresses[1], addresses[0], addresses[2]);
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let (entries, mut watched) = mpsc::unbounded_channel();
    while let Some(line) = lines.recv().await {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["publish", topic, text] => {
                let publication = Publication::new(Codec::Raw, text.to_owned());
                println!("published {}", bus.publish_encoded(topic, publication).await?.offset);
            }
            ["flood", topic, count, bytes] => {
                let text = bytes::Bytes::from(vec![b'x'; bytes.parse()?]);
                for _ in 0..count.parse::<usize>()? {
                    bus.publish_encoded(topic, Publication::new(Codec::Raw, text.clone())).await?;
                    tokio::task::yield_now().await;
                }
                println!("flooded");
            }
            ["stats"] => println!("{}", counters(&nats.stats())),
            ["watch", topic] => {
                watch(&running.url(), topic, entries.clone()).await?;
                println!("watching");
            }
            ["next"] => println!("{}", watched.recv().await.unwrap_or_default()),
            ["stop"] => break,
            _ => println!("unknown command {line:?}"),
        }
    }
    running.stop(StopOptions::new()).await;
    println!("stopped");
    Ok(())
}
