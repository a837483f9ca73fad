//! `centrifuge-server`: clients of Centrifuge and the HTTP interface on one port, for the cases in `js` and `python`.
//!
//! Tokens are JWTs with the secret of 32 bytes `7`. Rooms of `live` keep 100 entries, have presence, and clients
//! publish to them. The service `Echo` has the method `say`.
//!
//! Prints `port PORT`. Reads a command from each line of the standard input, and prints a line for each: `publish ROOM
//! DATA`, `close USER`, `join USER ROOM`, `restart`, which disconnects all clients and listens on the same port again,
//! `stop`.

use std::{io::BufRead, time::Duration};
use switchboard::{Result, Running, Server, StopOptions};
use switchboard_push::{Access, CentrifugoApi, Hub, Jwt, Rooms, adapter::centrifuge::Centrifuge};
use tokio::sync::mpsc;

#[switchboard::service]
trait Echo {
    async fn say(&self, text: String) -> Result<String>;
}

struct Upper;

impl Echo for Upper {
    async fn say(&self, text: String) -> Result<String> {
        Ok(text.to_uppercase())
    }
}

async fn serve(hub: &Hub, port: u16) -> Result<Running, Box<dyn std::error::Error>> {
    let plugin = Centrifuge::new(hub.clone());
    let api = CentrifugoApi::new(hub.clone()).key("secret");
    let server = Server::new().add(EchoServer::new(Upper)).plugin(plugin).plugin(api);
    Ok(server.listen(format!("tcp://127.0.0.1:{port}")).start().await?)
}

fn port(running: &Running) -> u16 {
    running.url().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default()
}

#[switchboard::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let live = Rooms::new().history(100, Duration::MAX).presence().publish(Access::members());
    let private = Rooms::new().join(Access::none());
    let hub = Hub::builder().auth(Jwt::hs256([7; 32])).rooms("live/*", live).rooms("private/*", private);
    let hub = hub.build().await?;
    let mut running = serve(&hub, 0).await?;
    let port = port(&running);
    println!("port {port}");
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        match line.splitn(3, ' ').collect::<Vec<_>>().as_slice() {
            ["publish", room, data] => {
                let data: serde_json::Value = serde_json::from_str(data)?;
                println!("published {}", hub.room(*room).publish(&data).await?.offset);
            }
            ["close", user] => {
                hub.user(user).close("closed by a command")?;
                println!("closed");
            }
            ["join", user, room] => {
                hub.user(user).join(*room)?;
                println!("joined");
            }
            ["restart"] => {
                running.stop(StopOptions::new().drain(Duration::from_millis(200))).await;
                println!("stopped");
                running = serve(&hub, port).await?;
                println!("restarted");
            }
            ["stop"] => break,
            _ => println!("unknown {line}"),
        }
    }
    Ok(())
}
