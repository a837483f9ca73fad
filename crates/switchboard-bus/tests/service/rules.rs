//! Rules of topics, for callers with and without credentials.

use crate::support::{connect, publication, publish, subscribe};
use switchboard::{Caller, Channel, Code, Running, Server, auth::Tokens, guard::Rule};
use switchboard_bus::{
    BusServer, Connect,
    v1::{
        AckOptions, BusClient, CreditRequest, HistoryRequest, PublishBatchRequest, RequestRequest,
        SubscribeEvent, SubscribeRequest, TopicsRequest,
    },
};
use switchboard_message::{Bus, Delivery, TopicRule, TopicRules};

async fn serve(bus: &Bus) -> Running {
    let rules = TopicRules::new([
        TopicRule::topics("quotes/>").to_subscribe().public(),
        TopicRule::topics("quotes/>").roles(["market"]).entry_bytes_max(100).rate(0.01).burst(5),
        TopicRule::topics("dead").to_publish().deny(),
        TopicRule::topics("secret/>").callers(["alice"]),
    ]);
    let tokens = Tokens::default()
        .token("of-alice", Caller::new("alice"))
        .token("of-nyse", Caller::new("nyse").role("market"));
    let topics = BusServer::new(bus.clone()).rules(rules.unwrap());
    let server = Server::new().auth(tokens).rule(Rule::methods("switchboard.bus.v1.Bus/*").public());
    server.add(topics).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

async fn channel(server: &Running, token: &str) -> Channel {
    Channel::builder(&server.url()).token(token).connect().await.unwrap()
}

async fn subscribed(client: &BusClient, request: SubscribeRequest) -> Result<Option<SubscribeEvent>, Code> {
    let mut events = client.subscribe(request).await.map_err(|status| status.code())?;
    events.next().await.map_err(|status| status.code())
}

#[tokio::test]
async fn callers_use_the_topics_of_their_rules() {
    let server = serve(&Bus::new()).await;
    let stranger = connect(&server, "").await;
    let alice = BusClient::new(channel(&server, "of-alice").await);
    let market = BusClient::new(channel(&server, "of-nyse").await);

    market.publish(publish("quotes/acme", "1")).await.unwrap();
    alice.publish(publish("secret/a", "1")).await.unwrap();
    stranger.publish(publish("open", "1")).await.unwrap();
    for (client, topic, code) in [
        (&stranger, "quotes/acme", Code::Unauthenticated),
        (&alice, "quotes/acme", Code::PermissionDenied),
        (&market, "secret/a", Code::PermissionDenied),
    ] {
        let batch = PublishBatchRequest {
            topic: topic.to_owned(),
            entries: vec![publication("1")],
            ..Default::default()
        };
        let entry = publication("1").into();
        let request = RequestRequest { topic: topic.to_owned(), entry, ..Default::default() };
        let credit = CreditRequest { topic: topic.to_owned(), ..Default::default() };
        assert_eq!(client.publish(publish(topic, "1")).await.unwrap_err().code(), code, "{topic}");
        assert_eq!(client.publish_batch(batch).await.unwrap_err().code(), code, "{topic}");
        assert_eq!(client.credit(credit).await.unwrap_err().code(), code, "{topic}");
        let mut requested = client.request(request).await.unwrap();
        assert_eq!(requested.next().await.unwrap_err().code(), code, "{topic}");
    }

    subscribed(&stranger, subscribe("quotes/*")).await.unwrap();
    subscribed(&alice, subscribe("secret/>")).await.unwrap();
    for pattern in ["secret/a", "secret/*", "*/a", ">", "#"] {
        let refused = subscribed(&stranger, subscribe(pattern)).await.unwrap_err();
        assert_eq!(refused, Code::Unauthenticated, "{pattern}");
        let refused = subscribed(&market, subscribe(pattern)).await.unwrap_err();
        assert_eq!(refused, Code::PermissionDenied, "{pattern}");
    }
    let prefix = SubscribeRequest { prefix: Some("sec".into()), ..Default::default() };
    assert_eq!(subscribed(&stranger, prefix).await.unwrap_err(), Code::Unauthenticated);
    let history = HistoryRequest { topic: "secret/a".to_owned(), ..Default::default() };
    assert_eq!(stranger.history(history).await.unwrap_err().code(), Code::Unauthenticated);
    // Dead letters are publications.
    let ack = AckOptions { dead_letter_topic: "dead".to_owned(), ..Default::default() };
    let group = SubscribeRequest { group: "g".to_owned(), ack: ack.into(), ..subscribe("quotes/acme") };
    assert_eq!(subscribed(&alice, group).await.unwrap_err(), Code::PermissionDenied);
}

#[tokio::test]
async fn lists_have_the_topics_that_their_caller_may_use() {
    let bus = Bus::new();
    let _topics = [bus.subscribe_encoded("secret/a").await, bus.subscribe_encoded("quotes/acme").await];
    let server = serve(&bus).await;
    let (stranger, alice) = (connect(&server, "").await, channel(&server, "of-alice").await);
    let alice = BusClient::new(alice);
    let named = TopicsRequest { topics: vec!["secret/a".into(), "quotes/acme".into()], ..Default::default() };
    for request in [TopicsRequest::default(), named] {
        let names = |topics: &[switchboard_bus::v1::Topic]| {
            let mut names: Vec<_> = topics.iter().map(|topic| topic.name.clone()).collect();
            names.sort();
            names
        };
        let listed = stranger.topics(request.clone()).await.unwrap();
        assert_eq!(names(&listed.topics), ["quotes/acme"]);
        let listed = alice.topics(request).await.unwrap();
        assert_eq!(names(&listed.topics), ["quotes/acme", "secret/a"]);
    }
}

#[tokio::test]
async fn entries_of_a_rule_are_limited_in_size_and_rate() {
    let server = serve(&Bus::new()).await;
    let market = BusClient::new(channel(&server, "of-nyse").await);
    let large = market.publish(publish("quotes/acme", &"x".repeat(101))).await.unwrap_err();
    assert!(large.message().contains("entry_bytes_max=100"), "{large}");
    for _ in 0..5 {
        market.publish(publish("quotes/acme", "1")).await.unwrap();
    }
    let many = market.publish(publish("quotes/acme", "1")).await.unwrap_err();
    assert_eq!(many.code(), Code::ResourceExhausted, "{many}");
    assert!(many.message().contains("0.01 entries a second"), "{many}");
}

#[tokio::test]
async fn a_refused_bus_says_so_and_does_not_try_again() {
    let server = serve(&Bus::new()).await;
    let stranger = Bus::over(Channel::connect(&server.url()).await.unwrap());
    let alice = Bus::over(channel(&server, "of-alice").await);
    let refused = stranger.subscribe_encoded("secret/>").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(refused.message().contains("by the rule for \"secret/>\""), "{refused}");
    let mut secrets = alice.subscribe::<u32>("secret/>").await.unwrap();
    alice.publish("secret/a", &7_u32).await.unwrap();
    assert!(matches!(secrets.next().await, Ok(Some(Delivery::Entry(secret))) if *secret == 7));
}
