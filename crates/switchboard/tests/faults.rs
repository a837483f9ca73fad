//! Peers that break the rules, are slow, or exceed limits: each gets a response or is closed, without effect
//! on others.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::time::Duration;
use support::{raw::*, *};
use switchboard::{Channel, Code, Codec, Limit, Retry, Running, Server};

/// A probe on TCP with these limits.
async fn start(limits: &[(Limit, u64)]) -> (Running, std::sync::Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = Server::new().add(probe).listen("tcp://127.0.0.1:0");
    let server = limits.iter().fold(server, |server, (limit, value)| server.limit(*limit, *value));
    (server.start().await.expect("start"), seen)
}

/// Waits until the server has closed every connection.
async fn until_closed(running: &Running) {
    soon(async {
        while running.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn garbage_is_closed_and_counted() {
    let (running, _) = start(&[]).await;
    for bytes in [&b"hello, is this a server?"[..], b"\x16\x03\x05\x02\x00", &[0; 64], b"\xF5SWX0000"] {
        let mut raw = Raw::silent(&running).await;
        raw.send(bytes).await;
        assert_eq!(raw.next().await, None);
    }
    assert_eq!(running.stats().unknown_protocol, 4);
    Raw::open(&running).await.echo(1).await;
}

#[tokio::test]
async fn preface_that_ends_early_is_closed() {
    let (running, _) = start(&[]).await;
    for end in 0..PREFACE.len() {
        let mut raw = Raw::silent(&running).await;
        raw.send(&PREFACE[..end]).await;
        tokio::io::AsyncWriteExt::shutdown(&mut raw.io).await.unwrap();
        while raw.next().await.is_some() {}
    }
    until_closed(&running).await;
    assert_eq!(running.stats().calls_in_flight, 0);
}

#[tokio::test]
async fn another_version_gets_the_supported_one() {
    let (running, _) = start(&[]).await;
    let mut raw = Raw::silent(&running).await;
    raw.send(b"\xF5SWB\x09\0\0\0").await;
    let away = raw.expect().await;
    let text = String::from_utf8(away.body).unwrap();
    assert!(away.kind == GO_AWAY && text.contains("version 9") && text.contains("this side 1"), "{text}");
    assert_eq!(raw.next().await, None);
    assert_eq!(running.stats().protocol_errors, 1);
}

#[tokio::test]
async fn byte_at_a_time_is_served() {
    let (running, _) = start(&[]).await;
    let mut raw = Raw::silent(&running).await;
    let text = message(&b"slow".to_vec());
    let bytes = [PREFACE.to_vec(), method(5, "test.Probe/Echo"), open_call(WHOLE, 5, 1, &text)].concat();
    for byte in bytes {
        raw.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    let reply = raw.expect().await;
    assert_eq!((reply.kind, reply.body), (REPLY, text));
}

#[tokio::test]
async fn silent_peer_is_dropped_after_the_sniff_timeout() {
    let (running, _) = start(&[(Limit::SniffTimeout, 50)]).await;
    let mut silent = Raw::silent(&running).await;
    let mut hesitant = Raw::silent(&running).await;
    hesitant.send(MAGIC.split_last().unwrap().1).await;
    assert_eq!(silent.next().await, None);
    assert_eq!(hesitant.next().await, None);
    assert_eq!(running.stats().unknown_protocol, 2);
}

#[tokio::test]
async fn oversized_message_is_refused_before_it_is_sent() {
    let (running, _) = start(&[(Limit::MessageBytesMax, 100_000)]).await;
    let mut raw = Raw::open(&running).await;
    for (id, len) in [(1, 200_000), (2, 100_000 + 20_000), (3, 1 << 30)] {
        raw.send(&header(len, CALL, WHOLE, 0, id)).await;
        let end = raw.expect().await;
        let (code, text) = end.status();
        assert_eq!((end.id, code), (id, Code::ResourceExhausted));
        assert!(text.contains("100000 bytes (message_bytes_max"), "{text}");
        // The connection goes on behind the message.
        if len < 1 << 20 {
            raw.send(&vec![0; len as usize]).await;
            raw.echo(id + 10).await;
        }
    }
    // Just over the limit is refused as well, once it is there.
    let mut raw = Raw::open(&running).await;
    raw.send(&open_call(WHOLE, 0, 4, &vec![0; 100_001])).await;
    assert_eq!(raw.expect().await.status().0, Code::ResourceExhausted);
    raw.echo(5).await;
    // So is a message in the middle of a stream.
    raw.send(&open_call(MORE, 6, 6, &[])).await;
    raw.send(&header(1 << 29, ITEM, 0, 0, 6)).await;
    let end = raw.expect().await;
    assert_eq!((end.id, end.status().0), (6, Code::ResourceExhausted));
    assert_eq!(running.stats().calls_in_flight, 0);
}

#[tokio::test]
async fn client_refuses_what_the_server_would() {
    let (running, _) = start(&[(Limit::MessageBytesMax, 1000)]).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    ask::<_, Vec<u8>>(&channel, &ECHO, &vec![0u8; 900]).await.unwrap();
    let status = ask::<_, Vec<u8>>(&channel, &ECHO, &vec![0u8; 2000]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("message_bytes_max"), "{status}");
    // And a reply over the limit of the channel.
    let (running, _) = start(&[]).await;
    let small = Channel::builder(&running.url()).limit(Limit::MessageBytesMax, 1000).connect().await.unwrap();
    let status = ask::<_, Vec<u8>>(&small, &ECHO, &vec![0u8; 2000]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let status = ask::<_, Vec<u8>>(&small, &ECHO, &vec![0u8; 200_000]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    ask::<_, Vec<u8>>(&small, &ECHO, &vec![0u8; 900]).await.unwrap();
}

#[tokio::test]
async fn unknown_names_numbers_and_codecs_are_named() {
    let (running, _) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&method(100, "test.Probe/Nope")).await;
    raw.send(&method(101, "test.Nope/Echo")).await;
    raw.send(&method(102, "")).await;
    raw.send(&method(103, "no\u{0}name\u{7f}")).await;
    for (number, expected) in [
        (100, "unknown method test.Probe/Nope: test.Probe has Echo, Fail"),
        (101, "unknown service test.Nope"),
        (102, "unknown service "),
        (103, "unknown service no"),
    ] {
        raw.send(&open_call(WHOLE, number, 1, &[])).await;
        let (code, text) = raw.expect().await.status();
        assert!(code == Code::Unimplemented && text.starts_with(expected), "{text}");
    }
    raw.send(&open_call(WHOLE, 900, 2, &[])).await;
    let (code, text) = raw.expect().await.status();
    assert!(code == Code::Internal && text.contains("method number 900"), "{text}");
    for (codec, expected) in
        [(1, "Blob cannot be read or written as proto"), (9, "codec number 9"), (0, "codec number 0")]
    {
        raw.send(&frame(CALL, WHOLE, 0, 3, &call_body(0, codec, &[], &[1, 2]))).await;
        let (code, text) = raw.expect().await.status();
        assert!(code == Code::Unimplemented && text.contains(expected), "{text}");
    }
    // Compressed in a call that names no encoding.
    raw.send(&open_call(WHOLE | 4, 0, 4, &[])).await;
    assert_eq!(raw.expect().await.status().0, Code::Internal);
    // Bytes that are no message of the type.
    raw.send(&open_call(WHOLE, 0, 5, &[0xFF; 3])).await;
    assert_eq!(raw.expect().await.status().0, Code::InvalidArgument);
    // A unary method called as a stream, and without a message.
    raw.send(&open_call(2, 0, 6, &message(&b"x".to_vec()))).await;
    assert_eq!(raw.expect().await.status().0, Code::Unimplemented);
    raw.send(&open_call(1, 0, 7, &[])).await;
    assert_eq!(raw.expect().await.status().0, Code::Unimplemented);
    raw.echo(8).await;
}

#[tokio::test]
async fn wrong_codec_of_a_channel_is_named() {
    let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
    let call = channel.unary(&ECHO, Codec::Proto, Ok(vec![1u8]), |_, bytes| Ok(bytes));
    let status = call.await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("proto"), "{status}");
}

#[tokio::test]
async fn broken_frames_close_their_connection_only() {
    let (running, _) = start(&[]).await;
    let mut good = Raw::open(&running).await;
    let bad = [
        // CALL shorter than its fixed part; than its metadata.
        frame(CALL, WHOLE, 0, 1, &[0; 7]),
        frame(CALL, WHOLE, 0, 1, &[0, 0, 0, 0, 3, 0, 200, 0, 1]),
        // SETTINGS and CREDIT of odd sizes, a window below the least.
        frame(0, 0, 0, 0, &[0; 5]),
        frame(0, 0, 0, 0, &[4, 0, 1, 0, 0, 0]),
        frame(CREDIT, 0, 0, 1, &[0; 3]),
        // A control frame without end, and too many methods.
        header(u32::MAX, METHOD, 0, 0, 0),
        method(1024, "test.Probe/Echo"),
    ];
    for bytes in &bad {
        let mut raw = Raw::open(&running).await;
        raw.send(&open_call(WHOLE, 2, 9, &message(&""))).await;
        raw.send(bytes).await;
        let away = raw.expect().await;
        assert_eq!(away.kind, GO_AWAY, "{away:?}");
        assert!(!away.body.is_empty());
        assert_eq!(raw.next().await, None);
    }
    assert_eq!(running.stats().protocol_errors, bad.len() as u64);
    assert_eq!(running.stats().calls_in_flight, 0);
    // Frames for calls that are not there, and kinds that later versions may have, are stepped over.
    for kind in [ITEM, END, CANCEL, 11, 200] {
        good.send(&frame(kind, 0, 0, 4242, &[])).await;
    }
    good.send(&frame(CREDIT, 0, 0, 4242, &[0xFF; 4])).await;
    good.send(&frame(200, 0, 0, 1, &[0; 9999])).await;
    good.echo(1).await;
}

#[tokio::test]
async fn deadline_and_cancel_of_a_raw_peer_end_the_handler() {
    let (running, seen) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(CALL, WHOLE, 2, 1, &call_body(20, POSTCARD, &[], &message(&"")))).await;
    let (code, text) = raw.expect().await.status();
    assert!(code == Code::DeadlineExceeded && text.contains("20 ms"), "{text}");
    assert_eq!(seen.hanging(), 0);
    raw.send(&open_call(WHOLE, 2, 2, &message(&""))).await;
    raw.handled().await;
    assert_eq!((seen.hanging(), running.stats().calls_in_flight), (1, 1));
    raw.send(&frame(CANCEL, 0, 0, 2, &[])).await;
    raw.handled().await;
    assert_eq!((seen.hanging(), running.stats().calls_in_flight), (0, 0));
    // The peer leaves without a word.
    raw.send(&open_call(WHOLE, 2, 3, &message(&""))).await;
    raw.handled().await;
    drop(raw);
    soon(seen.until(|seen| seen.hanging() == 0)).await;
    assert_eq!(running.stats().calls_in_flight, 0);
}

#[tokio::test]
async fn calls_over_the_limit_of_a_connection_are_refused() {
    let (running, _) = start(&[(Limit::CallsMax, 2)]).await;
    let mut raw = Raw::open(&running).await;
    for id in 1..=3 {
        raw.send(&open_call(WHOLE, 2, id, &message(&""))).await;
    }
    let end = raw.expect().await;
    let (code, text) = end.status();
    assert_eq!((end.id, code), (3, Code::ResourceExhausted));
    assert!(text.contains("calls_max") && end.retry_is_safe(), "{text}");
    raw.send(&frame(CANCEL, 0, 0, 1, &[])).await;
    raw.echo(4).await;
    // A channel knows the limit of its server.
    let channel = Channel::builder(&running.url()).connections(1).connect().await.unwrap();
    ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await.unwrap();
    let hanging: Vec<_> = (0..2).map(|_| tokio::spawn(call_hang(channel.clone()))).collect();
    soon(async {
        while running.stats().calls_in_flight < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let status = ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await.unwrap_err();
    assert_eq!((status.code(), status.retry()), (Code::ResourceExhausted, Retry::Safe));
    assert!(status.message().contains("calls_max"), "{status}");
    for call in hanging {
        call.abort();
    }
}

async fn call_hang(channel: Channel) -> switchboard::Result<()> {
    ask(&channel, &HANG, &"").await
}

#[tokio::test]
async fn calls_over_the_limit_of_the_server_are_refused_on_every_connection() {
    let (running, _) = start(&[(Limit::ServerCallsMax, 3)]).await;
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::open(&running).await;
        raw.send(&open_call(WHOLE, 2, 1, &message(&""))).await;
        raw.handled().await;
        peers.push(raw);
    }
    let mut late = Raw::open(&running).await;
    late.send(&open_call(WHOLE, 2, 1, &message(&""))).await;
    let end = late.expect().await;
    let (code, text) = end.status();
    assert_eq!(code, Code::ResourceExhausted);
    assert!(text.contains("server_calls_max") && end.retry_is_safe(), "{text}");
    peers.pop();
    soon(async {
        while running.stats().calls_in_flight == 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    late.echo(2).await;
}

#[tokio::test]
async fn metadata_over_its_limits_is_refused() {
    let (running, _) = start(&[(Limit::MetadataBytesMax, 1000), (Limit::MetadataEntriesMax, 3)]).await;
    let mut raw = Raw::open(&running).await;
    let entry = |name: &str, value: &[u8]| {
        [&[name.len() as u8], &(value.len() as u16).to_le_bytes()[..], name.as_bytes(), value].concat()
    };
    let text = message(&b"x".to_vec());
    let cases = [
        (entry("x-large", &[b'a'; 1000]), Code::ResourceExhausted, "metadata_bytes_max"),
        (entry("x", b"y").repeat(4), Code::ResourceExhausted, "metadata_entries_max"),
        (entry("no blanks", b"y"), Code::InvalidArgument, "no blanks"),
        (entry("x", b"\x01"), Code::InvalidArgument, "plain text"),
        (entry("", b"y"), Code::InvalidArgument, "not a metadata name"),
        (vec![200, 1, 1, 1], Code::InvalidArgument, "cut short"),
    ];
    for (block, expected, words) in cases {
        raw.send(&frame(CALL, WHOLE, 0, 1, &call_body(0, POSTCARD, &block, &text))).await;
        let (code, text) = raw.expect().await.status();
        assert!(code == expected && text.contains(words), "{code}: {text}");
    }
    raw.echo(2).await;
}

#[tokio::test]
async fn reply_metadata_over_the_limits_of_the_caller_fails_the_call_only() {
    let (running, _) = start(&[]).await;
    let channel =
        Channel::builder(&running.url()).limit(Limit::MetadataEntriesMax, 3).connect().await.unwrap();
    let hang = tokio::spawn(call_hang(channel.clone()));
    for name in ["x-head", "x-tail"] {
        let many =
            (0..5).fold(call::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]), |call, _| call.meta(name, "v"));
        let status = many.await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("metadata_entries_max"), "{status}");
    }
    ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await.unwrap();
    assert!(!hang.is_finished());
    hang.abort();
}

#[tokio::test]
async fn connections_over_the_limit_are_closed() {
    let (running, _) = start(&[(Limit::ConnectionsMax, 2)]).await;
    let mut first = Raw::open(&running).await;
    first.echo(1).await;
    let mut second = Raw::open(&running).await;
    second.echo(1).await;
    let mut third = Raw::silent(&running).await;
    assert_eq!(third.next().await, None);
    drop(first);
    soon(async {
        while running.stats().connections == 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    Raw::open(&running).await.echo(1).await;
    second.echo(2).await;
}

#[tokio::test]
async fn a_peer_that_does_not_read_does_not_delay_others() {
    let (running, seen) = start(&[]).await;
    let mut slow = Raw::open(&running).await;
    // Unlimited credit and replies that the peer does not read.
    slow.send(&open_call(WHOLE, 5, 1, &message(&(u32::MAX, 100_000usize)))).await;
    for _ in 0..1000 {
        slow.send(&frame(CREDIT, 0, 0, 1, &[0xFF; 4])).await;
    }
    soon(seen.until(|seen| seen.hanging() == 1)).await;
    let mut quick = Raw::open(&running).await;
    for id in 0..200 {
        quick.echo(id).await;
    }
    drop(slow);
    soon(seen.until(|seen| seen.hanging() == 0)).await;
}

#[tokio::test]
async fn slow_writer_is_waited_for_and_can_leave() {
    let (running, _) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&open_call(MORE, 6, 1, &[])).await;
    for n in 0..50u64 {
        raw.send(&frame(ITEM, 0, 0, 1, &message(&n))).await;
        raw.echo(100 + n as u32).await;
    }
    raw.send(&frame(END, 1, 0, 1, &[])).await;
    let reply = raw.expect().await;
    assert_eq!((reply.kind, reply.body), (REPLY, message(&1225u64)));
    raw.send(&open_call(MORE, 6, 2, &[])).await;
    raw.send(&frame(ITEM, 0, 0, 2, &message(&1u64))).await;
    raw.handled().await;
    assert_eq!(running.stats().calls_in_flight, 1);
    drop(raw);
    until_closed(&running).await;
    assert_eq!(running.stats().calls_in_flight, 0);
}

#[tokio::test]
async fn stream_over_its_window_is_ended() {
    let limits = [(Limit::MessageBytesMax, 65_536), (Limit::StreamWindowBytes, 65_536)];
    let (running, _) = start(&limits).await;
    let mut raw = Raw::open(&running).await;
    // The handler replies to each message, and waits without credit: it stops reading.
    raw.send(&open_call(MORE, 7, 1, &[])).await;
    let item = frame(ITEM, 0, 0, 1, &message(&"x".repeat(60_000)));
    let mut sent = 0;
    let end = loop {
        raw.send(&item).await;
        raw.send(&frame(PING, 0, 0, 1, &[])).await;
        sent += 1;
        let answer = loop {
            let answer = raw.expect().await;
            if answer.kind != ITEM && answer.kind != CREDIT {
                break answer;
            }
        };
        if answer.kind == END {
            break answer;
        }
        assert!(sent < 20, "nothing stops the stream");
    };
    let (code, text) = end.status();
    assert!(code == Code::ResourceExhausted && text.contains("stream_window_bytes"), "{text}");
    raw.send(&item).await;
    assert_eq!(running.stats().calls_in_flight, 0);
}

#[tokio::test]
async fn empty_messages_flow_and_are_bounded() {
    let (running, _) = start(&[(Limit::StreamWindowBytes, 65_536)]).await;
    let channel = Channel::builder(&running.url()).connect().await.unwrap();
    let upload = tally(&channel).await.unwrap();
    for _ in 0..200_000 {
        soon(upload.send(0)).await.unwrap();
    }
    assert_eq!(*soon(upload.finish()).await.unwrap(), (200_000, 0));
    // A handler that does not read: the queue of empty messages has an end as well.
    let (running, _) = start(&[(Limit::StreamWindowBytes, 65_536), (Limit::MessageBytesMax, 1000)]).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&open_call(MORE, 7, 1, &[])).await;
    raw.send(&frame(ITEM, 0, 0, 1, &message(&"x".repeat(900))).repeat(100)).await;
    let empties = header(0, ITEM, 0, 0, 1).repeat(70_000);
    raw.send(&empties).await;
    let end = loop {
        let answer = raw.expect().await;
        if answer.kind != ITEM && answer.kind != CREDIT {
            break answer;
        }
    };
    assert_eq!(end.status().0, Code::ResourceExhausted, "{end:?}");
}

#[tokio::test]
async fn upload_larger_than_every_window_goes_through() {
    let (running, _) = start(&[(Limit::StreamWindowBytes, 65_536)]).await;
    let channel = Channel::builder(&running.url()).connections(1).connect().await.unwrap();
    let uploads: Vec<_> = (0..8)
        .map(|_| {
            let channel = channel.clone();
            tokio::spawn(async move {
                let upload = tally(&channel).await?;
                for _ in 0..50 {
                    upload.send(60_000).await?;
                }
                upload.finish().await
            })
        })
        .collect();
    for upload in uploads {
        assert_eq!(*soon(upload).await.unwrap().unwrap(), (50, 3_000_000));
    }
}

#[tokio::test]
async fn number_in_use_ends_both_calls_once() {
    let (running, seen) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&open_call(WHOLE, 2, 1, &message(&""))).await;
    raw.handled().await;
    raw.send(&open_call(WHOLE, 0, 1, &message(&b"x".to_vec()))).await;
    let (code, text) = raw.expect().await.status();
    assert!(code == Code::Internal && text.contains("call number 1 is in use"), "{text}");
    assert_eq!((seen.hanging(), running.stats().calls_in_flight), (0, 0));
    raw.handled().await;
    raw.echo(1).await;
}

#[tokio::test]
async fn idle_peer_is_pinged_and_then_closed() {
    let limits = [(Limit::IdleTimeout, 100), (Limit::KeepaliveTimeout, 100)];
    let (running, seen) = start(&limits).await;
    let mut raw = Raw::open(&running).await;
    raw.echo(1).await;
    // Time passes as soon as nothing else happens: however busy the machine is, answers are in time.
    tokio::time::pause();
    for _ in 0..3 {
        let ping = raw.expect().await;
        assert_eq!((ping.kind, ping.flags), (PING, 0));
        raw.send(&frame(PING, 1, 0, 0, &[])).await;
    }
    // A call in flight changes nothing: a silent peer is closed.
    raw.send(&open_call(WHOLE, 2, 2, &message(&""))).await;
    assert_eq!(raw.expect().await.kind, PING);
    assert_eq!(raw.next().await, None);
    assert_eq!(seen.hanging(), 0);
    // The real client answers by itself.
    let channel = Channel::builder(&running.url()).connections(1).connect().await.unwrap();
    let hang = call::<_, ()>(&channel, &HANG, &"").timeout(Duration::from_millis(600)).await;
    assert_eq!(hang.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(running.stats().accepted, 2);
}

#[tokio::test]
async fn limits_of_a_listener_hold_on_it_alone() {
    let own = [(Limit::IdleTimeout, 100), (Limit::KeepaliveTimeout, 100), (Limit::MessageBytesMax, 1000)];
    let running =
        Server::new().add(Probe::default()).listen_with("tcp://127.0.0.1:0", own).listen("tcp://127.0.0.1:0");
    let running = running.start().await.unwrap();
    let mut strict = Raw::open(&running).await;
    strict.send(&open_call(WHOLE, 0, 1, &vec![0; 1001])).await;
    assert_eq!(strict.expect().await.status().0, Code::ResourceExhausted);
    assert_eq!(strict.expect().await.kind, PING);
    assert_eq!(strict.next().await, None);
    let other = Channel::connect(&running.addresses()[1].to_string()).await.unwrap();
    ask::<_, Vec<u8>>(&other, &ECHO, &vec![0u8; 5000]).await.unwrap();
}

#[tokio::test]
async fn panic_in_a_stream_ends_that_call() {
    let (running, channel, seen) = served("tcp://127.0.0.1:0").await;
    let status = count(&channel, 666, 1).await.unwrap().next().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "handler panicked"));
    let upload = sum(&channel).await.unwrap();
    upload.send(666_666).await.unwrap();
    let status = upload.finish().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "handler panicked"));
    ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await.unwrap();
    assert_eq!((running.stats().calls_in_flight, seen.hanging()), (0, 0));
    // The direct path the same.
    let local = Channel::local(Probe::default());
    let status = count(&local, 666, 1).await.unwrap().next().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "handler panicked"));
}

#[tokio::test]
async fn dropped_channel_closes_its_connections() {
    let (running, channel, _) = served("tcp://127.0.0.1:0").await;
    ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await.unwrap();
    assert_eq!(running.stats().connections, 1);
    let mut stream = count(&channel, 100, 10_000).await.unwrap();
    drop(channel);
    // Calls in flight run to their end.
    for _ in 0..100 {
        stream.next().await.unwrap().expect("item");
    }
    assert_eq!(stream.next().await.unwrap(), None);
    until_closed(&running).await;
}

#[tokio::test]
async fn dropped_server_aborts_its_connections() {
    let (running, channel, seen) = served("tcp://127.0.0.1:0").await;
    let hang = tokio::spawn(call_hang(channel.clone()));
    soon(seen.until(|seen| seen.hanging() == 1)).await;
    drop(running);
    let status = soon(hang).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(seen.hanging(), 0);
}
