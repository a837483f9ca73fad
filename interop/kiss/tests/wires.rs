//! The service of a `.fbs` file on every wire that carries it.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use interop_kiss::{
    Back, FUNCTIONS, full,
    schema::{EchoClient, EchoServer, Manner, Message, Whisper, kinds},
};
use std::sync::{Arc, atomic::Ordering};
use switchboard::{Channel, Code, Codec, Running, Server, codec::flatbuffers};

async fn start() -> (Running, Arc<Back>) {
    let back = Arc::new(Back::default());
    let server = Server::new().add(EchoServer::from_arc(back.clone())).listen("tcp://127.0.0.1:0");
    let named = |server: Server, (name, id): &(&str, u64)| server.alias(format!("kiss/{id}"), *name);
    (FUNCTIONS.iter().fold(server, named).start().await.unwrap(), back)
}

#[test]
fn messages_are_the_same_in_each_codec() {
    let low = Message { manner: Some(Manner::Low(Box::new(Whisper { to: None }))), ..Message::default() };
    for message in [Message::default(), full(), low] {
        for codec in [Codec::FlatBuffers, Codec::Proto, Codec::Json, Codec::MsgPack] {
            let bytes = flatbuffers::encode(&message, codec).unwrap();
            assert_eq!(flatbuffers::decode::<Message>(codec, bytes).unwrap(), message, "{codec}");
        }
        let status = flatbuffers::encode(&message, Codec::Postcard).unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
    let text = flatbuffers::encode(&full(), Codec::Json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["type"], 1e300);
    assert_eq!(json["manner"]["Shout"]["times"], 3);
    assert_eq!(json["manners"][0]["Low"]["to"], "x");
    // Missing fields have their defaults.
    let message: Message = flatbuffers::decode(Codec::Json, "{}".into()).unwrap();
    assert_eq!((message.number, message.mood), (-7, kinds::Mood::LOUD));
    let status = flatbuffers::decode::<Message>(Codec::FlatBuffers, "\x04\0\0\0".into()).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("no Message"), "{status}");
}

#[test]
fn required_fields_are_missed() {
    // A table without fields where a tag is to be.
    let bytes: &[u8] = &[8, 0, 0, 0, 4, 0, 4, 0, 4, 0, 0, 0];
    let status =
        flatbuffers::decode::<interop_kiss::schema::Tag>(Codec::FlatBuffers, bytes.into()).unwrap_err();
    assert!(status.message().contains("required field Tag.key is missing"), "{status}");
}

#[tokio::test]
async fn every_wire_carries_unary_calls() {
    let (running, back) = start().await;
    let kiss = interop_kiss::options();
    for options in [
        "",
        "?wire=grpc",
        "?wire=grpc&codec=proto",
        "?wire=connect",
        "?wire=jsonrpc",
        "?wire=rpcx",
        "?wire=baidu_std",
        &format!("?{kiss}"),
        &format!("?{kiss}&snappy=dynamic"),
    ] {
        let url = format!("{}{options}", running.url());
        interop_kiss::ask(&url).await.unwrap_or_else(|status| panic!("{options}: {status}"));
        let client = EchoClient::connect(&url).await.unwrap();
        let before = back.notes.load(Ordering::Relaxed);
        client.note(full()).await.unwrap();
        // What comes behind a note finds it taken.
        while back.notes.load(Ordering::Relaxed) == before {
            client.say(Message::default()).await.unwrap();
        }
    }
    for (options, codec) in
        [("", Codec::FlatBuffers), ("?wire=grpc", Codec::FlatBuffers), ("?wire=connect", Codec::Json)]
    {
        let channel = Channel::connect(&format!("{}{options}", running.url())).await.unwrap();
        assert_eq!(channel.codec(Codec::FlatBuffers), codec, "{options}");
    }
}

#[tokio::test]
async fn streams_go_over_native_and_grpc() {
    let (running, _) = start().await;
    for options in ["", "?wire=grpc", "?wire=connect"] {
        let client = EchoClient::connect(&format!("{}{options}", running.url())).await.unwrap();
        let mut counted = client.count(Message { number: 3, ..full() }).await.unwrap();
        let mut numbers = Vec::new();
        while let Some(message) = counted.next().await.unwrap() {
            numbers.push(message.number);
        }
        assert_eq!(numbers, [0, 1, 2], "{options}");
        let upload = client.join().await.unwrap();
        for text in ["a", "b"] {
            upload.send(Message { text: Some(text.to_owned()), ..Message::default() }).await.unwrap();
        }
        assert_eq!(upload.finish().await.unwrap().text.as_deref(), Some("ab"));
        let (sender, mut receiver) = client.chat().await.unwrap();
        sender.send(full()).await.unwrap();
        assert_eq!(receiver.next().await.unwrap(), Some(full()));
        sender.finish();
        assert_eq!(receiver.next().await.unwrap(), None);
    }
}
