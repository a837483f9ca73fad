//! Topics and groups on the admin listener, and the sums over all topics in the metrics.

use crate::support::{publish, soon, start};
use serde_json::Value;
use switchboard::{
    Address, Running, Server,
    counters::{Counter, CounterSource},
};
use switchboard_bus::BusServer;
use switchboard_message::Bus;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Returns the status and the body of a page.
async fn page(running: &Running, path: &str) -> (u16, String) {
    let Some(Address::Tcp(host, port)) = running.admin() else { panic!("an admin listener on TCP") };
    let mut stream = TcpStream::connect((host.as_str(), *port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn json(running: &Running, path: &str) -> Value {
    let (status, body) = page(running, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn topics_and_groups_have_pages() {
    let bus = Bus::new();
    let server = Server::new().admin("tcp://127.0.0.1:0").plugin(BusServer::new(bus.clone()));
    let running = start(server).await;
    let mut workers = bus.subscribe::<u32>("jobs/*").group("workers").ack().await.unwrap();
    publish(&bus, "jobs/mail", "1").await;
    publish(&bus, "jobs/print", "2").await;
    let _held = workers.next().await.unwrap();

    let topics = json(&running, "/topics?format=json&period=0ms").await;
    assert_eq!(topics["topics"].as_array().unwrap().len(), 2, "{topics}");
    assert_eq!(topics["topics"][0]["published"], 1, "{topics}");
    assert_eq!(topics["topics"][0]["rate_per_s"], Value::Null, "{topics}");
    let topics = json(&running, "/topics?format=json&period=10ms&filter=jobs%2Fmail").await;
    assert_eq!(topics["topics"].as_array().unwrap().len(), 1, "{topics}");
    assert_eq!(topics["topics"][0]["topic"], "jobs/mail", "{topics}");
    assert!(topics["topics"][0]["rate_per_s"].is_number(), "{topics}");

    let groups = json(&running, "/groups?format=json").await;
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1, "{groups}");
    let group = &groups["groups"][0];
    assert_eq!((&group["group"], &group["topics"]), (&"workers".into(), &"jobs/*".into()));

    for (path, why) in [
        ("/topics?from=x", "page token"),
        ("/topics?period=1h", "at most 10s"),
        ("/topics?source=other", "those are: bus"),
        ("/groups?filter=a", "not supported for groups"),
    ] {
        let (status, body) = page(&running, path).await;
        assert_eq!((status, body.contains(why)), (400, true), "{path}: {body}");
    }
    let (_, index) = page(&running, "/").await;
    assert!(index.contains("/topics") && index.contains("/groups"), "{index}");
    assert_eq!(page(&running, "/engines").await.0, 404);
}

#[tokio::test]
async fn metrics_have_sums_and_no_series_per_topic() {
    let bus = Bus::new();
    // Two plugins share the bus, which is counted once.
    let server = Server::new().plugin(BusServer::new(bus.clone())).counters("second", Bus::new());
    let running = start(server).await;
    let _all = bus.subscribe::<u32>("secret/*").await.unwrap();
    publish(&bus, "secret/name", "1").await;
    let stats = running.stats();
    let (text, open) = (stats.prometheus(), stats.open_metrics());
    for line in [
        "# TYPE switchboard_bus_published_total counter",
        "switchboard_bus_published_total{source=\"bus\"} 1",
        "switchboard_bus_published_total{source=\"second\"} 0",
        "switchboard_bus_missed_entries_total{source=\"bus\",reason=\"lagged\"} 0",
        "switchboard_bus_topics{source=\"bus\"} 1",
    ] {
        assert_eq!(text.lines().filter(|known| *known == line).count(), 1, "{line} in {text}");
    }
    assert!(!text.contains("secret"), "{text}");
    assert!(open.contains("# TYPE switchboard_bus_published counter\n"), "{open}");
}

/// A source of an application with a kind that the server uses itself.
struct Calls;

impl CounterSource for Calls {
    fn kind(&self) -> &'static str {
        "calls"
    }

    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }
}

#[tokio::test]
async fn a_server_does_not_start_with_ambiguous_counters() {
    let twice = || Server::new().listen("tcp://127.0.0.1:0").counters("a", Bus::new());
    for (server, why) in [
        (twice().counters("a", Bus::new()), "two sources have the name \"a\""),
        (twice().counters("b", Calls), "choose another kind"),
        (twice().counters("", Bus::new()), "has no name"),
    ] {
        let error = server.start().await.err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}
