//! Rules of topics: clients with a caller who may use a topic, and with one who may not.

use crate::support::{Client, array, confirmation, start};
use switchboard::{Caller, Running, Server, auth::Tokens};
use switchboard_adapter::Redis;
use switchboard_message::{Bus, TopicRule, TopicRules};

fn rules() -> TopicRules {
    let rules = TopicRules::new([
        TopicRule::topics("quotes/>").to_subscribe(),
        TopicRule::topics("quotes/>").roles(["market"]).entry_bytes_max(20).rate(0.01).burst(2),
        TopicRule::topics("secret/>").callers(["alice"]),
        TopicRule::topics(">").deny(),
    ]);
    rules.unwrap()
}

async fn serve(redis: &Redis) -> Running {
    let auth = Tokens::default()
        .token("of-alice", Caller::new("alice"))
        .token("of-nyse", Caller::new("nyse").role("market"));
    Server::new().plugin(redis.clone()).auth(auth).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

async fn log_in(running: &Running, token: &str) -> Client {
    let mut client = Client::connect(running).await;
    client.ask(&format!("AUTH {token}"), "+OK\r\n").await;
    client
}

fn denied(topics: &str) -> String {
    format!("-NOPERM topics \"{topics}\" are denied by the rule for \">\"\r\n")
}

fn not_for(topics: &str, rule: &str) -> String {
    format!("-NOPERM this caller may not use topics \"{topics}\", by the rule for \"{rule}\"\r\n")
}

#[tokio::test]
async fn callers_use_the_topics_of_their_rules() {
    let redis = Redis::new(Bus::new()).rules(rules());
    let running = serve(&redis).await;
    let mut alice = log_in(&running, "of-alice").await;
    let mut market = log_in(&running, "of-nyse").await;
    alice.ask("SUBSCRIBE quotes/acme", &confirmation('*', "subscribe", "quotes/acme", 1)).await;
    alice.ask("PSUBSCRIBE quotes/[a-c]*", &confirmation('*', "psubscribe", "quotes/[a-c]*", 2)).await;
    alice.ask("SSUBSCRIBE secret/a", &confirmation('*', "ssubscribe", "secret/a", 1)).await;
    for command in ["SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE"] {
        market.ask(&format!("{command} secret/a"), &not_for("secret/a", "secret/>")).await;
    }
    market.ask("PSUBSCRIBE secret/*", &not_for("secret/*", "secret/>")).await;
    // Each includes topics that the caller may not read.
    for (pattern, topics) in [("quotes*", "quotes*"), ("[a-z]*/acme", "*")] {
        market.send(&[&format!("PSUBSCRIBE {pattern}")]).await;
        let reply = if topics == "*" { not_for(topics, "secret/>") } else { denied(topics) };
        market.expect(&reply).await;
    }
    for command in ["PUBLISH", "SPUBLISH"] {
        market.ask(&format!("{command} secret/a x"), &not_for("secret/a", "secret/>")).await;
        market.ask(&format!("{command} other x"), &denied("other")).await;
    }
    // A refused name ends its command; the names before it are subscribed to.
    market.send(&["SUBSCRIBE quotes/x other quotes/y", "UNSUBSCRIBE quotes/x"]).await;
    market.expect(&confirmation('*', "subscribe", "quotes/x", 1)).await;
    market.expect(&denied("other")).await;
    market.expect(&confirmation('*', "unsubscribe", "quotes/x", 0)).await;
    // Channels that a client may not use are not shown to it.
    market.ask("PUBSUB CHANNELS", &array(&["quotes/acme"])).await;
    market.ask("PUBSUB NUMSUB secret/a", "*2\r\n$8\r\nsecret/a\r\n:0\r\n").await;
    assert_eq!((redis.stats().refused, redis.stats().published), (11, 0));

    market.ask("PUBLISH quotes/acme 1", ":2\r\n").await;
    alice.expect(&array(&["message", "quotes/acme", "1"])).await;
    alice.expect(&array(&["pmessage", "quotes/[a-c]*", "quotes/acme", "1"])).await;
    let large = "x".repeat(21);
    market.ask(&format!("PUBLISH quotes/acme {large}"), "-RESOURCE_EXHAUSTED the entry for topic").await;
    let mut market = log_in(&running, "of-nyse").await;
    market.ask("PUBLISH quotes/acme 2", ":2\r\n").await;
    market.ask("PUBLISH quotes/acme 3", "-RESOURCE_EXHAUSTED more than 0.01 entries a second").await;
    alice.expect(&array(&["message", "quotes/acme", "2"])).await;
}

#[tokio::test]
async fn a_client_without_credentials_is_no_caller() {
    let running = start(&Redis::new(Bus::new()).rules(rules())).await;
    let mut client = Client::connect(&running).await;
    client.ask("SUBSCRIBE quotes/acme", "-NOPERM topics \"quotes/acme\" need credentials").await;
    let mut client = Client::connect(&running).await;
    client.ask("PUBLISH quotes/acme x", "-NOPERM topics \"quotes/acme\" need credentials").await;
}

#[tokio::test]
async fn credentials_replace_those_before() {
    let running = serve(&Redis::new(Bus::new()).rules(rules())).await;
    let mut client = log_in(&running, "of-alice").await;
    client.ask("PUBLISH secret/a x", ":0\r\n").await;
    client.ask("AUTH of-nyse", "+OK\r\n").await;
    client.ask("PUBLISH secret/a x", &not_for("secret/a", "secret/>")).await;
    client.send(&["AUTH of-alice", "RESET", "PUBLISH secret/a x"]).await;
    client.expect("+OK\r\n+RESET\r\n-NOAUTH Authentication required.\r\n").await;
}
