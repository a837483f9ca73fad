//! The service for clients of eRPC: the methods of the peer's own server, written for Switchboard.
#![allow(non_snake_case, reason = "the names of arguments are those of Go fields without tags")]

use crate::proto::{EchoServer, Note, NoteView};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use switchboard::{Codec, Cx, Metadata, Push, Result, Server, Status};

/// The names of Go fields that have no tags.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Product {
    pub(crate) c: i64,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Said {
    pub(crate) metadata: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Text {
    pub(crate) text: String,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Number {
    pub(crate) number: i64,
}

/// Arguments are called what the fields of the struct in Go are called.
#[switchboard::service(name = "interop.Arith")]
pub(crate) trait Arith {
    async fn mul(&self, A: i64, B: i64) -> Result<Product>;
    async fn div(&self, A: i64, B: i64) -> Result<Product>;
    async fn fail(&self) -> Result<Product>;
    async fn describe(&self, cx: &Cx) -> Result<Said>;
    async fn sleep_for(&self, ms: Option<u32>) -> Result<()>;
    async fn mirror(&self, text: String) -> Result<Text>;
    /// The peer calls its caller, and sends it a push.
    async fn back(&self, cx: &Cx) -> Result<Number>;
    /// The peer has no such method.
    async fn lost(&self) -> Result<()>;
}

#[switchboard::service(name = "interop.Notes")]
pub(crate) trait Notes {
    #[switchboard(oneway)]
    async fn add(&self, number: i64) -> Result<()>;
    async fn count(&self) -> Result<Number>;
}

struct Integers;

impl Arith for Integers {
    async fn mul(&self, A: i64, B: i64) -> Result<Product> {
        Ok(Product { c: A.wrapping_mul(B) })
    }

    async fn div(&self, A: i64, B: i64) -> Result<Product> {
        let quotient = A.checked_div(B).ok_or_else(|| Status::invalid_argument("divide by zero"))?;
        Ok(Product { c: quotient })
    }

    async fn fail(&self) -> Result<Product> {
        let mut status = Status::not_found("no such post: 100 % & more");
        status.metadata_mut().insert("erpc-code", "1001")?;
        status.metadata_mut().insert("erpc-cause", "it was deleted")?;
        Err(status)
    }

    async fn describe(&self, cx: &Cx) -> Result<Said> {
        cx.reply_metadata("answered-by", "switchboard")?;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let metadata = cx.metadata().iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
        Ok(Said { metadata })
    }

    async fn sleep_for(&self, ms: Option<u32>) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(ms.unwrap_or_default().into())).await;
        Ok(())
    }

    async fn mirror(&self, text: String) -> Result<Text> {
        Ok(Text { text })
    }

    /// Handlers push to their callers, and do not call them.
    async fn back(&self, cx: &Cx) -> Result<Number> {
        let pusher = cx.pusher()?;
        for number in 0..3 {
            let mut metadata = Metadata::new();
            metadata.insert("number", number.to_string())?;
            let push = Push::new("news/flash", r#"{"text":"news & more"}"#).with_metadata(metadata);
            pusher.push(push.with_codec(Codec::Json))?;
        }
        pusher.push(Push::new("news/raw", "any bytes"))?;
        Ok(Number { number: 0 })
    }

    async fn lost(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Sum(Arc<AtomicI64>);

impl Notes for Sum {
    async fn add(&self, number: i64) -> Result<()> {
        self.0.fetch_add(number, Ordering::Relaxed);
        Ok(())
    }

    async fn count(&self) -> Result<Number> {
        Ok(Number { number: self.0.load(Ordering::Relaxed) })
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

/// Serves until the process is ended, and says where on its first line.
///
/// # Errors
/// When the address cannot be listened on.
pub(crate) async fn serve(url: &str) -> Result<()> {
    let server = Server::new()
        .add(ArithServer::new(Integers))
        .add(NotesServer::new(Sum::default()))
        .add(EchoServer::new(Loud))
        .alias("v1.legacy/times", "interop.Arith/Mul")
        .listen(url);
    let running = server.start().await?;
    println!("listening on {}", running.addresses()[0]);
    std::future::pending().await
}
