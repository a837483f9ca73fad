//! Rules of the server: credentials, permissions, pages of other origins, the admin listener's counters.

use crate::support::{Client, publish, start};
use switchboard::{Caller, Cors, Server, auth::Tokens, guard::Rule};
use switchboard_bus::BusServer;
use switchboard_message::{Bus, TopicRule, TopicRules};

#[tokio::test]
async fn permission_to_subscribe_is_permission_for_events() {
    let bus = Bus::new();
    let tokens = Tokens::default()
        .token("secret-of-alice", Caller::new("alice"))
        .token("secret-of-bob", Caller::new("bob"));
    let server = Server::new().plugin(BusServer::new(bus.clone())).auth(tokens);
    let server = start(server.rule(Rule::methods("*/Subscribe").callers(["alice"]))).await;
    for (query, headers, status) in [
        ("topic=t", "", 401),
        ("topic=t&token=secret-of-mallory", "", 401),
        ("topic=t&token=secret-of-bob", "", 403),
        ("topic=t", "authorization: Bearer secret-of-bob\r\n", 403),
        ("topic=t&token=secret-of-alice", "authorization: Bearer secret-of-bob\r\n", 403),
        // Callers without permission do not find out why else a request fails.
        ("topic=%zz", "", 401),
        ("topic=%zz", "authorization: Bearer secret-of-bob\r\n", 403),
        ("topic=%zz", "authorization: Bearer secret-of-alice\r\n", 400),
        ("topic=t&token=secret-of-alice", "", 200),
        ("topic=t", "authorization: Bearer secret-of-alice\r\n", 200),
    ] {
        let mut client = Client::get(&server, &format!("/events?{query}"), headers).await;
        assert_eq!(client.status, status, "{query} {headers}");
        if status != 200 {
            let text = client.rest().await;
            assert!(!text.contains("secret"), "{text}");
        }
    }
    let (mut client, _) = Client::events(&server, "topic=t&token=secret-of-alice", "").await;
    publish(&bus, "t", "1").await;
    client.event().await;
}

#[tokio::test]
async fn pages_of_other_origins_follow_cors() {
    let bus = Bus::new();
    let server =
        Server::new().plugin(BusServer::new(bus.clone())).cors(Cors::new().origin("https://app.example"));
    let server = start(server).await;
    let allowed = |client: &Client| client.head.contains("access-control-allow-origin: https://app.example");
    let client = Client::get(&server, "/events?topic=t", "origin: https://app.example\r\n").await;
    assert!(client.status == 200 && allowed(&client), "{}", client.head);
    let client = Client::get(&server, "/events?topic=t", "origin: https://other.example\r\n").await;
    assert!(!allowed(&client), "the browser keeps the response from the page: {}", client.head);
}

#[tokio::test]
async fn a_hidden_method_has_no_path() {
    let server = Server::new().plugin(BusServer::new(Bus::new())).hide(["*/Subscribe"]);
    let client = Client::get(&start(server).await, "/events?topic=t", "").await;
    assert_eq!(client.status, 404);
}

#[tokio::test]
async fn rules_of_topics_apply_to_events() {
    let bus = Bus::new();
    let rules =
        TopicRules::new([TopicRule::topics("open/>").public(), TopicRule::topics(">").deny()]).unwrap();
    let server = start(Server::new().plugin(BusServer::new(bus).rules(rules).event_patterns())).await;
    for (query, status) in [
        ("topic=open/t", 200),
        ("topic=open/*", 200),
        ("topic=closed/t", 403),
        ("topic=open/t&topic=closed/t", 403),
        ("topic=%3E", 403),
    ] {
        assert_eq!(Client::get(&server, &format!("/events?{query}"), "").await.status, status, "{query}");
    }
}
