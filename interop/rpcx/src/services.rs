//! The service for clients of rpcx: the methods of the peer's own server, written for Switchboard.
#![allow(non_snake_case, reason = "the names of arguments are those of Go fields without tags")]

use crate::{
    proto::{EchoServer, Note, NoteView},
    quotients::{DivideByZero, Factors, Quotient, Quotients, QuotientsServer},
    side::{Speaker, Store},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};
use switchboard::{
    Cx, Metadata, Push, Result, Server, Status,
    rpcx::{FileTransfer, StreamService},
};

/// The names of Go fields that have no tags.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Product {
    pub(crate) c: i64,
}

/// No results.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Empty {}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Said {
    pub(crate) metadata: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Blob {
    #[serde(default)]
    pub(crate) data: Vec<u8>,
    pub(crate) text: String,
}

/// Arguments are called what the fields of the struct in Go are called.
#[switchboard::service(name = "Arith")]
pub(crate) trait Arith {
    async fn mul(&self, A: i64, B: i64) -> Result<Product>;
    async fn div(&self, A: i64, B: i64) -> Result<Product>;
    #[switchboard(oneway)]
    async fn note(&self) -> Result<()>;
    async fn noted(&self) -> Result<i64>;
    async fn describe(&self, cx: &Cx) -> Result<Said>;
    async fn sleep(&self, ms: u32) -> Result<Empty>;
    async fn subscribe(&self, cx: &Cx, count: i64) -> Result<Empty>;
    async fn reverse(&self, data: Vec<u8>) -> Result<Vec<u8>>;
    /// The peer has no such method.
    async fn lost(&self) -> Result<()>;
    async fn mirror(&self, data: Option<Vec<u8>>, text: String) -> Result<Blob>;
}

/// Another name that the peer has for `Arith/Mul`.
#[switchboard::service(name = "legacy.Maths")]
pub(crate) trait Maths {
    async fn times(&self, A: i64, B: i64) -> Result<Product>;
}

/// A function of the peer that belongs to no type.
#[switchboard::service(name = "Functions")]
pub(crate) trait Functions {
    async fn twice(&self, A: i64, B: i64) -> Result<Product>;
}

#[derive(Default)]
struct Sums {
    notes: AtomicI64,
}
impl Arith for Sums {
    async fn mul(&self, A: i64, B: i64) -> Result<Product> {
        Ok(Product { c: A.wrapping_mul(B) })
    }

    async fn div(&self, A: i64, B: i64) -> Result<Product> {
        let quotient = A.checked_div(B).ok_or_else(|| Status::invalid_argument("divide by zero"))?;
        Ok(Product { c: quotient })
    }

    async fn note(&self) -> Result<()> {
        self.notes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn noted(&self) -> Result<i64> {
        Ok(self.notes.load(Ordering::Relaxed))
    }

    async fn describe(&self, cx: &Cx) -> Result<Said> {
        cx.reply_metadata("answered-by", "switchboard")?;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let metadata = cx.metadata().iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
        Ok(Said { metadata })
    }

    async fn sleep(&self, ms: u32) -> Result<Empty> {
        tokio::time::sleep(Duration::from_millis(u64::from(ms))).await;
        Ok(Empty {})
    }

    async fn subscribe(&self, cx: &Cx, count: i64) -> Result<Empty> {
        let pusher = cx.pusher()?;
        let message = |n: i64| {
            let mut metadata = Metadata::new();
            metadata.insert("number", n.to_string())?;
            Ok::<_, Status>(Push::new("News/Flash", format!("breaking {n}")).with_metadata(metadata))
        };
        pusher.push(message(0)?)?;
        tokio::spawn(async move {
            for n in 1..count {
                pusher.push(message(n)?)?;
            }
            Ok::<_, Status>(())
        });
        Ok(Empty {})
    }

    async fn reverse(&self, mut data: Vec<u8>) -> Result<Vec<u8>> {
        data.reverse();
        Ok(data)
    }

    async fn lost(&self) -> Result<()> {
        Ok(())
    }

    async fn mirror(&self, data: Option<Vec<u8>>, text: String) -> Result<Blob> {
        Ok(Blob { data: data.unwrap_or_default(), text })
    }
}

struct Loud;

impl crate::proto::Echo for Loud {
    async fn shout(&self, request: NoteView<'_>, _: &Cx) -> Result<Note> {
        Ok(Note {
            text: request.text.to_uppercase(),
            number: request.number,
            data: request.data.to_vec().into(),
            ..Default::default()
        })
    }
}

impl Quotients for Loud {
    async fn divide(&self, factors: Factors, _: &Cx) -> Result<Quotient> {
        let zero = || DivideByZero { why: "divide by zero".to_owned() };
        let c = factors.a.checked_div(factors.b).ok_or_else(zero)?;
        Ok(Quotient { c })
    }

    async fn add(&self, a: i64, b: i64, _: &Cx) -> Result<i64> {
        Ok(a.wrapping_add(b))
    }
}

/// Serves until the process is ended, and says where on its first line.
///
/// # Errors
/// When an address cannot be listened on.
pub(crate) async fn serve(urls: &[String]) -> Result<()> {
    let mut server = Server::new()
        .add(ArithServer::new(Sums::default()))
        .add(EchoServer::new(Loud))
        .add(QuotientsServer::new(Loud))
        .add(FileTransfer::listen("127.0.0.1:0", Store::default()).await?)
        .add(StreamService::listen("127.0.0.1:0", Speaker).await?)
        .alias("legacy.Maths/Times", "Arith/Mul");
    for url in urls {
        server = server.listen(url.as_str());
    }
    let running = server.start().await?;
    println!("listening on {}", running.addresses()[0]);
    std::future::pending().await
}
