//! Large protobuf messages, which are sent in several parts: the same bytes arrive on every wire.
#![cfg(feature = "http")]

use buffa_types::google::protobuf::{__buffa::view::AnyView, Any};
use switchboard::{
    Call, Channel, ClientMethod, Code, Codec, Compression, Encoded, Kind, Limit, MethodInfo, Reply, Result,
    Server, Service, ServiceInfo, codec::proto,
};

/// Returns its request: from a view as `Same`, and built as a new message as `Built`.
struct Echo;

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Echo",
    methods: &[MethodInfo::new("Same", Kind::Unary), MethodInfo::new("Built", Kind::Unary)],
    descriptor: &[],
};
static METHODS: [ClientMethod; 2] = [
    ClientMethod { service: &INFO, index: 0, path: "test.Echo/Same" },
    ClientMethod { service: &INFO, index: 1, path: "test.Echo/Built" },
];

impl Service for Echo {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, built) = (call.codec(), call.method() == 1);
        let (bytes, cx) = call.into_one()?;
        if built {
            let message = proto::decode::<Any>(codec, bytes)?;
            return Ok(Reply::one(proto::encode_payload(&message, codec)?, cx));
        }
        let bytes = proto::view_bytes::<Any>(codec, bytes)?;
        let reply = Encoded::<Any>::of_view(&proto::view::<AnyView<'_>>(&bytes)?, &cx)?;
        // Trailers make the reply two frames.
        if bytes.len() % 2 == 1 {
            cx.reply_trailer("odd", "yes")?;
        }
        Ok(Reply::one(reply.into_reply(codec)?, cx))
    }
}

fn message(bytes: usize) -> Any {
    let value: Vec<u8> = (0..bytes).map(|n| (n * 7 % 251) as u8).collect();
    Any { type_url: "type.googleapis.com/test.Large".into(), value: value.into(), ..Any::default() }
}

async fn echoes(channel: &Channel, sizes: &[usize]) {
    for size in sizes {
        for method in &METHODS {
            let sent = message(*size);
            let request = proto::encode_payload(&sent, Codec::Proto).expect("a message");
            assert_eq!(request.len(), proto::encode(&sent, Codec::Proto).expect("a message").len());
            let reply = channel.unary(method, Codec::Proto, Ok(request), proto::decode::<Any>).await;
            let reply = reply.expect("an echo");
            assert!(*reply == sent, "{size} bytes by {} over {channel:?}", method.path);
        }
    }
}

const SIZES: [usize; 7] = [100, 16_000, 32_700, 40_001, 40_002, 100_000, 1_000_001];

#[tokio::test]
async fn same_bytes_arrive_on_every_way() {
    let server = Server::new().add(Echo).listen("tcp://127.0.0.1:0").listen("memory://large");
    let running = server.start().await.unwrap();
    let url = running.url();
    for way in [&url[..], "memory://large", &format!("{url}?wire=grpc"), &format!("{url}?wire=connect")] {
        echoes(&Channel::connect(way).await.unwrap(), &SIZES).await;
    }
    echoes(&Channel::connect(&url.replace("tcp://", "ws://")).await.unwrap(), &SIZES).await;
    echoes(&Channel::local(Echo), &SIZES).await;
    let packed = Channel::builder(&url).compression(Compression::Gzip).connect().await.unwrap();
    echoes(&packed, &SIZES).await;
}

#[tokio::test]
async fn many_at_once_and_a_first_call_that_has_to_connect() {
    let running = Server::new().add(Echo).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let channel = Channel::builder(&running.url()).connections(1).lazy().unwrap();
    let calls = (0..20).map(|n| {
        let channel = channel.clone();
        tokio::spawn(async move { echoes(&channel, &[50_000 + n, 300_000 + n]).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn limits_hold_for_the_sum_of_the_parts() {
    let server = Server::new().add(Echo).limit(Limit::MessageBytesMax, 100_000).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let channel = Channel::connect(&running.url()).await.unwrap();
    for _ in 0..2 {
        // The first before the server has said what it takes.
        let request = proto::encode_payload(&message(100_000), Codec::Proto);
        let status =
            channel.unary(&METHODS[0], Codec::Proto, request, proto::decode::<Any>).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        echoes(&channel, &[90_000]).await;
    }
}
