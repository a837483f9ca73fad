//! What a server of brpc-java is asked, on each wire that it speaks.

use crate::{
    cases::{Cases, attachments, client, compressed, expect, failure, many, request, says},
    proto::EchoClient,
};
use switchboard::{Code, Compression, Result};

/// Makes every call to the server on this address, `127.0.0.1:PORT`, on `wire`, and prints a line for each case; how
/// many failed.
///
/// # Errors
/// The server cannot be reached.
pub async fn run(address: &str, wire: &str) -> Result<usize> {
    let echo = client(address, wire).await?;
    let mut cases = Cases::default();
    cases.check("a call", says(&echo, "abc").await);
    cases.check("large message", says(&echo, &"x".repeat(3_000_000)).await);
    cases.check("gzip", compressed(&echo, Compression::Gzip).await);
    cases.check("snappy", compressed(&echo, Compression::Snappy).await);
    cases.check("zlib", compressed(&echo, Compression::Deflate).await);
    cases.check("attachments", attachments(&echo).await);
    cases.check("log id and credentials", beside(&echo).await);
    cases.check("errors", errors(&echo).await);
    cases.check("many callers", many(&echo).await);
    Ok(cases.failed)
}

async fn beside(echo: &EchoClient) -> Result<()> {
    let call = echo.echo(request("abc")).meta("baidu-log-id", "77").meta("baidu-authentication", "s3cret");
    let reply = call.await?;
    let caller = "s3cret, null";
    expect(reply.log_id == 77 && reply.caller == caller, || format!("{} {}", reply.log_id, reply.caller))
}

async fn errors(echo: &EchoClient) -> Result<()> {
    let status = failure(echo.echo(request("fail")).await)?;
    let number = status.metadata().text("baidu-error-code").unwrap_or_default();
    expect(number == "2001" && status.code() == Code::Internal, || format!("{number} {status}"))?;
    expect(status.message() == "no such thing", || status.to_string())?;
    says(echo, "after").await
}
