//! Calls of our client to a server of rpcx.

use crate::{
    proto::{EchoClient, Note},
    quotients::{DivideByZero, Factors, QuotientsClient},
    services::{ArithClient, Blob, FunctionsClient, MathsClient, Product},
    side,
};
use std::{fmt::Debug, time::Duration};
use switchboard::{Channel, Code, Compression, Pushes, Status, codec::thrift::Exception};

/// Longer than every deadline here but the one that is to pass.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every case with each server, in each codec.
///
/// # Errors
/// The cases that failed.
pub(crate) async fn all(urls: &[String]) -> Result<(), String> {
    let (mut failures, mut count) = (Vec::new(), 0);
    for url in urls {
        for options in ["wire=rpcx", "wire=rpcx&codec=json", "wire=rpcx&codec=msgpack"] {
            let url = with(url, options);
            let arith = Case { url: &url, arith: ArithClient::new(channel(&url, Compression::None).await?) };
            let packed = Case { url: &url, arith: ArithClient::new(channel(&url, Compression::Gzip).await?) };
            for (name, outcome) in [
                ("mul", arith.mul().await),
                ("error", arith.error().await),
                ("unknown", arith.unknown().await),
                ("metadata", arith.metadata().await),
                ("credentials", arith.credentials().await),
                ("many at once", arith.many().await),
                ("one-way", arith.oneway().await),
                ("deadline", arith.deadline().await),
                ("canceled", arith.canceled().await),
                ("heartbeats", arith.heartbeats().await),
                ("pushed", arith.pushed().await),
                ("mirror", arith.mirror().await),
                ("mirror gzip", packed.mirror().await),
            ] {
                count += 1;
                failures.extend(outcome.err().map(|why| format!("{url} {name}: {why}")));
            }
        }
        for (compression, length) in
            [(Compression::None, 10), (Compression::Gzip, 10), (Compression::Gzip, 5000)]
        {
            count += 1;
            let outcome = shout(&with(url, "wire=rpcx"), compression, length).await;
            failures.extend(outcome.err().map(|why| format!("{url} shout {compression} {length}: {why}")));
        }
    }
    for url in urls {
        let url = |options: &str| with(url, options);
        for (name, outcome) in [
            ("thrift", quotients(&url("wire=rpcx")).await),
            ("raw", reverse(&url("wire=rpcx&codec=raw"), Compression::None).await),
            ("raw gzip", reverse(&url("wire=rpcx&codec=raw"), Compression::Gzip).await),
            ("files", side::files(&url("wire=rpcx")).await),
            ("streams", side::streams(&url("wire=rpcx")).await),
            ("names", names(&url("wire=rpcx")).await),
        ] {
            count += 1;
            failures.extend(outcome.err().map(|why| format!("{} {name}: {why}", url(""))));
        }
    }
    println!("{} of {count} cases", count - failures.len());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn with(url: &str, options: &str) -> String {
    format!("{url}{}{options}", if url.contains('?') { '&' } else { '?' })
}

async fn channel(url: &str, compression: Compression) -> Result<Channel, String> {
    let builder = Channel::builder(url).timeout(PATIENCE).compression(compression);
    builder.connect().await.map_err(|status| format!("{url}: {status}"))
}

/// A message of protobuf.
async fn shout(url: &str, compression: Compression, length: usize) -> Result<(), String> {
    let echo = EchoClient::new(channel(url, compression).await?);
    let note = Note {
        text: "q".repeat(length),
        number: 1 << 40,
        data: vec![0, 1, 255].into(),
        ..Default::default()
    };
    let reply = echo.shout(note.clone()).await.map_err(text)?.into_inner();
    equal(&reply, &Note { text: "Q".repeat(length), ..note })
}

/// An alias, and a function.
async fn names(url: &str) -> Result<(), String> {
    let channel = channel(url, Compression::None).await?;
    equal(&MathsClient::new(channel.clone()).times(6, 7).await.map_err(text)?.c, &42)?;
    equal(&FunctionsClient::new(channel).twice(21, 0).await.map_err(text)?.c, &42)
}

/// Bytes that only the method reads.
async fn reverse(url: &str, compression: Compression) -> Result<(), String> {
    let arith = ArithClient::new(channel(url, compression).await?);
    for size in [0, 3, 100_000] {
        let reversed = arith.reverse([vec![1; size], vec![2]].concat()).await.map_err(text)?;
        equal(&*reversed, &[vec![2], vec![1; size]].concat())?;
    }
    let status = failed(arith.mul(1, 2).await)?;
    equal(&status.code(), &Code::Unimplemented)
}

/// A struct each way, and what Thrift makes of other arguments and results.
async fn quotients(url: &str) -> Result<(), String> {
    let quotients = QuotientsClient::new(channel(url, Compression::None).await?);
    let quotient = quotients.divide(Factors { a: -84, b: 2 }).await.map_err(text)?;
    equal(&quotient.c, &-42)?;
    let sum = quotients.add(1 << 40, 2).await.map_err(text)?;
    equal(&*sum, &((1 << 40) + 2))?;
    // The peer has texts alone, and no exceptions.
    let status = failed(quotients.divide(Factors { a: 1, b: 0 }).await)?;
    equal(&(status.message(), DivideByZero::of(&status)), &("divide by zero", None))
}

/// A channel to a server, and what to ask it.
struct Case<'a> {
    url: &'a str,
    arith: ArithClient,
}

impl Case<'_> {
    async fn mul(&self) -> Result<(), String> {
        let product = self.arith.mul(10, -2_000_000_000).await.map_err(text)?;
        equal(&*product, &Product { c: -20_000_000_000 })
    }

    async fn error(&self) -> Result<(), String> {
        let status = failed(self.arith.div(1, 0).await)?;
        equal(&(status.code(), status.message()), &(Code::Unknown, "divide by zero"))?;
        self.mul().await
    }

    async fn unknown(&self) -> Result<(), String> {
        let status = failed(self.arith.lost().await)?;
        equal(&(status.code(), status.message()), &(Code::Unimplemented, "rpcx: can't find method Lost"))
    }

    async fn metadata(&self) -> Result<(), String> {
        let call = self.arith.describe().meta("authorization", "Bearer sesame").meta("tenant", "ours");
        let reply = call.await.map_err(text)?;
        let received = |name: &str| reply.metadata.get(name).map(String::as_str);
        equal(&received("__AUTH"), &Some("Bearer sesame"))?;
        equal(&received("tenant"), &Some("ours"))?;
        equal(&received("__ServerTimeout").is_some(), &true)?;
        equal(&reply.meta().text("answered-by"), &Some("go"))
    }

    /// The peer ends the connection with it, hence one of its own.
    async fn credentials(&self) -> Result<(), String> {
        let arith = ArithClient::new(channel(self.url, Compression::None).await?);
        let status = failed(arith.describe().meta("authorization", "Bearer nonsense").await)?;
        equal(&status.message(), &"invalid token")
    }

    async fn many(&self) -> Result<(), String> {
        let calls: Vec<_> = (0..500).map(|n| tokio::spawn(self.arith.mul(n, 3).into_future())).collect();
        for (n, call) in (0..).zip(calls) {
            let product = call.await.map_err(|error| error.to_string())?.map_err(text)?;
            equal(&product.c, &(3 * n))?;
        }
        Ok(())
    }

    /// Requests of a connection may be handled in any order.
    async fn oneway(&self) -> Result<(), String> {
        let before = *self.arith.noted().await.map_err(text)?;
        for _ in 0..3 {
            self.arith.note().await.map_err(text)?;
        }
        for _ in 0..1000 {
            if *self.arith.noted().await.map_err(text)? >= before + 3 {
                return Ok(());
            }
        }
        Err("the three one-way calls did not arrive".to_owned())
    }

    /// The server ends it, or we do: both have the deadline.
    async fn deadline(&self) -> Result<(), String> {
        let status = failed(self.arith.sleep(60_000).timeout(Duration::from_millis(30)).await)?;
        equal(&status.code(), &Code::DeadlineExceeded)
    }

    /// The late response is dropped.
    async fn canceled(&self) -> Result<(), String> {
        let sleep = self.arith.sleep(50).into_future();
        if tokio::time::timeout(Duration::from_millis(5), sleep).await.is_ok() {
            return Err("slept for too short a time".to_owned());
        }
        self.arith.sleep(60).await.map_err(text)?;
        self.mul().await
    }

    /// A call that is longer than the connection would last without an answer to a heartbeat. The server gets half a
    /// second for each: it is a process of its own, and may not run for tens of milliseconds.
    async fn heartbeats(&self) -> Result<(), String> {
        let builder = Channel::builder(self.url).timeout(PATIENCE).keepalive(Duration::from_millis(500));
        let arith = ArithClient::new(builder.connect().await.map_err(text)?);
        arith.sleep(1200).await.map_err(text)?;
        Ok(())
    }

    /// Receives server pushes, sent at once and after the reply.
    async fn pushed(&self) -> Result<(), String> {
        let pushes = Pushes::new();
        let builder = Channel::builder(self.url).timeout(PATIENCE).pushes(&pushes);
        let arith = ArithClient::new(builder.connect().await.map_err(text)?);
        arith.subscribe(5).await.map_err(text)?;
        for n in 0..5 {
            let next = tokio::time::timeout(PATIENCE, pushes.next()).await;
            let push = next.map_err(|_| format!("{n} of 5 messages came"))?;
            let number = push.metadata.text("number").unwrap_or_default();
            let fields = (push.path.as_str(), number, &push.message[..]);
            equal(&fields, &("News/Flash", &*n.to_string(), format!("breaking {n}").as_bytes()))?;
        }
        Ok(())
    }

    async fn mirror(&self) -> Result<(), String> {
        // In JSON the peer leaves bytes out.
        let data = if self.url.contains("json") { None } else { Some([1, 2, 3, 200].repeat(50_000)) };
        let words = "large ".repeat(1000);
        let blob = self.arith.mirror(data.clone(), words.clone()).await.map_err(text)?;
        equal(&*blob, &Blob { data: data.unwrap_or_default(), text: words })
    }
}

fn failed<T>(outcome: Result<T, Status>) -> Result<Status, String> {
    outcome.err().ok_or_else(|| "it did not fail".to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn text(status: Status) -> String {
    status.to_string()
}

fn equal<T: Debug + PartialEq>(got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("got {got:?}, want {want:?}")) }
}
