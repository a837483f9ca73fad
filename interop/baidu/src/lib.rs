//! Our two ends of baidu_std and its relatives, for the Java programs of `java/` and `brpc-java/` and those
//! of `python/` that speak streams: [`Echo`] is the service that their clients call, [`cases`], [`brpc_java`]
//! and [`streams`] are the calls of their servers.

pub mod brpc_java;
pub mod cases;
pub mod streams;

use proto::{EchoReply, EchoRequest};
use std::time::Duration;
use switchboard::{Cx, Receiver, Result, Retry, Sender, Status};

/// Generated from `proto/`.
#[allow(missing_docs, reason = "generated")]
pub mod proto {
    switchboard::include_proto!("interop.baidu");
}

/// Greets, reverses attachments, and fails in the ways that the request names.
#[derive(Debug)]
pub struct Echo;

impl proto::Echo for Echo {
    async fn echo(&self, request: EchoRequest, cx: &Cx) -> Result<EchoReply> {
        match &*request.text {
            "fail" => return Err(Status::not_found("no such thing")),
            "busy" => return Err(Status::resource_exhausted("come back later").with_retry(Retry::Safe)),
            "own" => {
                let mut status = Status::unknown("a number of its own");
                status.metadata_mut().insert("baidu-error-code", "-42")?;
                return Err(status);
            }
            "hang" => tokio::time::sleep(Duration::from_secs(60)).await,
            _ => {}
        }
        if let Some(attachment) = cx.attachment() {
            let turned: Vec<u8> = attachment.iter().rev().copied().collect();
            cx.reply_attachment(turned)?;
        }
        let log_id = cx.metadata().text("baidu-log-id").and_then(|text| text.parse().ok());
        let known = cx.metadata().text("authorization") == Some("Bearer s3cret");
        let who = cx.metadata().text("x-who").map_or(String::new(), |who| format!(", {who}"));
        Ok(EchoReply {
            text: format!("hello {}", request.text),
            log_id: log_id.unwrap_or_default(),
            caller: format!("{}{who}", if known { "ali" } else { "absent" }),
            ..EchoReply::default()
        })
    }

    async fn count(&self, request: EchoRequest, _: &Cx, out: Sender<EchoReply>) -> Result<()> {
        let numbers: Vec<usize> = request.text.split(' ').filter_map(|part| part.parse().ok()).collect();
        let [count, length] = numbers[..] else {
            return Err(Status::invalid_argument(format!("{:?} is not COUNT LENGTH", request.text)));
        };
        for at in 0..count {
            out.send(reply((at % 10).to_string().repeat(length))).await?;
        }
        if count == 13 { Err(Status::aborted("13 is unlucky")) } else { Ok(()) }
    }

    async fn chat(&self, mut input: Receiver<EchoRequest>, _: &Cx, out: Sender<EchoReply>) -> Result<()> {
        while let Some(request) = input.next().await? {
            out.send(reply(request.text.to_uppercase())).await?;
        }
        Ok(())
    }
}

fn reply(text: String) -> EchoReply {
    EchoReply { text, ..EchoReply::default() }
}
