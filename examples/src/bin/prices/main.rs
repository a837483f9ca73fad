//! Prices of one port, for four kinds of programs: `cargo run -p examples --bin prices`.
//!
//! A service answers calls with the latest price, a publisher of Redis sends prices, and a subscriber of ZeroMQ in
//! Python and a page in a browser show them. Nothing is between them but this server. `--serve` publishes a price each
//! second at port 8080 until Ctrl-C: open <http://localhost:8080/>. Without it, the program sends a few prices, shows
//! the received ones, and ends.

mod foreign;

use bytes::Bytes;
use foreign::Publisher;
use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use switchboard::{Result, Running, Server, Status};
use switchboard_adapter::{Redis, Zmtp};
use switchboard_bus::BusServer;
use switchboard_message::{Bus, Delivery, Subscription, TopicOptions};

/// Prices that the program sends and then ends.
const SENT: [(&str, &str); 3] = [("acme", "12.5"), ("zeta", "99"), ("acme", "12.75")];

/// Answers with prices that were published.
#[switchboard::service(name = "examples.Prices")]
trait Prices {
    /// Returns the latest price of a symbol.
    async fn latest(&self, symbol: String) -> Result<String>;
}

/// The latest price of each symbol.
#[derive(Clone, Default)]
struct Latest(Arc<Mutex<HashMap<String, String>>>);

impl Prices for Latest {
    async fn latest(&self, symbol: String) -> Result<String> {
        let prices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        prices.get(&symbol).cloned().ok_or_else(|| Status::not_found(format!("no price of {symbol} yet")))
    }
}

impl Latest {
    /// Keeps the prices of `prices/SYMBOL`.
    async fn follow(self, mut prices: Subscription<Bytes>) -> Result<()> {
        while let Some(delivery) = prices.next().await? {
            let Delivery::Entry(price) = delivery else { continue };
            let symbol = price.topic().name().trim_start_matches("prices/").to_owned();
            let text = String::from_utf8_lossy(price.entry().bytes()).into_owned();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(symbol, text);
        }
        Ok(())
    }
}

/// Starts the server: a service, a page, and the topics for each protocol.
async fn start(address: &str) -> Result<Running, Box<dyn std::error::Error>> {
    let bus = Bus::builder().topics("prices/*", TopicOptions::new().history(100, Duration::MAX))?.build();
    let latest = Latest::default();
    tokio::spawn(latest.clone().follow(bus.subscribe_encoded("prices/*").await?));
    let server = Server::new()
        .page("/", "text/html; charset=utf-8", include_str!("page.html"))
        .add(PricesServer::new(latest))
        .plugin(BusServer::new(bus.clone()).event_patterns())
        .plugin(Redis::new(bus.clone()))
        .plugin(Zmtp::new(bus));
    Ok(server.listen(address).start().await?)
}

#[switchboard::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let serves = std::env::args().any(|argument| argument == "--serve");
    let running = start(if serves { "tcp://127.0.0.1:8080" } else { "tcp://127.0.0.1:0" }).await?;
    let address = running.url().trim_start_matches("tcp://").to_owned();
    if serves {
        return serve(&address).await;
    }
    // Each foreign program is ready before the first price is sent.
    let page = foreign::open_events(&address).await?;
    let python = foreign::start_subscriber(&address).await?;
    let mut publisher = Publisher::connect(&address).await?;
    for (symbol, price) in SENT {
        let receivers = publisher.publish(&format!("prices/{symbol}"), price).await?;
        println!("Redis      PUBLISH prices/{symbol} {price}: {receivers} receivers of Redis");
    }
    for line in page.read(SENT.len()).await? {
        println!("browser    {line}");
    }
    match python {
        Some(subscriber) => {
            subscriber.read(SENT.len()).await?.iter().for_each(|line| println!("pyzmq      {line}"));
        }
        None => println!("pyzmq      is not installed: pip install pyzmq"),
    }
    let prices = PricesClient::connect(&running.url()).await?;
    // The service receives the prices as the others do, and may be behind them for a moment.
    let call = || prices.latest("acme".to_owned());
    let received = async {
        while !call().await.is_ok_and(|price| *price == SENT[2].1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), received).await?;
    println!("call       examples.Prices/Latest acme: {}", SENT[2].1);
    Ok(ExitCode::SUCCESS)
}

/// Publishes until Ctrl-C.
async fn serve(address: &str) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let port = address.rsplit(':').next().unwrap_or_default();
    println!("browser    http://{address}/");
    println!("pyzmq      python3 examples/src/bin/prices/subscriber.py {address}");
    println!("Redis      redis-cli -p {port} publish prices/acme 12.5");
    println!("call       switchboard call {address} examples.Prices/Latest -d '{{\"symbol\": \"acme\"}}'");
    let mut publisher = Publisher::connect(address).await?;
    for step in 0_u32.. {
        let price = (100.0 + f64::from(step % 20) / 4.0).to_string();
        tokio::select! {
            sent = publisher.publish("prices/acme", &price) => sent?,
            _ = tokio::signal::ctrl_c() => break,
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    Ok(ExitCode::SUCCESS)
}
