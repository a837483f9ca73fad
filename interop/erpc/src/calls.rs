//! Calls of our client to a server of eRPC.

use crate::{
    proto::{EchoClient, Note},
    services::{ArithClient, NotesClient, Number, Product, Text},
};
use std::{fmt::Debug, time::Duration};
use switchboard::{Channel, Code, Codec, Pushes, Retry, Status};

/// Longer than every deadline here but the one that is to pass.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every case with each server, through the filter and without.
///
/// # Errors
/// The cases that failed.
pub(crate) async fn all(urls: &[String]) -> Result<(), String> {
    let (mut failures, mut count) = (Vec::new(), 0);
    for url in urls {
        for filter in ["none", "gzip"] {
            let url = format!("{url}&wire=erpc&filter={filter}");
            let pushes = Pushes::new();
            let builder = Channel::builder(&url).timeout(PATIENCE).pushes(&pushes);
            let channel = builder.connect().await.map_err(|status| format!("{url}: {status}"))?;
            let (arith, notes) = (ArithClient::new(channel.clone()), NotesClient::new(channel.clone()));
            let case = Case { arith, notes, echo: EchoClient::new(channel), pushes };
            for (name, outcome) in [
                ("mul", case.mul().await),
                ("groups", groups(&url).await),
                ("error", case.error().await),
                ("an error of its own", case.own_error().await),
                ("unknown", case.unknown().await),
                ("metadata", case.metadata().await),
                ("many at once", case.many().await),
                ("push", case.push().await),
                ("pushed and called", case.back().await),
                ("deadline", case.deadline().await),
                ("canceled", case.canceled().await),
                ("texts", case.texts(&url).await),
                ("protobuf", case.shout(&url).await),
            ] {
                count += 1;
                failures.extend(outcome.err().map(|why| format!("{url} {name}: {why}")));
            }
        }
    }
    println!("{} of {count} cases", count - failures.len());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

async fn channel(url: &str) -> Result<Channel, String> {
    let builder = Channel::builder(url).timeout(PATIENCE);
    builder.connect().await.map_err(|status| format!("{url}: {status}"))
}

/// Calls the methods in a group of routes.
async fn groups(url: &str) -> Result<(), String> {
    let arith = ArithClient::new(channel(&format!("{url}&prefix=/v1")).await?);
    equal(&arith.mul(6, 7).await.map_err(text)?.c, &42)?;
    let arith = ArithClient::new(channel(&format!("{url}&names=rpc")).await?);
    let status = failed(arith.mul(6, 7).await)?;
    equal(&status.code(), &Code::Unimplemented)
}

/// A channel to a server, and what to ask it.
struct Case {
    arith: ArithClient,
    notes: NotesClient,
    echo: EchoClient,
    pushes: Pushes,
}

impl Case {
    async fn mul(&self) -> Result<(), String> {
        let product = self.arith.mul(10, -2_000_000_000).await.map_err(text)?;
        equal(&*product, &Product { c: -20_000_000_000 })
    }

    /// The number is the application's.
    async fn error(&self) -> Result<(), String> {
        let status = failed(self.arith.div(1, 0).await)?;
        equal(&(status.code(), status.message()), &(Code::Unknown, "divide by zero"))?;
        let field = |name| status.metadata().text(name);
        equal(&(field("erpc-code"), field("erpc-cause")), &(Some("1001"), Some("b & c = 0%")))?;
        self.mul().await
    }

    async fn own_error(&self) -> Result<(), String> {
        let status = failed(self.arith.fail().await)?;
        let fields = (status.code(), status.message(), status.metadata().text("erpc-cause"));
        equal(&fields, &(Code::InvalidArgument, "Bad Message", Some("it is wrong")))?;
        equal(&status.retry(), &Retry::No)
    }

    async fn unknown(&self) -> Result<(), String> {
        let status = failed(self.arith.lost().await)?;
        equal(&(status.code(), status.message()), &(Code::Unimplemented, "Not Found"))
    }

    async fn metadata(&self) -> Result<(), String> {
        let call = self.arith.describe().meta("x-real-ip", "10.0.0.1").meta("tenant", "ours & theirs");
        let reply = call.meta("raw-bin", &b"\0\xff"[..]).await.map_err(text)?;
        let received = |name: &str| reply.metadata.get(name).map(String::as_str);
        equal(&received("X-Real-IP"), &Some("10.0.0.1"))?;
        equal(&received("tenant"), &Some("ours & theirs"))?;
        // Bytes that are not UTF-8 are replaced in Go's JSON.
        equal(&received("raw-bin"), &Some("\0\u{fffd}"))?;
        equal(&reply.meta().text("answered-by"), &Some("go & co"))
    }

    async fn many(&self) -> Result<(), String> {
        let calls: Vec<_> = (0..500).map(|n| tokio::spawn(self.arith.mul(n, 3).into_future())).collect();
        for (n, call) in (0..).zip(calls) {
            let product = call.await.map_err(|error| error.to_string())?.map_err(text)?;
            equal(&product.c, &(3 * n))?;
        }
        Ok(())
    }

    /// Messages of a connection may be handled in any order.
    async fn push(&self) -> Result<(), String> {
        let before = self.notes.count().await.map_err(text)?.number;
        for _ in 0..3 {
            self.notes.add(2).await.map_err(text)?;
        }
        for _ in 0..1000 {
            if self.notes.count().await.map_err(text)?.number == before + 6 {
                return Ok(());
            }
        }
        Err("the three pushes did not arrive".to_owned())
    }

    /// The server pushes and calls before it responds: the push is received, and the call is refused.
    async fn back(&self) -> Result<(), String> {
        equal(&*self.arith.back().await.map_err(text)?, &Number { number: 404 })?;
        for number in ["0", "1", "2"] {
            let next = tokio::time::timeout(PATIENCE, self.pushes.next()).await;
            let push = next.map_err(|_| format!("{number} of 3 pushes came"))?;
            equal(&(&*push.path, &push.message[..]), &("news/flash", &br#"{"text":"news"}"#[..]))?;
            equal(&(push.metadata.text("number"), push.codec), &(Some(number), Codec::Json))?;
        }
        Ok(())
    }

    /// The server has no deadline; we do.
    async fn deadline(&self) -> Result<(), String> {
        let status = failed(self.arith.sleep_for(Some(300)).timeout(Duration::from_millis(30)).await)?;
        equal(&status.code(), &Code::DeadlineExceeded)
    }

    /// The late response is dropped.
    async fn canceled(&self) -> Result<(), String> {
        let sleep = self.arith.sleep_for(Some(50)).into_future();
        if tokio::time::timeout(Duration::from_millis(5), sleep).await.is_ok() {
            return Err("slept for too short a time".to_owned());
        }
        self.arith.sleep_for(Some(60)).await.map_err(text)?;
        self.mul().await
    }

    async fn texts(&self, url: &str) -> Result<(), String> {
        let large = "large \\\" ".repeat(100_000);
        for words in ["", "<&>\t\u{2028} K\u{f6}ln", "\"quoted\" and C:\\new\\\"odd\"", &large] {
            // Go's JSON framing writes such texts so that no other Go could read them.
            let reply = self.arith.mirror(words.to_owned()).await.map_err(text)?;
            if reply.text != words {
                let cut = |words: &str| words.chars().take(100).collect::<String>();
                return Err(format!("{:?} became {:?} on {url}", cut(words), cut(&reply.text)));
            }
        }
        equal(&*self.arith.mirror(String::new()).await.map_err(text)?, &Text { text: String::new() })
    }

    async fn shout(&self, url: &str) -> Result<(), String> {
        for length in [10, 5000] {
            // Go reads a body in JSON as far as the first byte that is a control character.
            let data = if url.contains("framing=json") { vec![] } else { vec![0, 1, b'"', 255] };
            let note =
                Note { text: "q".repeat(length), number: 1 << 40, data: data.into(), ..Default::default() };
            let reply = self.echo.shout(note.clone()).await.map_err(text)?.into_inner();
            equal(&reply, &Note { text: "Q".repeat(length), ..note })?;
        }
        Ok(())
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
