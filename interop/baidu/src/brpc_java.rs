//! Calls of a server of brpc-java, on each wire that it speaks.

use crate::{
    cases::{BOTH, Cases, attachments, client, compressed, expect, failure, many, request, says},
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
    match wire {
        "sofa" => cases.check("no attachments", no_attachments(&echo).await),
        "hulu" => cases.check("attachments", attachments(&echo, "abc", &[Compression::None]).await),
        _ => cases.check("attachments", attachments(&echo, &"z".repeat(1000), &BOTH).await),
    }
    if wire != "sofa" {
        cases.check("log id, credentials and pairs", beside(&echo, wire).await);
    }
    cases.check("errors", errors(&echo, wire).await);
    cases.check("many callers", many(&echo).await);
    Ok(cases.failed)
}

async fn beside(echo: &EchoClient, wire: &str) -> Result<()> {
    let call = echo.echo(request("abc")).meta("baidu-log-id", "77").meta("baidu-authentication", "s3cret");
    let reply = call.meta("x-who", "bob").await?;
    // In hulu the library ignores credentials; on the other wires its pairs are in a field that no other
    // library uses.
    let caller = if wire == "hulu" { "null, bob" } else { "s3cret, null" };
    expect(reply.log_id == 77 && reply.caller == caller, || format!("{} {}", reply.log_id, reply.caller))
}

async fn no_attachments(echo: &EchoClient) -> Result<()> {
    let status = failure(echo.echo(request("abc")).attachment("more").await)?;
    expect(status.code() == Code::Unimplemented, || status.to_string())
}

async fn errors(echo: &EchoClient, wire: &str) -> Result<()> {
    let status = failure(echo.echo(request("fail")).await)?;
    let number = status.metadata().text("baidu-error-code").unwrap_or_default();
    // EINTERNAL, but it calls every failure ERESPONSE there.
    let wanted = if wire == "sofa" { "2002" } else { "2001" };
    expect(number == wanted && status.code() == Code::Internal, || format!("{number} {status}"))?;
    expect(status.message() == "no such thing", || status.to_string())?;
    says(echo, "after").await
}
