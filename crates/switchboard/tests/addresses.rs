//! Channels with several addresses, and servers that go away and come back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::{ECHO, Probe, ask, memory};
use switchboard::{Channel, Result, Running, Server};

async fn serve(address: &str) -> Running {
    Server::new().add(Probe::default()).listen(address).start().await.unwrap()
}

async fn echo(channel: &Channel) -> Result<()> {
    let text = b"text".to_vec();
    let reply: Vec<u8> = ask(channel, &ECHO, &text).await?;
    assert_eq!(reply, text);
    Ok(())
}

fn echoes(server: &Running) -> u64 {
    server.stats().methods[0].ended[0]
}

#[tokio::test]
async fn server_that_comes_back_is_called_again() {
    let address = memory();
    let server = serve(&address).await;
    let channel = Channel::connect(&format!("{address}?connections=1")).await.unwrap();
    echo(&channel).await.unwrap();
    server.kill();
    while echo(&channel).await.is_ok() {}
    let server = serve(&address).await;
    // Calls fail at once while the back-off lasts.
    while echo(&channel).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(echoes(&server), 1);
}

#[tokio::test]
async fn addresses_take_turns() {
    let servers = [serve("tcp://127.0.0.1:0").await, serve("tcp://127.0.0.1:0").await];
    let second = servers[1].url().replace("tcp://", "");
    let url = format!("{},{second}?connections=1&balance=round_robin", servers[0].url());
    let channel = Channel::connect(&url).await.unwrap();
    for _ in 0..200 {
        echo(&channel).await.unwrap();
    }
    let counts = servers.each_ref().map(echoes);
    assert!(counts.iter().sum::<u64>() == 200 && counts.iter().all(|count| *count >= 50), "{counts:?}");
}

#[tokio::test]
async fn address_that_does_not_answer_is_passed_over() {
    let gone = serve("tcp://127.0.0.1:0").await;
    let server = serve("tcp://127.0.0.1:0").await;
    let url = format!("{},{}?connections=1", gone.url(), server.url().replace("tcp://", ""));
    drop(gone);
    let channel = Channel::connect(&url).await.unwrap();
    for _ in 0..20 {
        echo(&channel).await.unwrap();
    }
    assert_eq!(echoes(&server), 20);
}
