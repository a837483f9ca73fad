//! `goim-server [cookie] [legacy] [merge] [token]`: devices of goim on one port, of im-cloud on another, and the HTTP
//! interfaces on a third, for the cases in `python`.
//!
//! With `cookie`, devices need the cookie `session=good`; with `legacy`, operations do not filter rooms; with `merge`,
//! rooms have a window of 200 ms; with `token`, the interfaces need the token `secret`. A device that is behind by
//! 512 KiB misses pushes.
//!
//! Prints `devices PORT im-cloud PORT api PORT`. Reads a command from each line of the standard input, and prints a
//! line for each: `stats` with the counters, `close KEY`, `join KEY ROOM`, `stop`.

use std::{io::BufRead, time::Duration};
use switchboard::{Result, Running, Server, Status, StopOptions};
use switchboard_fanout::Options;
use switchboard_push::{
    Hub, HubLimits, Identity, Rooms,
    adapter::goim::Goim,
    api::{GoimApi, Nodes},
    from_fn,
};
use tokio::sync::mpsc;

/// Bytes that wait for a device.
const WAITING_BYTES: usize = 512 << 10;

fn port(running: &Running) -> String {
    running.url().rsplit(':').next().unwrap_or_default().to_owned()
}

async fn hub(merges: bool, has_cookies: bool) -> Result<Hub> {
    let rooms = if merges { Rooms::new().merge(Duration::from_millis(200)) } else { Rooms::new() };
    let mut limits = HubLimits::default();
    (limits.broadcasts_per_s, limits.room_changes_per_s) = (1_000.0, 1_000.0);
    let hub = Hub::builder().rooms("live/*", rooms).limits(limits);
    if !has_cookies {
        return hub.open().build().await;
    }
    let verifier = from_fn(|credentials| async move {
        match credentials.metadata.text("cookie") {
            Some("session=good") => Ok(Identity::new("ali")),
            _ => Err(Status::unauthenticated("no such session")),
        }
    });
    hub.auth(verifier).build().await
}

#[switchboard::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let hub = hub(has("merge"), has("cookie")).await?;
    let mut options = Options::default();
    (options.broadcast_buffer_bytes_max, options.outbox_bytes_max) = (WAITING_BYTES, WAITING_BYTES);
    let mut goim = Goim::new(hub.clone()).options(options).allow_device_pushes();
    if has("legacy") {
        goim = goim.strict_legacy();
    }
    let api: GoimApi = goim.api().nodes(Nodes::new("conn.example.org"));
    let api = if has("token") { api.token("secret") } else { api.open() };
    let devices = Server::new().plugin(goim.clone()).listen("tcp://127.0.0.1:0").start().await?;
    let im_cloud = "tcp://127.0.0.1:0?wires=connect,im-cloud";
    let im_cloud = Server::new().plugin(goim.clone()).listen(im_cloud).start().await?;
    let api = Server::new().plugin(api).listen("tcp://127.0.0.1:0").start().await?;
    println!("devices {} im-cloud {} api {}", port(&devices), port(&im_cloud), port(&api));
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["stats"] => println!("stats {:?} devices: {}", goim.stats(), hub.stats().devices),
            ["close", key] => {
                hub.key(key).close("closed by a command")?;
                println!("closed");
            }
            ["join", key, room] => {
                hub.key(key).join(*room)?;
                println!("joined");
            }
            ["stop"] => break,
            _ => println!("unknown command"),
        }
    }
    for running in [api, im_cloud, devices] {
        running.stop(StopOptions::new()).await;
    }
    println!("stopped");
    Ok(())
}
