//! A service of protobuf, called by the client that its hand-written `.thrift` file makes.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::{collections::BTreeMap, time::Duration};
use switchboard::{Code, Running, Server, codegen::Bytes};
use thrift_interop::{
    Greetings,
    generated::greet::{
        thrift::{GreetRequest, GreeterClient, Mood, Person},
        v1::GreeterServer,
    },
};

const WAYS: [&str; 8] = [
    "wire=thrift",
    "wire=thrift&protocol=compact&framed=false",
    "wire=thrift&protocol=header-compact&zlib=true",
    "wire=thrift&multiplexed=true",
    "wire=thrift&path=/any",
    "wire=rpcx&codec=thrift&names=short",
    "wire=rpcx&codec=thrift&names=short&compression=gzip",
    "wire=rpcx&codec=thrift&names=short&network=http",
];

async fn start() -> Running {
    let server = Server::new().add(GreeterServer::new(Greetings)).listen("tcp://127.0.0.1:0");
    server.start().await.unwrap()
}

fn ada() -> Person {
    let bob = Person { name: "Bob".into(), ..Person::default() };
    Person {
        name: "Ada".into(),
        age: u32::MAX.into(),
        titles: vec!["Lady".into(); 300],
        scores: BTreeMap::from([("x".into(), i64::MIN), ("y".into(), 5)]),
        phone: Some(-1),
        shy: Some(false),
        mood: Mood::FINE,
        key: Bytes::from_static(&[0, 255]),
        weight: -0.5,
        friends: vec![bob],
        ..Person::default()
    }
}

#[tokio::test]
async fn messages_of_every_type_go_both_ways() {
    let running = start().await;
    for way in WAYS {
        let client = GreeterClient::connect(&format!("{}?{way}", running.url())).await.unwrap();
        let reply = client
            .greet(GreetRequest { person: ada() })
            .await
            .unwrap_or_else(|status| panic!("{way}: {status}"));
        assert_eq!((&*reply.text, reply.person.as_ref()), ("hello Ada", Some(&ada())), "{way}");
    }
}

#[tokio::test]
async fn statuses_are_those_of_the_handler() {
    let running = start().await;
    for way in WAYS {
        let client = GreeterClient::connect(&format!("{}?{way}", running.url())).await.unwrap();
        let missing = client.greet(GreetRequest::default()).await.unwrap_err();
        assert_eq!((missing.code(), missing.message()), (Code::NotFound, "the person is missing"), "{way}");
        let mut young = ada();
        young.age = -1;
        let young = client.greet(GreetRequest { person: young }).await.unwrap_err();
        assert_eq!(young.code(), Code::InvalidArgument, "{way}: {young}");
        assert!(young.message().contains("field age does not fit -1"), "{way}: {young}");
        let streamed = client.watch(GreetRequest { person: ada() }).await.unwrap_err();
        assert_eq!(streamed.code(), Code::Unimplemented, "{way}: {streamed}");
    }
}

#[tokio::test]
async fn metadata_and_deadlines_go_with_them() {
    let running = start().await;
    for way in ["wire=thrift&protocol=header", "wire=thrift&path=/", "wire=rpcx&codec=thrift&names=short"] {
        let client = GreeterClient::connect(&format!("{}?{way}", running.url())).await.unwrap();
        let call = client.greet(GreetRequest { person: ada() }).meta("tenant", "a");
        let reply = call.timeout(Duration::from_secs(60)).await.unwrap();
        assert_eq!(reply.meta().text("served-for"), Some("a"), "{way}");
    }
}
