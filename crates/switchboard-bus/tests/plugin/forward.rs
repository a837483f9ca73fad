//! Handlers that pass a subscription on: `Sender::forward`.

use crate::support::soon;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use switchboard::{Code, Cx, Receiver, Result, Running, Sender, Server, StopOptions};
use switchboard_bus::BusServer;
use switchboard_message::{Bus, SlowReader, TopicOptions};

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Quote {
    name: String,
    price: u64,
    notes: String,
}

fn quote(price: u64) -> Quote {
    Quote { name: "acme".to_owned(), price, notes: String::new() }
}

#[switchboard::service(name = "test.Quotes")]
trait Quotes {
    async fn set(&self, quote: Quote, cx: &Cx) -> Result<()>;
    async fn watch(&self, name: String, cx: &Cx, out: Sender<Quote>) -> Result<()>;
    async fn watch_on(&self, name: String, cx: &Cx, out: Sender<Quote>) -> Result<()>;
    async fn share(&self, cx: &Cx, out: Sender<Quote>) -> Result<()>;
    #[switchboard(spawn)]
    async fn watch_apart(&self, name: String, cx: &Cx, out: Sender<Quote>) -> Result<()>;
}

struct Desk {
    bus: Bus,
}

impl Quotes for Desk {
    async fn set(&self, quote: Quote, _: &Cx) -> Result<()> {
        self.bus.publish(&format!("quotes/{}", quote.name), &quote).await?;
        Ok(())
    }

    async fn watch(&self, name: String, _: &Cx, out: Sender<Quote>) -> Result<()> {
        out.forward(self.bus.subscribe(format!("quotes/{name}")).last(10)).await
    }

    async fn watch_on(&self, name: String, _: &Cx, out: Sender<Quote>) -> Result<()> {
        let quotes = self.bus.subscribe(format!("quotes/{name}")).await?;
        out.forward(quotes.on_gap(|_| Ok(()))).await
    }

    async fn share(&self, _: &Cx, out: Sender<Quote>) -> Result<()> {
        out.forward(self.bus.subscribe("quotes/>").group("all").ack()).await
    }

    async fn watch_apart(&self, name: String, _: &Cx, out: Sender<Quote>) -> Result<()> {
        out.forward(self.bus.subscribe(format!("quotes/{name}"))).await
    }
}

async fn serve(bus: &Bus) -> Running {
    let desk = QuotesServer::new(Desk { bus: bus.clone() });
    let server = Server::new().add(desk).plugin(BusServer::new(bus.clone()));
    server.listen("tcp://127.0.0.1:0").start().await.unwrap()
}

async fn until_subscriptions(bus: &Bus, wanted: usize) {
    soon(async {
        while bus.stats().subscriptions != wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn prices(quotes: &mut Receiver<Quote>, count: usize) -> Vec<u64> {
    let mut prices = Vec::new();
    for _ in 0..count {
        prices.push(soon(quotes.next()).await.unwrap().unwrap().price);
    }
    prices
}

const WIRES: [&str; 5] = ["", "?wire=grpc", "?wire=grpc-web", "?wire=connect", "ws"];

async fn connect(server: &Running, wire: &str) -> QuotesClient {
    let url = match wire {
        "ws" => server.url().replacen("tcp", "ws", 1),
        wire => server.url() + wire,
    };
    QuotesClient::connect(&url).await.unwrap()
}

#[tokio::test]
async fn history_and_live_entries_arrive_without_a_hole() {
    for wire in WIRES {
        let history = TopicOptions::new().history(100, Duration::MAX);
        let bus = Bus::builder().topics("quotes/*", history).unwrap().build();
        let server = serve(&bus).await;
        let client = connect(&server, wire).await;
        for price in 1..=15 {
            client.set(quote(price)).await.unwrap();
        }
        // A publisher does not stop for subscribers.
        let publisher = {
            let bus = bus.clone();
            tokio::spawn(async move {
                for price in 16..=2_000 {
                    bus.publish("quotes/acme", &quote(price)).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        };
        let mut quotes = client.watch("acme".to_owned()).await.unwrap();
        let first = prices(&mut quotes, 1).await[0];
        let rest = prices(&mut quotes, (2_000 - first) as usize).await;
        assert!(first >= 6, "{wire}: {first}");
        assert!(rest.iter().copied().eq(first + 1..=2_000), "{wire}: {first}, {rest:?}");
        publisher.await.unwrap();
        drop(quotes);
        until_subscriptions(&bus, 0).await;
        assert!(soon(server.stop(StopOptions::new())).await.is_clean());
    }
}

#[tokio::test]
async fn it_ends_with_the_caller_without_an_entry() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    for wire in WIRES {
        let client = connect(&server, wire).await;
        let watched = client.watch("acme".to_owned()).await.unwrap();
        let apart = client.watch_apart("acme".to_owned()).await.unwrap();
        until_subscriptions(&bus, 2).await;
        drop((watched, apart));
        until_subscriptions(&bus, 0).await;
    }
}

/// Publishes more than connections hold, while the caller does not read.
async fn flood(bus: &Bus) {
    until_subscriptions(bus, 1).await;
    for price in 1..=2_000 {
        let quote = Quote { notes: "x".repeat(32 << 10), ..quote(price) };
        bus.publish("quotes/acme", &quote).await.unwrap();
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_slow_caller_learns_of_missing_entries() {
    for wire in ["", "?wire=grpc"] {
        let backlog = TopicOptions::new().backlog(16);
        let bus = Bus::builder().topics("quotes/*", backlog).unwrap().build();
        let server = serve(&bus).await;
        let client = connect(&server, wire).await;
        let mut quotes = client.watch("acme".to_owned()).await.unwrap();
        flood(&bus).await;
        let held = server.stats().memory.held;
        assert!(held < 8 << 20, "{wire}: {held} bytes for the caller");
        let mut next = 1;
        let status = loop {
            match soon(quotes.next()).await {
                Ok(quote) => assert_eq!(quote.unwrap().price, next),
                Err(status) => break status,
            }
            next += 1;
        };
        assert_eq!(status.code(), Code::DataLoss, "{wire}: {status}");
        let text = format!("entries {next}..");
        assert!(status.message().starts_with(&text), "{wire}: {status}");
        assert!(status.message().ends_with("are missing: lagged; subscribe again"), "{wire}: {status}");
        until_subscriptions(&bus, 0).await;

        // The handler may go on.
        let mut quotes = client.watch_on("acme".to_owned()).await.unwrap();
        flood(&bus).await;
        let (mut last, mut received) = (0, 0);
        while last < 2_000 {
            let price = soon(quotes.next()).await.unwrap().unwrap().price;
            assert!(price > last, "{wire}: {price} after {last}");
            (last, received) = (price, received + 1);
        }
        assert!(received < 1_000, "{wire}: {received} entries");
        drop(quotes);
        until_subscriptions(&bus, 0).await;
    }
}

#[tokio::test]
async fn a_publisher_may_wait_for_the_slowest_caller() {
    let wait = SlowReader::Wait(Duration::from_secs(60));
    let options = TopicOptions::new().backlog(16).slow_reader(wait);
    let bus = Bus::builder().topics("quotes/*", options).unwrap().build();
    let server = serve(&bus).await;
    let client = connect(&server, "").await;
    let mut quotes = client.watch("acme".to_owned()).await.unwrap();
    let publishing = tokio::spawn({
        let bus = bus.clone();
        async move { flood(&bus).await }
    });
    assert_eq!(prices(&mut quotes, 2_000).await, (1..=2_000).collect::<Vec<_>>());
    publishing.await.unwrap();
}

#[tokio::test]
async fn an_entry_of_a_group_goes_to_one_caller() {
    let bus = Bus::new();
    let server = serve(&bus).await;
    let client = connect(&server, "?wire=grpc").await;
    let (mut first, second) = (client.share().await.unwrap(), client.share().await.unwrap());
    until_subscriptions(&bus, 2).await;
    drop(second);
    until_subscriptions(&bus, 1).await;
    for price in 1..=100 {
        client.set(quote(price)).await.unwrap();
    }
    assert_eq!(
        prices(&mut first, 100).await,
        (1..=100).collect::<Vec<_>>(),
        "acknowledged when they are sent"
    );
}
