//! Every kind of call on every transport.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::time::Duration;
use support::*;
use switchboard::{Channel, Code, Origin, Result};

/// Runs `$test` on TCP (both families), TLS, Unix, memory, WebSocket and the direct path.
macro_rules! on_every_transport {
    ($($name:ident)*) => {
        $(
            mod $name {
                use super::*;

                #[tokio::test]
                async fn tcp() {
                    let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
                    super::super::$name(&channel).await.expect("test");
                }

                #[tokio::test]
                async fn tcp6() {
                    let (_running, channel, _) = served("tcp://[::1]:0").await;
                    super::super::$name(&channel).await.expect("test");
                }

                #[tokio::test]
                async fn unix() {
                    let folder = std::env::temp_dir().join(format!("swb-{}-{}", std::process::id(), stringify!($name)));
                    let (_running, channel, _) = served(&format!("unix:{}", folder.display())).await;
                    super::super::$name(&channel).await.expect("test");
                }

                #[tokio::test]
                async fn memory() {
                    let (_running, channel, _) = served(&support::memory()).await;
                    super::super::$name(&channel).await.expect("test");
                }

                #[cfg(feature = "http")]
                #[tokio::test]
                async fn websocket() {
                    let (_running, channel, _) = served_over_websocket().await;
                    super::super::$name(&channel).await.expect("test");
                }

                #[cfg(feature = "http")]
                #[tokio::test]
                async fn websocket_compressed() {
                    let (_running, channel, _) = served_over_websocket_with("?deflate=true").await;
                    super::super::$name(&channel).await.expect("test");
                }

                #[cfg(feature = "tls")]
                #[tokio::test]
                async fn tls() {
                    let (_running, channel, _authority) = served_tls().await;
                    super::super::$name(&channel).await.expect("test");
                }

                #[cfg(all(feature = "http", feature = "tls"))]
                #[tokio::test]
                async fn websocket_tls() {
                    let (_running, channel, _authority) = served_over_websocket_tls("").await;
                    super::super::$name(&channel).await.expect("test");
                }

                #[cfg(feature = "tls")]
                #[test]
                fn tls_pinned_workers() {
                    switchboard::Runtime::new().workers(2).run(async {
                        let (_running, channel, _authority) = served_tls().await;
                        super::super::$name(&channel).await.expect("test");
                    });
                }

                #[tokio::test]
                async fn direct() {
                    super::super::$name(&Channel::local(Probe::default())).await.expect("test");
                }

                #[test]
                fn pinned_workers() {
                    switchboard::Runtime::new().workers(2).run(async {
                        let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
                        super::super::$name(&channel).await.expect("test");
                    });
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn work_stealing() {
                    let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
                    super::super::$name(&channel).await.expect("test");
                }
            }
        )*
    };
}

mod each {
    use super::*;
    on_every_transport!(
        unary unary_sizes timeout_for_ever metadata failure panics server_stream client_stream bidi many_callers
        spawned
    );
}

async fn unary(channel: &Channel) -> Result<()> {
    let reply: Vec<u8> = ask(channel, &ECHO, &b"hello".to_vec()).await?;
    assert_eq!(reply, b"hello");
    Ok(())
}

async fn unary_sizes(channel: &Channel) -> Result<()> {
    for size in [0, 1, 1023, 1024, 1025, 8192, 70_000, 1 << 20, 4 << 20] {
        let sent: Vec<u8> = (0..size).map(|n| n as u8).collect();
        assert!(mirror(channel, sent.clone()).await? == sent, "{size}");
    }
    Ok(())
}

async fn timeout_for_ever(channel: &Channel) -> Result<()> {
    let sent = vec![1u8];
    let reply = call::<_, Vec<u8>>(channel, &ECHO, &sent).timeout(Duration::MAX).await?;
    assert_eq!(*reply, sent);
    Ok(())
}

async fn metadata(channel: &Channel) -> Result<()> {
    let sent = vec![1u8];
    let reply = call::<_, Vec<u8>>(channel, &ECHO, &sent)
        .meta("x-head", "a")
        .meta("x-head-bin", vec![0, 255])
        .meta("x-tail", "b")
        .await?;
    assert_eq!(*reply, sent);
    assert_eq!(reply.meta().text("x-head"), Some("a"));
    assert_eq!(reply.meta().value("x-head-bin").unwrap(), &[0, 255][..]);
    assert_eq!(reply.trailers().text("x-tail"), Some("b"));
    let refused = call::<_, Vec<u8>>(channel, &ECHO, &sent).meta("no blanks", "a").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    Ok(())
}

async fn failure(channel: &Channel) -> Result<()> {
    let status = ask::<_, ()>(channel, &FAIL, &"no such post").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no such post"));
    assert_eq!(status.details()[0].type_name, "test.Detail");
    assert_eq!(status.metadata().text("x-why"), Some("because"));
    let status = ask::<_, ()>(channel, &NOWHERE, &"").await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    Ok(())
}

async fn panics(channel: &Channel) -> Result<()> {
    let status = ask::<_, ()>(channel, &PANIC, &"").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "handler panicked"));
    unary(channel).await
}

async fn server_stream(channel: &Channel) -> Result<()> {
    for (items, size) in [(0, 0), (1, 1), (1000, 10), (100, 5000), (20, 100_000), (3, 1 << 20)] {
        let mut stream = count(channel, items, size).await?;
        assert_eq!(stream.metadata().await.text("x-head"), Some("first"), "{items} x {size}");
        for n in 0..items {
            let item = stream.next().await?.expect("item");
            assert!(item.len() == size && item.iter().all(|byte| *byte == n as u8), "{n}");
        }
        assert_eq!(stream.next().await?, None);
        assert_eq!(stream.trailers().text("x-tail"), Some("last"));
    }
    let mut unlucky = count(channel, 13, 1).await?;
    for _ in 0..13 {
        unlucky.next().await?.expect("item");
    }
    assert_eq!(unlucky.next().await.unwrap_err().code(), Code::Aborted);
    Ok(())
}

async fn client_stream(channel: &Channel) -> Result<()> {
    let upload = sum(channel).await?;
    for n in 0..10_000 {
        upload.send(n).await?;
    }
    assert_eq!(*upload.finish().await?, 49_995_000);
    assert_eq!(*sum(channel).await?.finish().await?, 0);
    Ok(())
}

async fn bidi(channel: &Channel) -> Result<()> {
    let (sender, mut receiver) = chat(channel).await?;
    for text in ["a", "b", "c"] {
        sender.send(text.to_owned()).await?;
        assert_eq!(receiver.next().await?, Some(text.to_uppercase()));
    }
    sender.finish();
    assert_eq!(receiver.next().await?, None);
    Ok(())
}

async fn many_callers(channel: &Channel) -> Result<()> {
    let calls: Vec<_> = (0..2000u32)
        .map(|n| {
            let channel = channel.clone();
            tokio::spawn(async move {
                for round in 0..5 {
                    let sent = vec![(n + round) as u8; n as usize];
                    assert!(mirror(&channel, sent.clone()).await? == sent);
                }
                Ok::<_, switchboard::Status>(())
            })
        })
        .collect();
    for call in calls {
        call.await.expect("caller")?;
    }
    Ok(())
}

async fn spawned(channel: &Channel) -> Result<()> {
    let name: String = ask(channel, &WHERE, &"").await?;
    assert_eq!(name, "switchboard-cpu");
    Ok(())
}

#[tokio::test]
async fn oneway_is_done_when_sent_and_arrives() {
    let (_running, channel, seen) = served(&memory()).await;
    for n in 1..=10u64 {
        let request = switchboard::codec::serde::encode(&n, switchboard::Codec::Postcard);
        channel.oneway(&NOTE, switchboard::Codec::Postcard, request).await.unwrap();
    }
    seen.until(|seen| seen.notes.load(std::sync::atomic::Ordering::SeqCst) == 55).await;
}

#[tokio::test]
async fn deadline_ends_the_call_on_both_sides() {
    let (_running, channel, seen) = served(&memory()).await;
    let hang = call::<_, ()>(&channel, &HANG, &"").timeout(Duration::from_millis(30));
    assert_eq!(hang.await.unwrap_err().code(), Code::DeadlineExceeded);
    seen.until(|seen| seen.hanging() == 0).await;
    let late = call::<_, ()>(&channel, &HANG, &"").timeout(Duration::ZERO).await.unwrap_err();
    assert_eq!((late.code(), late.origin()), (Code::DeadlineExceeded, Origin::Local));
}

#[tokio::test]
async fn deadline_is_inherited_by_the_calls_of_a_handler() {
    let (_last, channel, seen) = served(&memory()).await;
    let relay = Probe { next: Some(channel), ..Probe::default() };
    let running = switchboard::Server::new().add(relay).listen(memory()).start().await.unwrap();
    let channel = Channel::connect(&running.url()).await.unwrap();
    let relayed = call::<_, Vec<u8>>(&channel, &RELAY, &vec![0u8]).timeout(Duration::from_millis(50));
    assert_eq!(relayed.await.unwrap_err().code(), Code::DeadlineExceeded);
    // The last handler in the chain has no timeout of its own: only the inherited deadline, or the cancel that
    // follows from it, can end it.
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn dropping_a_call_cancels_its_handler() {
    let (_running, channel, seen) = served(&memory()).await;
    let calling = {
        let channel = channel.clone();
        tokio::spawn(async move { ask::<_, ()>(&channel, &HANG, &"").await })
    };
    seen.until(|seen| seen.hanging() == 1).await;
    calling.abort();
    seen.until(|seen| seen.hanging() == 0).await;
    let mut stream = count(&channel, u32::MAX, 1000).await.unwrap();
    stream.next().await.unwrap();
    seen.until(|seen| seen.hanging() == 1).await;
    drop(stream);
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn slow_handler_is_named_in_a_metric() {
    let (running, channel, _) = served(&memory()).await;
    let wire: String = ask(&channel, &BLOCK, &"").await.unwrap();
    assert_eq!(wire, "native");
    let stats = running.stats();
    let block = stats.methods.iter().find(|method| method.name == "test.Probe/Block").unwrap();
    assert_eq!((block.slow_turns, block.ended[0]), (1, 1));
}

#[tokio::test]
async fn direct_calls_have_the_limit_of_messages_too() {
    let limits = [(switchboard::Limit::MessageBytesMax, 1000)];
    let channel = Channel::local_with(Probe::default(), &limits).unwrap();
    assert!(mirror(&channel, vec![1; 1000]).await.is_ok());
    let status = mirror(&channel, vec![1; 1001]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(
        status.message().contains("1001 bytes") && status.message().contains("message_bytes_max"),
        "{status}"
    );
    // Of streams each message counts, in both directions.
    let mut replies = count(&channel, 2, 2000).await.unwrap();
    assert_eq!(replies.next().await.unwrap_err().code(), Code::ResourceExhausted);
    let upload = tally(&channel).await.unwrap();
    upload.send(1000).await.unwrap();
    upload.send(1001).await.unwrap();
    assert_eq!(upload.finish().await.unwrap_err().code(), Code::ResourceExhausted);
    let refused = Channel::local_with(Probe::default(), &[(switchboard::Limit::CallsMax, 1)]).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert_eq!(
        mirror(&Channel::local(Probe::default()), vec![1; (4 << 20) + 1]).await.unwrap_err().code(),
        Code::ResourceExhausted
    );
}

#[cfg(feature = "http")]
#[tokio::test]
async fn a_method_with_an_index_of_none_is_refused_and_not_a_panic() {
    use switchboard::{ClientMethod, Codec, ServiceInfo};
    static NONE: ServiceInfo = ServiceInfo { name: "test.Probe", methods: &[], descriptor: &[] };
    static METHOD: ClientMethod = ClientMethod { service: &NONE, index: 99, path: "test.Probe/Nowhere" };
    let (running, native, _) = served("tcp://127.0.0.1:0").await;
    for options in ["", "?wire=grpc", "?wire=grpc-web-text", "?wire=connect&get=true", "?wire=jsonrpc"] {
        let channel = Channel::connect(&format!("{}{options}", running.url())).await.unwrap();
        for channel in [&channel, &native, &Channel::local(Probe::default())] {
            let request = || Ok(bytes::Bytes::from_static(b"{}"));
            let called = channel.unary(&METHOD, Codec::Json, request(), |_, bytes| Ok(bytes)).await;
            let codes = [Code::Internal, Code::Unimplemented];
            let status = called.unwrap_err();
            assert!(codes.contains(&status.code()), "{options}: {status}");
            let called = channel.server_stream(&METHOD, Codec::Json, request(), |_, bytes| Ok(bytes)).await;
            let ended = match called {
                Ok(mut replies) => replies.next().await.unwrap_err(),
                Err(status) => status,
            };
            assert!(codes.contains(&ended.code()), "{options}: {ended}");
        }
    }
}
