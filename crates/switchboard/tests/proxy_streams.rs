//! Streams both ways through a proxy without a schema, over every pair of wires that carry them: messages of any size
//! pass, and the metadata of a reply never waits for a message.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use bytes::Bytes;
use support::raw::soon;
use switchboard::{
    Call, Channel, ClientMethod, Codec, Kind, Limit, MethodInfo, Receiver, Reply, Result, Running, Sender,
    Server, Service, ServiceInfo, proxy::Forward, stream::stream_reply,
};

static STREAMS: ServiceInfo = ServiceInfo {
    name: "test.Streams",
    methods: &[MethodInfo::new("Mirror", Kind::Bidi), MethodInfo::new("Early", Kind::Bidi)],
    descriptor: &[],
};
static MIRROR: ClientMethod = ClientMethod { service: &STREAMS, index: 0, path: "test.Streams/Mirror" };
static EARLY: ClientMethod = ClientMethod { service: &STREAMS, index: 1, path: "test.Streams/Early" };

/// `Mirror` replies with each request. `Early` sends metadata at once; its first request is the size of a reply, which
/// it sends before it reads the others, whose bytes it counts in the trailers.
struct Streams;

impl Service for Streams {
    fn info(&self) -> &'static ServiceInfo {
        &STREAMS
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, is_early) = (call.codec(), call.method() == 1);
        let (raw, cx) = call.into_many();
        let mut input = Receiver::of_request(raw, codec, |_, message| Ok(message));
        let encode = |message: &Bytes, _| Ok(message.clone());
        Ok(stream_reply(cx, codec, encode, move |cx, out: Sender<Bytes>| async move {
            if !is_early {
                while let Some(message) = input.next().await? {
                    out.send(message).await?;
                }
                return Ok(());
            }
            cx.reply_metadata("x-early", "yes")?;
            let first = input.next().await?.unwrap_or_default();
            let size = String::from_utf8_lossy(&first).parse().unwrap();
            out.send(vec![7; size].into()).await?;
            let mut bytes = 0;
            while let Some(message) = input.next().await? {
                bytes += message.len();
            }
            cx.reply_trailer("x-bytes", bytes.to_string())
        }))
    }
}

/// The wires that carry streams both ways. Callers on baidu_std offer a stream to methods that are known alone.
const FRONTS: [&str; 4] = ["", "?wire=grpc", "?wire=grpc-web", "?wire=connect"];
const BEHIND: [&str; 5] = ["", "?wire=grpc", "?wire=grpc-web", "?wire=connect", "?wire=baidu_std"];

/// From a byte to what a message may have, and around the window of a stream.
const SIZES: [usize; 7] = [1, 1000, 65_536, 262_143, 262_145, 314_159, (4 << 20) - 64];

struct Proxied {
    _behind: Running,
    _front: Running,
    channel: Channel,
    pair: String,
}

async fn proxied(front: &str, behind: &str) -> Proxied {
    let server = || Server::new().limit(Limit::MessageBytesMax, 4 << 20).listen("tcp://127.0.0.1:0");
    let running = server().add(Streams).start().await.unwrap();
    let channel = Channel::connect(&format!("{}{behind}", running.url())).await.unwrap();
    let proxy = server().fallback(Forward::any(channel), [""; 0]).start().await.unwrap();
    let channel = Channel::connect(&format!("{}{front}", proxy.url())).await.unwrap();
    Proxied { _behind: running, _front: proxy, channel, pair: format!("{front:?} to {behind:?}") }
}

impl Proxied {
    async fn begin(&self, method: &'static ClientMethod) -> (Sender<Bytes>, Receiver<Bytes>) {
        let encode = |message: &Bytes, _| Ok(message.clone());
        let begun = self.channel.bidi(method, Codec::Proto, encode, |_, message| Ok(message));
        soon(async { begun.await }).await.unwrap()
    }
}

/// Runs `case` for every pair of wires.
async fn every_pair(case: impl AsyncFn(&Proxied)) {
    for front in FRONTS {
        for behind in BEHIND {
            let proxied = proxied(front, behind).await;
            eprintln!("{}", proxied.pair);
            case(&proxied).await;
        }
    }
}

#[tokio::test]
async fn messages_of_any_size_pass_both_ways() {
    every_pair(async |proxied| {
        for size in SIZES {
            let at = format!("{size} bytes, {}", proxied.pair);
            let (sender, mut replies) = proxied.begin(&MIRROR).await;
            for round in 0..2_u8 {
                let message = Bytes::from(vec![round; size]);
                soon(sender.send(message.clone())).await.unwrap();
                soon(replies.metadata()).await;
                let reply = soon(replies.next()).await.unwrap_or_else(|status| panic!("{at}: {status}"));
                assert!(reply == Some(message), "{at}");
            }
            sender.finish();
            assert_eq!(soon(replies.next()).await.unwrap(), None, "{at}");
        }
    })
    .await;
}

#[tokio::test]
async fn replies_may_come_while_requests_go_on() {
    every_pair(async |proxied| {
        for size in SIZES {
            let at = format!("{size} bytes, {}", proxied.pair);
            let (sender, mut replies) = proxied.begin(&EARLY).await;
            soon(sender.send(size.to_string().into())).await.unwrap();
            // More than the window of a stream.
            for _ in 0..27 {
                soon(sender.send(vec![1; 10_000].into())).await.unwrap();
            }
            soon(replies.metadata()).await;
            let reply = soon(replies.next()).await.unwrap_or_else(|status| panic!("{at}: {status}"));
            assert_eq!(reply.map(|reply| reply.len()), Some(size), "{at}");
            sender.finish();
            assert_eq!(soon(replies.next()).await.unwrap(), None, "{at}");
            assert_eq!(replies.trailers().text("x-bytes"), Some("270000"), "{at}");
        }
    })
    .await;
}

#[tokio::test]
async fn metadata_of_a_reply_does_not_wait_for_a_message() {
    every_pair(async |proxied| {
        // Before its first message a proxy knows of no call that it is a stream, but of one on the native wire; servers
        // on gRPC need not know.
        let goes_to = |wire: &str| proxied.pair.ends_with(&format!("to {wire:?}"));
        if !goes_to("?wire=grpc") && !goes_to("?wire=grpc-web") && proxied.pair != r#""" to """# {
            return;
        }
        let (sender, mut replies) = proxied.begin(&EARLY).await;
        let metadata = soon(replies.metadata()).await;
        assert_eq!(metadata.text("x-early"), Some("yes"), "{}", proxied.pair);
        soon(sender.send("5".into())).await.unwrap();
        sender.finish();
        assert_eq!(soon(replies.next()).await.unwrap().map(|reply| reply.len()), Some(5));
    })
    .await;
}
