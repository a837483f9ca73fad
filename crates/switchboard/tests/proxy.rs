//! Servers that forward calls to others, without a schema.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{sync::atomic::Ordering, time::Duration};
use support::{raw::soon, *};
use switchboard::{
    Call, Channel, Code, Codec, Result, Running, Server, Status,
    codec::serde,
    guard::Rate,
    proxy::{Forward, Translate, Translation},
};

/// A probe, a proxy in front of it without a schema, and a channel to that with these options.
struct Proxied {
    _behind: Running,
    front: Running,
    channel: Channel,
    seen: std::sync::Arc<Seen>,
}

impl Proxied {
    async fn new(options: &str, behind: &str, change: impl FnOnce(Server) -> Server) -> Proxied {
        let (running, _, seen) = served("tcp://127.0.0.1:0").await;
        let channel = Channel::connect(&format!("{}{behind}", running.url())).await.unwrap();
        let server = Server::new().fallback(Forward::any(channel), [""; 0]);
        let front = change(server).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&format!("{}{options}", front.url())).await.unwrap();
        Proxied { _behind: running, front, channel, seen }
    }
}

/// Makes every kind of call, with metadata, deadlines and statuses.
async fn every_kind(channel: &Channel) {
    let reply = call::<_, Vec<u8>>(channel, &ECHO, &vec![1u8, 2]).meta("x-head", "a").meta("x-tail", "b");
    let reply = soon(reply).await.unwrap();
    assert_eq!((reply.meta().text("x-head"), reply.trailers().text("x-tail")), (Some("a"), Some("b")));
    assert_eq!(reply.into_inner(), [1, 2]);
    let failed = soon(ask::<_, ()>(channel, &FAIL, &"nothing here")).await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::NotFound, "nothing here"));
    assert_eq!(failed.details()[0].type_name, "test.Detail");
    assert_eq!(failed.metadata().text("x-why"), Some("because"));
    let mut replies = soon(async { count(channel, 3, 2).await }).await.unwrap();
    for n in 0..3 {
        assert_eq!(soon(replies.next()).await.unwrap(), Some(vec![n, n]));
    }
    assert_eq!(soon(replies.next()).await.unwrap(), None);
    assert_eq!(replies.trailers().text("x-tail"), Some("last"));
    let mut replies = soon(async { count(channel, 13, 1).await }).await.unwrap();
    let ended = loop {
        if let Err(status) = soon(replies.next()).await {
            break status;
        }
    };
    assert_eq!((ended.code(), ended.message()), (Code::Aborted, "13 is unlucky"));
    let upload = soon(async { sum(channel).await }).await.unwrap();
    for n in [1, 2, 39] {
        upload.send(n).await.unwrap();
    }
    assert_eq!(soon(upload.finish()).await.unwrap().into_inner(), 42);
    let (sender, mut replies) = soon(async { chat(channel).await }).await.unwrap();
    for text in ["a", "b"] {
        sender.send(text.to_owned()).await.unwrap();
        assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some(&*text.to_uppercase()));
    }
    sender.finish();
    assert_eq!(soon(replies.next()).await.unwrap(), None);
}

#[tokio::test]
async fn undeclared_methods_are_forwarded() {
    let proxied = Proxied::new("", "", |server| server).await;
    every_kind(&proxied.channel).await;
    let unknown = soon(ask::<_, ()>(&proxied.channel, &UNKNOWN, &())).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unimplemented);
    assert!(unknown.message().contains("test.Probe has Echo, "), "{}", unknown.message());
    let stats = proxied.front.stats();
    let [all] = &stats.methods[..] else { panic!("{:?}", stats.methods) };
    assert_eq!((&*all.name, all.ended[0], all.ended[Code::NotFound as usize]), ("*", 4, 1));
}

#[tokio::test]
async fn what_gives_up_in_front_is_given_up_behind() {
    let proxied = Proxied::new("", "", |server| server).await;
    let hanging = call::<_, ()>(&proxied.channel, &HANG, &());
    let hanging = tokio::spawn(hanging.into_future());
    soon(proxied.seen.until(|seen| seen.hanging() == 1)).await;
    hanging.abort();
    soon(proxied.seen.until(|seen| seen.hanging() == 0)).await;
    let late = call::<_, ()>(&proxied.channel, &HANG, &()).timeout(Duration::from_millis(50));
    assert_eq!(soon(late).await.unwrap_err().code(), Code::DeadlineExceeded);
    soon(proxied.seen.until(|seen| seen.hanging() == 0)).await;
}

#[test]
fn a_server_behind_that_is_gone_is_unavailable() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (behind, front) = (runtime(), runtime());
    let (running, _, seen) = behind.block_on(served("tcp://127.0.0.1:0"));
    front.block_on(async {
        let channel = Channel::connect(&running.url()).await.unwrap();
        let proxy = Server::new().fallback(Forward::any(channel), [""; 0]).listen("tcp://127.0.0.1:0");
        let proxy = proxy.start().await.unwrap();
        let channel = Channel::connect(&proxy.url()).await.unwrap();
        let hanging = tokio::spawn(call::<_, ()>(&channel, &HANG, &()).into_future());
        let (sender, mut replies) = soon(async { chat(&channel).await }).await.unwrap();
        sender.send("a".to_owned()).await.unwrap();
        assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some("A"));
        soon(seen.until(|seen| seen.hanging() == 2)).await;
        // As if it were killed: its sockets are closed, and it says nothing.
        behind.shutdown_background();
        assert_eq!(soon(hanging).await.unwrap().unwrap_err().code(), Code::Unavailable);
        assert_eq!(soon(replies.next()).await.unwrap_err().code(), Code::Unavailable);
        let late = soon(ask::<_, ()>(&channel, &ECHO, &vec![1u8])).await.unwrap_err();
        assert_eq!(late.code(), Code::Unavailable);
    });
}

/// Time passes when no task is ready: messages that are not read by then are never read.
#[tokio::test(start_paused = true)]
async fn a_reader_that_is_slow_holds_the_sender_up_through_the_proxy() {
    const MESSAGE: usize = 16 << 10;
    /// Windows, queues and outboxes of two connections, there and back.
    const HELD_MAX: usize = 8 << 20;
    let (_behind, channel, _) = served(&memory()).await;
    let proxy = Server::new().fallback(Forward::any(channel), [""; 0]).listen(memory());
    let proxy = proxy.start().await.unwrap();
    let channel = Channel::connect(&proxy.url()).await.unwrap();
    let (sender, mut replies) = chat(&channel).await.unwrap();
    let mut sent = 0;
    while let Ok(taken) = tokio::time::timeout(Duration::from_secs(1), sender.send("x".repeat(MESSAGE))).await
    {
        taken.unwrap();
        sent += 1;
        assert!(sent * MESSAGE < HELD_MAX, "{sent} messages, and none was read");
    }
    sender.finish();
    for _ in 0..sent {
        assert_eq!(replies.next().await.unwrap().map(|text| text.len()), Some(MESSAGE));
    }
}

#[tokio::test]
async fn calls_without_an_answer_stay_so() {
    let proxied = Proxied::new("", "", |server| server).await;
    let note = proxied.channel.oneway(&NOTE, Codec::Postcard, serde::encode(&7u64, Codec::Postcard));
    soon(async { note.await }).await.unwrap();
    soon(proxied.seen.until(|seen| seen.notes.load(Ordering::SeqCst) == 7)).await;
}

#[tokio::test]
async fn guards_hold_for_methods_that_no_service_declares() {
    let limited = |server: Server| {
        server.rate(Rate::per_second(0.001).burst(1)).deadline_max(Duration::from_millis(50))
    };
    let proxied = Proxied::new("", "", limited).await;
    let late = soon(ask::<_, ()>(&proxied.channel, &HANG, &())).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    let refused = soon(ask::<_, ()>(&proxied.channel, &FAIL, &"")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

#[tokio::test]
async fn services_that_were_not_named_are_unknown() {
    let (behind, _, _) = served("tcp://127.0.0.1:0").await;
    let channel = Channel::connect(&behind.url()).await.unwrap();
    let server = Server::new().fallback(Forward::any(channel), ["test.Probe"]).listen("tcp://127.0.0.1:0");
    let front = server.start().await.unwrap();
    let channel = Channel::connect(&front.url()).await.unwrap();
    let refused = soon(ask::<_, ()>(&channel, &NOWHERE, &())).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, "unknown service test.Nowhere"));
    let echoed: Vec<u8> = soon(ask(&channel, &ECHO, &vec![7u8])).await.unwrap();
    assert_eq!(echoed, [7]);
}

#[cfg(feature = "http")]
mod over_http {
    use super::*;
    use switchboard::ClientMethod;

    /// A unary call with JSON, which every wire has.
    async fn json(channel: &Channel, method: &'static ClientMethod, request: &str) -> Result<String> {
        let codec = channel.codec(Codec::Json);
        let request = bytes::Bytes::copy_from_slice(request.as_bytes());
        let reply = soon(channel.unary(method, codec, Ok(request), |_, reply| Ok(reply))).await?;
        Ok(String::from_utf8(reply.to_vec()).unwrap())
    }

    /// A caller calls more names than any table has places for; those of others are as good as before.
    #[tokio::test]
    async fn callers_cannot_use_up_names() {
        use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

        for behind in ["", "?wire=grpc", "?wire=rpcx"] {
            let proxied = Proxied::new("", behind, |server| server).await;
            let host = proxied.front.url().trim_start_matches("tcp://").to_owned();
            let invent = async {
                let stream = tokio::net::TcpStream::connect(&host).await.unwrap();
                let mut stream = BufReader::new(stream);
                for n in 0..1200 {
                    let head = "host: x\r\ncontent-type: application/json\r\ncontent-length: 4";
                    let request = format!("POST /evil.S{n}/M HTTP/1.1\r\n{head}\r\n\r\nnull");
                    stream.write_all(request.as_bytes()).await.unwrap();
                    let (mut line, mut len) = (String::new(), 0);
                    while line != "\r\n" {
                        line.clear();
                        assert!(stream.read_line(&mut line).await.unwrap() > 0);
                        let value = line.to_ascii_lowercase();
                        if let Some(value) = value.strip_prefix("content-length:") {
                            len = value.trim().parse().unwrap();
                        }
                    }
                    let mut body = vec![0; len];
                    stream.read_exact(&mut body).await.unwrap();
                    let body = String::from_utf8(body).unwrap();
                    // What the server behind says of this name, and of no other.
                    assert!(body.contains(&format!("evil.S{n}")), "{behind:?}, {n}: {body}");
                }
            };
            let honest = async {
                for n in 0..100 {
                    let echoed = json(&proxied.channel, &ECHO, &format!("[{n}]")).await.unwrap();
                    assert_eq!(echoed, format!("[{n}]"), "{behind:?}");
                }
            };
            tokio::time::timeout(Duration::from_secs(100), async { tokio::join!(invent, honest) })
                .await
                .unwrap();
            if behind.is_empty() {
                every_kind(&proxied.channel).await;
            }
            assert_eq!(json(&proxied.channel, &ECHO, "[7]").await.unwrap(), "[7]", "{behind:?}");
        }
    }

    #[tokio::test]
    async fn every_wire_goes_on_as_every_other() {
        for front in ["", "?wire=grpc", "?wire=grpc-web", "?wire=connect", "?wire=rpcx", "?wire=jsonrpc"] {
            for behind in
                ["", "?wire=grpc", "?wire=connect", "?wire=rpcx", "?wire=baidu_std", "?wire=jsonrpc"]
            {
                let front = if front.starts_with("?wire=r") { "?wire=rpcx&codec=json" } else { front };
                let proxied = Proxied::new(front, behind, |server| server).await;
                let [is_list, is_behind] = [front, behind].map(|wire| wire == "?wire=jsonrpc");
                // A message is a list of parameters there, and a list of one means that one to its server.
                if is_list && !is_behind {
                    continue;
                }
                if !is_behind {
                    let echoed = json(&proxied.channel, &ECHO, "[1,2]").await;
                    assert_eq!(echoed.unwrap(), "[1,2]", "{front:?} to {behind:?}");
                }
                let text = if is_behind { r#"["nothing here"]"# } else { r#""nothing here""# };
                let failed = json(&proxied.channel, &FAIL, text).await.unwrap_err();
                assert_eq!(failed.code(), Code::NotFound, "{front:?} to {behind:?}: {failed}");
            }
        }
    }

    #[tokio::test]
    async fn streams_go_through_wires_that_carry_them() {
        let proxied = Proxied::new("?wire=grpc", "?wire=grpc", |server| server).await;
        let (sender, mut replies) = soon(async { chat_json(&proxied.channel).await }).await.unwrap();
        for text in ["a", "b"] {
            sender.send(text.to_owned()).await.unwrap();
            assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some(&*text.to_uppercase()));
        }
        drop((sender, replies));
        soon(proxied.seen.until(|seen| seen.hanging() == 0)).await;
    }

    #[tokio::test]
    async fn a_stream_that_waits_for_answers_begins_on_the_native_wire_too() {
        let proxied = Proxied::new("?wire=grpc", "", |server| server).await;
        let (sender, mut replies) = soon(async { chat_json(&proxied.channel).await }).await.unwrap();
        for text in ["a", "b"] {
            sender.send(text.to_owned()).await.unwrap();
            assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some(&*text.to_uppercase()));
        }
    }

    fn chat_json(channel: &Channel) -> switchboard::BidiCall<String, String> {
        channel.bidi(&CHAT, Codec::Json, serde::encode, serde::decode)
    }
}

/// Rewrites what both codecs write the same way: texts.
struct Texts;

impl Translate for Texts {
    fn begin(&self, call: &Call, to: Codec) -> Result<Translation> {
        let from = call.codec();
        let rewrite = |from, to| move |message| serde::encode(&serde::decode::<String>(from, message)?, to);
        Ok(Translation::new(rewrite(from, to), rewrite(to, from)))
    }
}

#[tokio::test]
async fn messages_are_rewritten_where_a_schema_allows() {
    let (behind, _, _) = served("tcp://127.0.0.1:0").await;
    let to = Channel::connect(&behind.url()).await.unwrap();
    let proxy = Forward::service(&PROBE, to.clone()).codec(Codec::Json);
    for (proxy, works) in [(proxy, false), (Forward::any(to).codec(Codec::Json).translate(Texts), true)] {
        let server = Server::new().listen("tcp://127.0.0.1:0");
        let server = if works { server.fallback(proxy, [""; 0]) } else { server.add(proxy) };
        let front = server.start().await.unwrap();
        let channel = Channel::connect(&front.url()).await.unwrap();
        let (sender, mut replies) = soon(async { chat(&channel).await }).await.unwrap();
        sender.send("a".to_owned()).await.unwrap();
        sender.finish();
        match works {
            true => assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some("A")),
            false => {
                let refused: Status = soon(replies.next()).await.unwrap_err();
                assert_eq!(refused.code(), Code::Unimplemented);
                let wanted = "test.Probe/Chat was called in postcard, the upstream server expects json";
                assert!(refused.message().starts_with(wanted), "{}", refused.message());
            }
        }
    }
}
