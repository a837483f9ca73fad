//! One component of `switchboard-pattern`, chosen by the first argument. It prints `ready` with its endpoints, then one
//! line per reply or request, with the frames in hexadecimal. It runs until it is killed, but for the clients.

use std::{env, time::Duration};
use switchboard_core::Result;
use switchboard_pattern::{freelance, majordomo, pirate, titanic};
use switchboard_socket::Message;
use switchboard_wire::Status;

const ANY: &str = "tcp://127.0.0.1:0";
const HEARTBEAT: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        ["broker"] => broker(None).await,
        ["titanic", folder] => broker(Some(folder)).await,
        ["worker", endpoint, service] => worker(endpoint, service).await,
        ["client", endpoint, service, ref bodies @ ..] => client(endpoint, service, bodies).await,
        ["queue"] => queue().await,
        ["pirate-worker", endpoint, kind] => pirate_worker(endpoint, kind == "simple").await,
        ["lazy", endpoint, ref bodies @ ..] => lazy(endpoint, bodies).await,
        ["freelance-server", endpoint] => freelance_server(endpoint).await,
        ["freelance-client", ref servers @ .., body] => freelance_client(servers, body).await,
        _ => Err(Status::invalid_argument(format!("unknown arguments {arguments:?}"))),
    }
}

fn print(word: &str, message: &Message) {
    let frames = message.frames().iter().map(|frame| {
        let hexadecimal = frame.iter().map(|byte| format!("{byte:02x}"));
        if frame.is_empty() { "-".to_owned() } else { hexadecimal.collect() }
    });
    println!("{word} {}", frames.collect::<Vec<_>>().join(" "));
}

async fn broker(folder: Option<&str>) -> Result<()> {
    let broker = majordomo::Broker::builder().options(|options| options.heartbeat_interval = HEARTBEAT);
    let broker = broker.bind(ANY).await?;
    let endpoint = broker.endpoint().to_string();
    let mut _titanic = None;
    if let Some(folder) = folder {
        let builder = titanic::Titanic::builder(&endpoint, folder).options(|options| {
            options.heartbeat_interval = HEARTBEAT;
            options.retry_pause = HEARTBEAT;
        });
        _titanic = Some(builder.start().await?);
    }
    println!("ready {endpoint}");
    std::future::pending().await
}

async fn worker(endpoint: &str, service: &str) -> Result<()> {
    let builder = majordomo::Worker::builder(endpoint, service).heartbeat_interval(HEARTBEAT);
    let mut worker = builder.connect()?;
    println!("ready");
    while let Some(request) = worker.next().await {
        print("request", request.body());
        request.partial("part").await?;
        let body = request.body().clone();
        request.reply(body).await?;
    }
    Ok(())
}

async fn client(endpoint: &str, service: &str, bodies: &[&str]) -> Result<()> {
    let client = majordomo::Client::connect(endpoint)?;
    for body in bodies {
        let mut replies = client.call(service).stream(*body).await?;
        while let Some(reply) = replies.next().await? {
            print(if reply.is_final() { "final" } else { "partial" }, reply.body());
        }
    }
    Ok(())
}

async fn queue() -> Result<()> {
    let queue = pirate::Queue::builder().options(|options| options.heartbeat_interval = HEARTBEAT);
    let queue = queue.bind(ANY, ANY).await?;
    println!("ready {} {}", queue.clients_endpoint(), queue.workers_endpoint());
    std::future::pending().await
}

async fn pirate_worker(endpoint: &str, is_simple: bool) -> Result<()> {
    let builder = pirate::Worker::builder(endpoint).simple(is_simple).heartbeat_interval(HEARTBEAT);
    let mut worker = builder.connect()?;
    println!("ready");
    while let Some(request) = worker.next().await {
        print("request", request.body());
        let body = request.body().clone();
        request.reply(body).await?;
    }
    Ok(())
}

async fn lazy(endpoint: &str, bodies: &[&str]) -> Result<()> {
    let builder = pirate::Client::builder(endpoint).timeout(Duration::from_millis(500)).retries(20);
    let mut client = builder.connect()?;
    for body in bodies {
        print("reply", &client.request(*body).await?);
    }
    Ok(())
}

async fn freelance_server(endpoint: &str) -> Result<()> {
    let mut server = freelance::Server::bind(endpoint).await?;
    println!("ready {}", server.endpoint());
    while let Some(request) = server.next().await {
        let body = request.body().clone();
        request.reply(body)?;
    }
    Ok(())
}

async fn freelance_client(servers: &[&str], body: &str) -> Result<()> {
    let builder = freelance::TrackedClient::builder(servers).ping_interval(HEARTBEAT);
    let client = builder.timeout(Duration::from_secs(20)).connect().await?;
    print("reply", &client.request(body).await?);
    Ok(())
}
