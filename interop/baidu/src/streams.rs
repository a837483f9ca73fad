//! Calls of a server with streams.

use crate::{
    cases::{Cases, client, expect, request},
    proto::{EchoClient, EchoReply},
};
use std::time::Duration;
use switchboard::{Code, Receiver, Result, Status};

/// Makes every call to the server on this address, `127.0.0.1:PORT`, and prints a line for each case; how many failed.
///
/// # Errors
/// The server cannot be reached.
pub async fn run(address: &str) -> Result<usize> {
    let echo = client(address, "baidu_std&connections=1").await?;
    let mut cases = Cases::default();
    cases.check("replies in a stream", counts(&echo).await);
    cases.check("messages both ways", chats(&echo).await);
    cases.check("credit both ways", waits(&echo).await);
    cases.check("a response with a message", welcomes(&echo).await);
    cases.check("a response without a stream", plain(&echo).await);
    cases.check("errors", fails(&echo).await);
    cases.check("streams that are given up", gives_up(&echo).await);
    cases.check("slow readers", slow_readers(&echo).await);
    cases.check("replies behind the last request", replies_come_after_the_end(&echo).await);
    Ok(cases.failed)
}

/// The text of the next reply.
async fn next(replies: &mut Receiver<EchoReply>) -> Result<Option<String>> {
    Ok(replies.next().await?.map(|reply| reply.text))
}

fn same(came: Option<&str>, wanted: Option<&str>) -> Result<()> {
    expect(came == wanted, || format!("{came:?}, not {wanted:?}"))
}

async fn counts(echo: &EchoClient) -> Result<()> {
    let mut replies = echo.count(request("3 2")).await?;
    for wanted in [Some("00"), Some("11"), Some("22"), None] {
        same(next(&mut replies).await?.as_deref(), wanted)?;
    }
    Ok(())
}

async fn chats(echo: &EchoClient) -> Result<()> {
    let (sender, mut replies) = echo.chat().await?;
    for text in ["one", "", "two"] {
        sender.send(request(text)).await?;
        same(next(&mut replies).await?.as_deref(), Some(&text.to_uppercase()))?;
    }
    sender.finish();
    same(next(&mut replies).await?.as_deref(), None)
}

/// More than either side sends ahead.
async fn waits(echo: &EchoClient) -> Result<()> {
    let mut replies = echo.count(request("40 200000")).await?;
    for at in 0..40 {
        let text = next(&mut replies).await?;
        expect(text.as_ref().is_some_and(|text| text.len() == 200_000), || format!("reply {at} is another"))?;
    }
    same(next(&mut replies).await?.as_deref(), None)?;
    let (sender, mut replies) = echo.chat().await?;
    let text = "x".repeat(100_000);
    let sending = tokio::spawn(async move {
        for _ in 0..60 {
            sender.send(request(&text)).await?;
        }
        Ok::<_, Status>(sender)
    });
    for at in 0..60 {
        let text = next(&mut replies).await?;
        expect(text.is_some_and(|text| text.len() == 100_000), || format!("reply {at} is another"))?;
    }
    sending.await.map_err(|error| Status::internal(error.to_string()))??.finish();
    same(next(&mut replies).await?.as_deref(), None)
}

async fn welcomes(echo: &EchoClient) -> Result<()> {
    let mut replies = echo.count(request("welcome")).await?;
    same(next(&mut replies).await?.as_deref(), Some("welcome"))?;
    same(next(&mut replies).await?.as_deref(), None)
}

async fn plain(echo: &EchoClient) -> Result<()> {
    let mut replies = echo.count(request("plain")).await?;
    same(next(&mut replies).await?.as_deref(), Some("no stream"))?;
    same(next(&mut replies).await?.as_deref(), None)
}

async fn fails(echo: &EchoClient) -> Result<()> {
    let mut replies = echo.count(request("fail")).await?;
    match next(&mut replies).await {
        Err(status) if status.code() == Code::Internal && status.message() == "not today" => Ok(()),
        other => Err(Status::internal(format!("{other:?}"))),
    }
}

/// Servers with windows smaller and larger than ours, and a reader that is slow on a machine that is busy.
async fn slow_readers(echo: &EchoClient) -> Result<()> {
    let busy: Vec<_> = (0..4).map(|_| tokio::spawn(busy())).collect();
    for request in ["200 10000 65536", "200 40000 2097152", "200 40000 16777216", "200 10000 16777216"] {
        let mut replies = echo.count(crate::cases::request(request)).await?;
        for at in 0..200 {
            let came = next(&mut replies).await?;
            expect(came.is_some(), || format!("{request}: the stream ended after {at} messages"))?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        same(next(&mut replies).await?.as_deref(), None)?;
    }
    busy.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// Takes what time there is.
async fn busy() {
    loop {
        std::hint::black_box((0..20_000_u64).sum::<u64>());
        tokio::task::yield_now().await;
    }
}

/// brpc cannot write into a stream that its client has closed.
async fn replies_come_after_the_end(echo: &EchoClient) -> Result<()> {
    for _ in 0..20 {
        let (sender, mut replies) = echo.chat().await?;
        for _ in 0..10 {
            sender.send(request("one")).await?;
        }
        sender.finish();
        for _ in 0..10 {
            same(next(&mut replies).await?.as_deref(), Some("ONE"))?;
        }
        same(next(&mut replies).await?.as_deref(), None)?;
    }
    Ok(())
}

async fn gives_up(echo: &EchoClient) -> Result<()> {
    let (sender, mut replies) = echo.chat().await?;
    sender.send(request("abc")).await?;
    same(next(&mut replies).await?.as_deref(), Some("ABC"))?;
    drop((sender, replies));
    // One connection: the server receives the end before the next call, as soon as the connection has
    // noticed.
    loop {
        match echo.echo(request("?")).await?.text.as_str() {
            "1 resets" => return Ok(()),
            "0 resets" => tokio::task::yield_now().await,
            other => return Err(Status::internal(other.to_owned())),
        }
    }
}
