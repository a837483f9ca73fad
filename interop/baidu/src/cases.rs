//! Calls of a server of another implementation.

use crate::proto::{EchoClient, EchoRequest};
use switchboard::{Channel, Code, Compression, Result, Status};

/// Cases that were run.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    /// How many failed.
    pub(crate) failed: usize,
}

impl Cases {
    /// Prints what became of a case.
    pub(crate) fn check(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => println!("{name}: passed"),
            Err(status) => {
                self.failed += 1;
                println!("{name}: FAILED: {status}");
            }
        }
    }
}

/// Makes every call to the server on this address, `127.0.0.1:PORT`, and prints a line for each case; how many failed.
///
/// # Errors
/// The server cannot be reached.
pub async fn run(address: &str) -> Result<usize> {
    let full = client(address, "baidu_std").await?;
    let short = client(address, "baidu_std&names=short").await?;
    let mut cases = Cases::default();
    let mut check = |name: &str, result: Result<()>| cases.check(name, result);
    check("full name", says(&full, "abc").await);
    check("short name", says(&short, "abc").await);
    check("checksums are ignored", says(&client(address, "baidu_std&checksum=crc32c").await?, "abc").await);
    check("large message", says(&full, &"x".repeat(3_000_000)).await);
    check("gzip", compressed(&full, Compression::Gzip).await);
    check("snappy", compressed(&full, Compression::Snappy).await);
    check("attachments", attachments(&short, &"z".repeat(1000), &BOTH).await);
    check("log id and credentials", beside(&full).await);
    check("errors", errors(&full).await);
    check("many callers", many(&full).await);
    Ok(cases.failed)
}

/// A client of the server on this address, on a wire with its options.
pub(crate) async fn client(address: &str, wire: &str) -> Result<EchoClient> {
    let url = format!("tcp://{address}?wire={wire}");
    Ok(EchoClient::new(Channel::connect(&url).await?))
}

pub(crate) fn request(text: &str) -> EchoRequest {
    EchoRequest { text: text.to_owned(), ..EchoRequest::default() }
}

pub(crate) fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Status::internal(what())) }
}

pub(crate) async fn says(client: &EchoClient, text: &str) -> Result<()> {
    let reply = client.echo(request(text)).await?;
    expect(reply.text == format!("hello {text}"), || format!("{} bytes came back", reply.text.len()))
}

pub(crate) async fn compressed(client: &EchoClient, compression: Compression) -> Result<()> {
    let text = "y".repeat(300_000);
    // The server compresses its reply as the request.
    let reply = client.echo(request(&text)).compression(compression).await?;
    expect(reply.text.len() == text.len() + 6, || format!("{} bytes came back", reply.text.len()))?;
    let reply = client.echo(request("small")).compression(compression).await?;
    expect(reply.text == "hello small", || reply.text.clone())
}

/// Plain messages and compressed ones.
pub(crate) const BOTH: [Compression; 2] = [Compression::None, Compression::Gzip];

/// Attachments come back turned round, beside a message with this text.
pub(crate) async fn attachments(client: &EchoClient, text: &str, each: &[Compression]) -> Result<()> {
    for size in [1, 1000, 2_000_000] {
        let sent: Vec<u8> = (0..size).map(|at: u32| (at * 7) as u8).collect();
        let turned: Vec<u8> = sent.iter().rev().copied().collect();
        for compression in each {
            let call = client.echo(request(text)).compression(*compression);
            let reply = call.attachment(sent.clone()).await?;
            expect(reply.attachment().is_some_and(|came| *came == turned), || {
                format!("of {size} bytes {:?} came back", reply.attachment().map(|bytes| bytes[..].len()))
            })?;
        }
    }
    Ok(())
}

async fn beside(client: &EchoClient) -> Result<()> {
    let call = client.echo(request("abc")).meta("baidu-log-id", "77").meta("baidu-authentication", "s3cret");
    let reply = call.await?;
    expect(reply.log_id == 77 && reply.caller == "s3cret", || format!("{} {}", reply.log_id, reply.caller))
}

async fn errors(client: &EchoClient) -> Result<()> {
    let status = failure(client.echo(request("fail")).await)?;
    let number = status.metadata().text("baidu-error-code").unwrap_or_default();
    expect(number == "2001" && status.code() == Code::Internal, || format!("{number} {status}"))?;
    expect(status.message().contains("no such thing"), || status.to_string())?;
    // A message of no bytes is no argument to this library.
    let status = failure(client.echo(request("")).await)?;
    expect(status.message().contains("wrong number of arguments"), || status.to_string())?;
    says(client, "after").await
}

pub(crate) fn failure<T>(result: Result<T>) -> Result<Status> {
    match result {
        Ok(_) => Err(Status::internal("it did not fail")),
        Err(status) => Ok(status),
    }
}

pub(crate) async fn many(client: &EchoClient) -> Result<()> {
    let callers = (0..50).map(|caller| {
        let client = client.clone();
        tokio::spawn(async move {
            for call in 0..100 {
                says(&client, &format!("call {caller} {call}")).await?;
            }
            Ok::<(), Status>(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.map_err(|error| Status::internal(error.to_string()))??;
    }
    Ok(())
}
