//! Compressed messages on the native wire: every kind of call, the settings of both sides, and hostile peers.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use support::{
    raw::{self, Raw},
    *,
};
use switchboard::{Channel, ChannelBuilder, Code, Compression, Running, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
};

const ALL: [Compression; 5] =
    [Compression::Deflate, Compression::Gzip, Compression::Lz4, Compression::Snappy, Compression::Zstd];
/// Size of every message here; the content is mostly zeros and compresses to almost nothing.
const SIZE: usize = 100_000;

/// Bytes that went through a proxy.
#[derive(Clone, Default)]
struct Counted {
    up: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
}

impl Counted {
    /// Takes the bytes up and down since the last call of this method.
    fn take(&self) -> (u64, u64) {
        (self.up.swap(0, Ordering::SeqCst), self.down.swap(0, Ordering::SeqCst))
    }

    /// Returns whether up to five messages of [`SIZE`] went up and down in less than a quarter of it: Snappy makes them
    /// a twentieth each.
    fn small(&self) -> (bool, bool) {
        let (up, down) = self.take();
        (up < SIZE as u64 / 4, down < SIZE as u64 / 4)
    }
}

/// A server of the probe, and a channel to it through a proxy that counts.
async fn counted(server: Server, client: impl Fn(ChannelBuilder) -> ChannelBuilder) -> Setup {
    let running = server.add(Probe::default()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let counted = Counted::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}?connections=1", listener.local_addr().unwrap());
    let (to, counts) = (running.url().replace("tcp://", ""), counted.clone());
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&to).await.unwrap();
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(pass(near_in, far_out, counts.up.clone()));
            tokio::spawn(pass(far_in, near_out, counts.down.clone()));
        }
    });
    let channel = client(Channel::builder(&url)).connect().await.unwrap();
    Setup { channel, counted, _running: running }
}

struct Setup {
    channel: Channel,
    counted: Counted,
    _running: Running,
}

async fn pass(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, count: Arc<AtomicU64>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        count.fetch_add(read as u64, Ordering::SeqCst);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// One call with a large message up and a large one down.
async fn echo(channel: &Channel) {
    let sent = vec![7u8; SIZE];
    assert!(ask::<_, Vec<u8>>(channel, &ECHO, &sent).await.unwrap() == sent);
}

#[tokio::test]
async fn every_kind_of_call_is_compressed_both_ways() {
    for compression in ALL {
        let Setup { channel, counted, _running } =
            counted(Server::new(), |builder| builder.compression(compression)).await;
        counted.take();
        echo(&channel).await;
        assert_eq!(counted.small(), (true, true), "{compression}: unary");

        let sent = vec![7u8; SIZE];
        let reply = call::<_, Vec<u8>>(&channel, &ECHO, &sent).meta("x-head", "a").meta("x-tail", "b");
        let reply = reply.await.unwrap();
        assert!(*reply == sent);
        assert_eq!((reply.meta().text("x-head"), reply.trailers().text("x-tail")), (Some("a"), Some("b")));
        assert_eq!(counted.small(), (true, true), "{compression}: unary with metadata");

        let mut stream = count(&channel, 5, SIZE).await.unwrap();
        for n in 0..5 {
            assert!(stream.next().await.unwrap().expect("an item") == vec![n; SIZE]);
        }
        assert_eq!(stream.next().await.unwrap(), None);
        assert_eq!(stream.trailers().text("x-tail"), Some("last"));
        assert_eq!(counted.small(), (true, true), "{compression}: server stream");

        let upload = tally(&channel).await.unwrap();
        for _ in 0..5 {
            upload.send(SIZE).await.unwrap();
        }
        assert_eq!(*upload.finish().await.unwrap(), (5, 5 * SIZE as u64));
        assert_eq!(counted.small(), (true, true), "{compression}: client stream");

        let (sender, mut receiver) = chat(&channel).await.unwrap();
        for letter in ["a", "b", "c"] {
            sender.send(letter.repeat(SIZE)).await.unwrap();
            assert!(receiver.next().await.unwrap().expect("an item") == letter.to_uppercase().repeat(SIZE));
        }
        // Small ones in the same stream are sent as they are.
        sender.send("d".into()).await.unwrap();
        assert_eq!(receiver.next().await.unwrap().as_deref(), Some("D"));
        sender.finish();
        assert_eq!(receiver.next().await.unwrap(), None);
        assert_eq!(counted.small(), (true, true), "{compression}: both streams");

        let note = switchboard::codec::serde::encode(&5u64, switchboard::Codec::Postcard);
        channel.oneway(&NOTE, switchboard::Codec::Postcard, note).await.unwrap();
        let name: String = ask(&channel, &WHERE, &"x".repeat(SIZE)).await.unwrap();
        assert_eq!(name, "switchboard-cpu");
    }
}

#[tokio::test]
async fn channel_method_call_and_server_decide() {
    // Without a setting.
    let plain = counted(Server::new(), |builder| builder).await;
    echo(&plain.channel).await;
    assert_eq!(plain.counted.small(), (false, false));
    // One call, once the server has said what it takes.
    let sent = vec![7u8; SIZE];
    let call = || call::<_, Vec<u8>>(&plain.channel, &ECHO, &sent);
    call().compression(Compression::Gzip).await.unwrap();
    assert_eq!(plain.counted.small(), (true, true));
    call().compression(Compression::Replies).await.unwrap();
    assert_eq!(plain.counted.small(), (false, true));
    let mut stream = count(&plain.channel, 1, SIZE).compression(Compression::Replies).await.unwrap();
    assert!(stream.next().await.unwrap().is_some());
    assert!(plain.counted.small().1);

    // One method of a channel, and one call that does not want it.
    let method =
        counted(Server::new(), |builder| builder.method_compression("test.Probe/Echo", Compression::Zstd));
    let method = method.await;
    method.counted.take();
    echo(&method.channel).await;
    assert_eq!(method.counted.small(), (true, true));
    support::call::<_, Vec<u8>>(&method.channel, &ECHO, &sent).compression(Compression::None).await.unwrap();
    assert_eq!(method.counted.small(), (false, false));
    mirror(&method.channel, sent.clone()).await.unwrap();
    assert_eq!(method.counted.small(), (false, false), "another method");

    // The server does not want to, as a whole or for a method.
    let off =
        counted(Server::new().compression(false), |builder| builder.compression(Compression::Zstd)).await;
    echo(&off.channel).await;
    assert_eq!(off.counted.small(), (false, false));
    let server = Server::new().method_compression("test.Probe/Echo", false);
    let requests = counted(server, |builder| builder.compression(Compression::Zstd)).await;
    requests.counted.take();
    echo(&requests.channel).await;
    assert_eq!(requests.counted.small(), (true, false));
    mirror(&requests.channel, sent.clone()).await.unwrap();
    assert_eq!(requests.counted.small(), (true, true));

    // Thresholds, each side its own.
    let large = 2 * SIZE as u32;
    let server = Server::new().compression_bytes_min(large);
    let above = counted(server, |builder| builder.compression(Compression::Zstd)).await;
    echo(&above.channel).await;
    assert!(!above.counted.small().1);
    let above =
        counted(Server::new(), |builder| builder.compression(Compression::Zstd).compression_bytes_min(large));
    let above = above.await;
    echo(&above.channel).await;
    assert_eq!(above.counted.small(), (false, true));

    let unknown = Server::new().method_compression("test.Probe/Nope", false);
    let error = unknown.add(Probe::default()).listen(memory()).start().await.err().expect("no such method");
    assert!(error.to_string().contains("method_compression: unknown method test.Probe/Nope"), "{error}");
}

#[tokio::test]
async fn options_in_the_url_are_the_same() {
    let (running, _, _) = served("tcp://127.0.0.1:0").await;
    for options in ["compression=zstd&compression_bytes_min=1", "compression=replies", "compression=none"] {
        let channel = Channel::connect(&format!("{}?{options}", running.url())).await.unwrap();
        echo(&channel).await;
    }
    let refused = Channel::connect(&format!("{}?compression=br", running.url())).await.unwrap_err();
    assert!(
        refused.message().contains("use one of none, replies, deflate, gzip, lz4, snappy or zstd"),
        "{refused}"
    );
    // The native wire inside a WebSocket, and the direct path, where nothing is compressed.
    let (_running, _, _) = served_over_websocket().await;
    let url = format!("{}/path?compression=zstd", running.url().replace("tcp://", "ws://"));
    echo(&Channel::connect(&url).await.unwrap()).await;
    let local = Channel::local(Probe::default());
    let call = call::<_, Vec<u8>>(&local, &ECHO, &vec![7u8; SIZE]).compression(Compression::Zstd);
    assert_eq!(call.await.unwrap().len(), SIZE);
}

/// Returns bytes that no algorithm compresses.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[tokio::test]
async fn methods_whose_messages_stay_large_are_left_alone_for_a_while() {
    // No other test uses this method with this encoding: what pays is known to the whole process.
    let setup = counted(Server::new(), |builder| builder.compression(Compression::Lz4)).await;
    let noise = noise(2000);
    for _ in 0..20 {
        assert!(mirror(&setup.channel, noise.clone()).await.unwrap() == noise);
    }
    setup.counted.take();
    mirror(&setup.channel, vec![7; SIZE]).await.unwrap();
    assert_eq!(setup.counted.small(), (false, false), "neither side tries");
    let mut small = (false, false);
    for _ in 0..200 {
        mirror(&setup.channel, vec![7; SIZE]).await.unwrap();
        let (up, down) = setup.counted.small();
        small = (small.0 || up, small.1 || down);
    }
    assert_eq!(small, (true, true), "both have tried again");
    mirror(&setup.channel, vec![7; SIZE]).await.unwrap();
    assert_eq!(setup.counted.small(), (true, true), "and it pays again");
    echo(&setup.channel).await;
}

#[tokio::test]
async fn large_and_incompressible_messages_arrive() {
    let setup = counted(Server::new(), |builder| builder.compression(Compression::Zstd)).await;
    let noise = noise(1 << 20);
    assert!(mirror(&setup.channel, noise.clone()).await.unwrap() == noise);
    let zeros = vec![0; 4 << 20];
    assert!(mirror(&setup.channel, zeros.clone()).await.unwrap() == zeros);
    for size in [0, 1, 511, 512, 513] {
        assert_eq!(mirror(&setup.channel, vec![9; size]).await.unwrap(), vec![9; size]);
    }
}

#[tokio::test]
async fn replies_that_grow_over_the_limit_end_their_call() {
    let small = |builder: ChannelBuilder| {
        builder.compression(Compression::Zstd).limit(switchboard::Limit::MessageBytesMax, SIZE as u64 / 2)
    };
    let setup = counted(Server::new(), small).await;
    let check = |status: switchboard::Status| {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        let text = "decompressed, over the limit of 50000 bytes (message_bytes_max";
        assert!(status.message().contains(text), "{status}");
    };
    check(ask::<_, Vec<u8>>(&setup.channel, &ECHO, &vec![7u8; SIZE]).await.unwrap_err());
    let mut stream = count(&setup.channel, 3, SIZE).await.unwrap();
    check(stream.next().await.unwrap_err());
    assert_eq!(stream.next().await.unwrap(), None, "it is over");
    assert_eq!(ask::<_, Vec<u8>>(&setup.channel, &ECHO, &vec![7u8; 9]).await.unwrap(), [7; 9]);
}

/// Compresses a message with another library than Switchboard's.
fn packed(encoding: u8, message: &[u8]) -> Vec<u8> {
    let name = match encoding {
        1 => "gzip",
        2 => "zstd",
        4 => return snap::raw::Encoder::new().compress_vec(message).unwrap(),
        5 => return lz4_flex::block::compress_prepend_size(message),
        other => panic!("encoding {other}"),
    };
    connectrpc::CompressionRegistry::default().compress(name, message).unwrap().to_vec()
}

/// A CALL on postcard with an encoding.
fn call_in(encoding: u8, flags: u8, method: u16, id: u32, message: &[u8]) -> Vec<u8> {
    let mut body = raw::call_body(0, raw::POSTCARD, &[], message);
    body[5] = encoding;
    raw::frame(raw::CALL, flags, method, id, &body)
}

#[tokio::test]
async fn what_a_hostile_caller_compresses_is_refused_and_the_connection_lives() {
    const COMPRESSED: u8 = 4;
    const WHOLE: u8 = raw::WHOLE | COMPRESSED;
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let server = server.method_limit("test.Probe/Mirror", switchboard::Limit::MessageBytesMax, 1000);
    let running = server.start().await.unwrap();
    let mut raw = Raw::open(&running).await;
    let bomb = vec![0; (4 << 20) + 1];
    for encoding in [1, 2, 4, 5] {
        let bomb = packed(encoding, &bomb);
        assert!(bomb.len() < 200_000);
        raw.send(&call_in(encoding, WHOLE, 0, 1, &bomb)).await;
        let (code, text) = raw.expect().await.status();
        assert_eq!(code, Code::ResourceExhausted, "{text}");
        assert!(text.contains("decompressed, over the limit of 4194304 bytes (message_bytes_max"), "{text}");

        // The method's own limit.
        raw.send(&call_in(encoding, WHOLE, MIRROR.index, 2, &packed(encoding, &[0; 1001]))).await;
        let (code, text) = raw.expect().await.status();
        assert_eq!(code, Code::ResourceExhausted, "{text}");
        assert!(text.contains("limit of 1000 bytes"), "{text}");

        // In a stream the error occurs when its reader reads the message.
        raw.send(&call_in(encoding, raw::MORE, TALLY.index, 3, &[])).await;
        raw.send(&raw::frame(raw::ITEM, COMPRESSED, 0, 3, &bomb)).await;
        assert_eq!(raw.expect().await.status().0, Code::ResourceExhausted);

        let half = packed(encoding, &noise(2000));
        for broken in [&b""[..], b"\x09\0\0\0plain", &half[..half.len() / 2]] {
            raw.send(&call_in(encoding, WHOLE, 0, 4, broken)).await;
            let (code, text) = raw.expect().await.status();
            assert_eq!(code, Code::InvalidArgument, "{text}");
        }
    }
    for (encoding, flags, expected) in
        [(6, raw::WHOLE, Code::Unimplemented), (255, WHOLE, Code::Unimplemented), (0, WHOLE, Code::Internal)]
    {
        raw.send(&call_in(encoding, flags, 0, 5, &packed(1, &[0; 600]))).await;
        let (code, text) = raw.expect().await.status();
        assert_eq!(code, expected, "{text}");
    }
    // Compressed messages of a stream that names no encoding.
    raw.send(&call_in(0, raw::MORE, TALLY.index, 6, &[])).await;
    raw.send(&raw::frame(raw::ITEM, COMPRESSED, 0, 6, &packed(1, &[0; 600]))).await;
    assert_eq!(raw.expect().await.status().0, Code::Internal);

    // And one that is right: the reply follows.
    let message = raw::message(&vec![7u8; 600]);
    raw.send(&call_in(1, WHOLE, 0, 7, &packed(1, &message))).await;
    let reply = raw.expect().await;
    assert_eq!((reply.kind, reply.flags & COMPRESSED, reply.id), (raw::REPLY, COMPRESSED, 7));
    let registry = connectrpc::CompressionRegistry::default();
    let read = registry.decompress_with_limit("gzip", reply.body.into(), 1000).unwrap();
    assert_eq!(read, message);
}

#[tokio::test]
async fn server_without_compression_refuses_and_says_so() {
    let server = Server::new().compression(false).add(Probe::default()).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let mut raw = Raw::open(&running).await;
    raw.send(&call_in(2, raw::WHOLE, 0, 1, &raw::message(&vec![7u8; 9]))).await;
    let (code, text) = raw.expect().await.status();
    assert_eq!(code, Code::Unimplemented);
    assert!(text.contains("encoding zstd is not accepted; accepted: none"), "{text}");
}
