//! `resp-server [PORT] [auth | small]`: a server with the plugin for Redis, the service of its bus, and a service to
//! call, which the cases in `python` and `js` drive.
//!
//! `auth` checks credentials: the token `secret` and the user `bob` with the password `pass`. With `small`, a
//! subscriber that is behind by 256 KiB is closed.
//!
//! Prints `listening on 127.0.0.1:PORT`. Reads a command from each line of the standard input, and prints a line for
//! each.
//!
//! | command | response |
//! | --- | --- |
//! | `publish TOPIC TEXT` | `published OFFSET`, by a caller of the bus service on the native wire |
//! | `next` | `entry TOPIC TEXT`, the next entry that a caller on the native wire receives, of any topic |
//! | `stats` | `stats` and the counters |
//! | `go` | `gone`: a call of `Wait` ends |
//! | `stop` | `stopped` |

use std::{io::BufRead, sync::Arc};
use switchboard::{
    Caller, Cx, Receiver, Result, Server, Status, StopOptions,
    auth::{Basic, Tokens},
};
use switchboard_adapter::Redis;
use switchboard_bus::{
    BusServer,
    v1::{BusClient, Publication, PublishRequest, SubscribeEvent, SubscribeRequest, subscribe_event::Event},
};
use switchboard_fanout::Options;
use switchboard_message::Bus;
use tokio::sync::{Semaphore, mpsc};

/// A service on the same port.
#[switchboard::service(name = "interop.v1.Desk")]
trait Desk {
    /// Returns the text.
    async fn echo(&self, text: String) -> Result<String>;
    /// Fails with this text.
    async fn fail(&self, text: String) -> Result<String>;
    /// Returns the name of the caller.
    async fn caller(&self, cx: &Cx) -> Result<String>;
    /// Returns the text after the command `go`.
    async fn wait(&self, text: String) -> Result<String>;
}

struct Clerk {
    permits: Arc<Semaphore>,
}

impl Desk for Clerk {
    async fn echo(&self, text: String) -> Result<String> {
        Ok(text)
    }

    async fn fail(&self, text: String) -> Result<String> {
        Err(Status::failed_precondition(text))
    }

    async fn caller(&self, cx: &Cx) -> Result<String> {
        Ok(cx.caller().map_or_else(String::new, |caller| caller.name.clone()))
    }

    async fn wait(&self, text: String) -> Result<String> {
        self.permits.acquire().await.map_err(|_| Status::unavailable("the test has ended"))?.forget();
        Ok(text)
    }
}

/// A caller of the bus service on the native wire.
struct Native {
    client: BusClient,
    events: Receiver<SubscribeEvent>,
}

impl Native {
    async fn connect(url: &str) -> Result<Native> {
        let client = BusClient::connect(url).await?;
        let request = SubscribeRequest { topic: ">".to_owned(), ..Default::default() };
        let mut events = client.subscribe(request).await?;
        // The first event says that the subscription has begun.
        events.next().await?;
        Ok(Native { client, events })
    }

    async fn publish(&self, topic: &str, text: &str) -> Result<u64> {
        let entry = Publication { payload: text.to_owned().into(), ..Default::default() };
        let request = PublishRequest { topic: topic.to_owned(), entry: entry.into(), ..Default::default() };
        Ok(self.client.publish(request).await?.position.offset)
    }

    async fn next(&mut self) -> Result<String> {
        while let Some(event) = self.events.next().await? {
            if let Some(Event::Entry(entry)) = event.event {
                return Ok(format!("entry {} {}", entry.topic, String::from_utf8_lossy(&entry.payload)));
            }
        }
        Err(Status::unavailable("the subscription has ended"))
    }
}

#[switchboard::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = arguments.iter().find_map(|argument| argument.parse::<u16>().ok()).unwrap_or(0);
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let bus = Bus::new();
    let mut redis = Redis::new(bus.clone());
    if has("small") {
        let mut options = Options::default();
        (options.broadcast_buffer_bytes_max, options.outbox_bytes_max) = (256 << 10, 256 << 10);
        redis = redis.options(options);
    }
    let permits = Arc::new(Semaphore::new(0));
    let mut server = Server::new()
        .add(DeskServer::new(Clerk { permits: permits.clone() }))
        .add(BusServer::new(bus))
        .plugin(redis.clone());
    if has("auth") {
        let tokens = Tokens::default().token("secret", Caller::new("ali"));
        server = server.auth(Basic::default().user("bob", "pass", Caller::new("bob"))).auth(tokens);
    }
    let running = server.listen(format!("tcp://127.0.0.1:{port}")).start().await?;
    println!("listening on {}", running.url().replace("tcp://", ""));
    let mut native = if has("auth") { None } else { Some(Native::connect(&running.url()).await?) };
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        match (line.splitn(3, ' ').collect::<Vec<_>>().as_slice(), &mut native) {
            (["publish", topic, text], Some(native)) => {
                println!("published {}", native.publish(topic, text).await?);
            }
            (["next"], Some(native)) => println!("{}", native.next().await?),
            (["stats"], _) => println!("stats {:?}", redis.stats()),
            (["go"], _) => {
                permits.add_permits(1);
                println!("gone");
            }
            (["stop"], _) => break,
            _ => println!("unknown command"),
        }
    }
    drop(native);
    running.stop(StopOptions::new()).await;
    println!("stopped");
    Ok(())
}
