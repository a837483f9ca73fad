//! Clients of NATS on a server: what they may do, and what ends with them. Real clients are in `interop/nats`.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod client;
mod services;

use client::{Client, QUIET, soon};
use std::time::Duration;
use switchboard::{Caller, Codec, Limit, Running, Server, StopOptions, auth::Tokens};
use switchboard_adapter::{Nats, SlowConsumer};
use switchboard_fanout::Options;
use switchboard_message::{
    Bus, Delivery, FileOptions, Publication, Storage, TopicOptions, TopicRule, TopicRules,
};

async fn start(nats: &Nats) -> Running {
    Server::new().plugin(nats.clone()).listen("nats://127.0.0.1:0").start().await.unwrap()
}

async fn started() -> (Bus, Nats, Running) {
    let bus = Bus::new();
    let nats = Nats::new(bus.clone());
    let running = start(&nats).await;
    (bus, nats, running)
}

fn raw(text: impl Into<bytes::Bytes>) -> Publication {
    Publication::new(Codec::Raw, text)
}

/// Waits for a condition of the counters, which other threads change.
async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_server_describes_itself_first() {
    let (_, _, running) = started().await;
    let mut one = Client::new(&running).await;
    let other = Client::new(&running).await;
    for part in [
        "\"server_id\":\"N",
        "\"server_name\":\"switchboard\"",
        "\"version\":\"2.10.0\"",
        "\"proto\":1",
        "\"headers\":true",
        "\"max_payload\":1048576",
        "\"client_id\":1",
    ] {
        assert!(one.info.contains(part), "{part} in {}", one.info);
    }
    assert!(!one.info.contains("jetstream") && !one.info.contains("auth_required"), "{}", one.info);
    assert!(other.info.contains("\"client_id\":2"), "{}", other.info);
    one.settled().await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn entries_reach_subscriptions_with_wildcards() {
    let (bus, nats, running) = started().await;
    let mut client = Client::connect(&running).await;
    client.send("SUB quotes.* 1\r\nSUB quotes.> 2\r\nsub quotes.acme 3\r\nSUB other 4\r\n").await;
    client.settled().await;
    bus.publish_encoded("quotes/acme", raw("12.5")).await.unwrap();
    let mut lines = Vec::new();
    for _ in 0..3 {
        lines.push(client.message().await);
    }
    lines.sort();
    let expected = ["1", "2", "3"].map(|sid| (format!("MSG quotes.acme {sid} 4"), "12.5".to_owned()));
    assert_eq!(lines, expected);
    bus.publish_encoded("quotes/acme/eu", raw("")).await.unwrap();
    client.expect("MSG quotes.acme.eu 2 0", "").await;
    client.settled().await;
    assert_eq!(nats.stats().delivered, 4);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn publications_reach_the_bus_and_other_clients() {
    let (bus, nats, running) = started().await;
    let mut native = bus.subscribe_encoded("a/*").await.unwrap();
    let mut subscriber = Client::connect(&running).await;
    subscriber.send("SUB a.> 7\r\n").await;
    subscriber.settled().await;
    let mut publisher = Client::connect(&running).await;
    publisher.send("SUB a.b 1\r\nPUB a.b 2\r\nhi\r\n").await;
    // What was published before a PING arrives before its PONG, also at the client itself.
    publisher.send("PING\r\n").await;
    publisher.expect("MSG a.b 1 2", "hi").await;
    assert_eq!(publisher.line().await, "PONG");
    subscriber.expect("MSG a.b 7 2", "hi").await;
    let Some(Delivery::Entry(entry)) = soon(native.next()).await.unwrap() else { panic!("an entry") };
    assert_eq!((entry.topic().name(), &entry[..]), ("a/b", &b"hi"[..]));
    // Bytes of any kind, and large ones.
    let large = "x".repeat(100_000);
    publisher.publish("a.c", &large).await;
    subscriber.expect("MSG a.c 7 100000", &large).await;
    assert_eq!((nats.stats().published, nats.stats().refused), (2, 0));
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn entries_of_a_topic_are_in_order_and_complete() {
    let (_, nats, running) = started().await;
    let mut subscriber = Client::connect(&running).await;
    subscriber.send("SUB numbers 1\r\n").await;
    subscriber.settled().await;
    let mut publisher = Client::connect(&running).await;
    const COUNT: usize = 20_000;
    let writer = tokio::spawn(async move {
        for batch in 0..COUNT / 100 {
            let texts = (0..100).map(|at| (batch * 100 + at).to_string());
            let commands = texts.map(|text| format!("PUB numbers {}\r\n{text}\r\n", text.len()));
            publisher.send(&commands.collect::<String>()).await;
        }
        publisher.settled().await;
        publisher
    });
    for number in 0..COUNT {
        assert_eq!(subscriber.message().await.1, number.to_string());
    }
    drop(writer.await.unwrap());
    assert_eq!(nats.stats().missed, 0);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_subscription_with_wildcards_gets_the_topics_of_clients_in_their_order() {
    let (_, _, running) = started().await;
    let mut subscriber = Client::connect(&running).await;
    subscriber.send("SUB t.* 1\r\n").await;
    subscriber.settled().await;
    let mut publisher = Client::connect(&running).await;
    let commands = (0..1000).map(|number| format!("PUB t.{} 1\r\nx\r\n", number * 7 % 31));
    publisher.send(&commands.collect::<String>()).await;
    for number in 0..1000 {
        subscriber.expect(&format!("MSG t.{} 1 1", number * 7 % 31), "x").await;
    }
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_subscription_ends_after_its_maximum() {
    let (_, _, running) = started().await;
    let mut client = Client::connect(&running).await;
    client.send("SUB a 1\r\nUNSUB 1 2\r\nSUB a 2\r\n").await;
    for text in ["x", "y", "z"] {
        client.publish("a", text).await;
    }
    client.send("PING\r\n").await;
    let mut received = Vec::new();
    for _ in 0..5 {
        received.push(client.message().await);
    }
    assert_eq!(client.line().await, "PONG");
    let of = |sid: &str| received.iter().filter(|(line, _)| line.contains(sid)).count();
    assert_eq!((of(" 1 "), of(" 2 ")), (2, 3));
    // A maximum that is reached already, and the end at once.
    client.send("UNSUB 2 3\r\nSUB a 3\r\nUNSUB 3\r\nUNSUB 9\r\nPUB a 1\r\nx\r\n").await;
    client.settled().await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_queue_group_shares_entries() {
    let (bus, _, running) = started().await;
    let mut members = Vec::new();
    for _ in 0..3 {
        let mut member = Client::connect(&running).await;
        member.send("SUB jobs.* workers 5\r\n").await;
        member.settled().await;
        members.push(member);
    }
    let mut all = Client::connect(&running).await;
    all.send("SUB jobs.* 1\r\n").await;
    all.settled().await;
    for job in 0..30 {
        bus.publish_encoded("jobs/mail", raw(job.to_string())).await.unwrap();
    }
    for job in 0..30 {
        all.expect(&format!("MSG jobs.mail 1 {}", job.to_string().len()), &job.to_string()).await;
    }
    let mut jobs = Vec::new();
    for member in &mut members {
        // In turn: none of them waits.
        for _ in 0..10 {
            jobs.push(member.message().await.1.parse::<u32>().unwrap());
        }
        member.settled().await;
    }
    jobs.sort_unstable();
    assert_eq!(jobs, (0..30).collect::<Vec<_>>());
    // A member of the group inside the process takes its part, too.
    let mut native = bus.subscribe_encoded("jobs/*").group("workers").await.unwrap();
    members.clear();
    until(|| bus.stats().subscriptions == 2).await;
    bus.publish_encoded("jobs/mail", raw("last")).await.unwrap();
    let Some(Delivery::Entry(job)) = soon(native.next()).await.unwrap() else { panic!("a job") };
    assert_eq!(&job[..], b"last");
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn headers_are_forwarded_and_are_metadata_of_the_entry() {
    let (bus, _, running) = started().await;
    let mut native = bus.subscribe_encoded("a").await.unwrap();
    let mut with = Client::connect(&running).await;
    with.send("SUB a 1\r\n").await;
    with.settled().await;
    let mut without = Client::with(&running, r#"{"verbose":false}"#).await;
    without.send("SUB a 2\r\n").await;
    without.settled().await;
    let headers = "NATS/1.0\r\nTrace-Id: 7\r\ncontent-type: application/json\r\n\r\n";
    with.send(&format!("HPUB a _INBOX.1 {} {}\r\n{headers}{{}}\r\n", headers.len(), headers.len() + 2)).await;
    let (line, text) = with.message().await;
    assert_eq!(line, format!("HMSG a 1 _INBOX.1 {} {}", headers.len(), headers.len() + 2));
    assert_eq!(text, format!("{headers}{{}}"));
    without.expect("MSG a 2 _INBOX.1 2", "{}").await;
    let Some(Delivery::Entry(entry)) = soon(native.next()).await.unwrap() else { panic!("an entry") };
    assert_eq!((entry.headers().text("trace-id"), entry.entry().codec()), (Some("7"), Codec::Json));
    // Metadata of the process is headers of clients.
    let mut publication = raw("x");
    publication.headers.insert("tenant", "acme").unwrap();
    bus.publish_encoded("a", publication).await.unwrap();
    with.expect("HMSG a 1 26 27", "NATS/1.0\r\ntenant: acme\r\n\r\nx").await;
    without.expect("MSG a 2 1", "x").await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_request_without_subscribers_gets_the_status_503() {
    let (_, nats, running) = started().await;
    let mut client = Client::connect(&running).await;
    client.send("SUB _INBOX.x.* 9\r\nPUB nothing.here _INBOX.x.1 2\r\nhi\r\n").await;
    client.expect("HMSG _INBOX.x.1 9 16 16", "NATS/1.0 503\r\n\r\n").await;
    // JetStream, which this server does not have.
    client.send("PUB $JS.API.INFO _INBOX.x.2 0\r\n\r\n").await;
    client.expect("HMSG _INBOX.x.2 9 16 16", "NATS/1.0 503\r\n\r\n").await;
    assert_eq!(nats.stats().no_responders, 1);
    // A client that does not accept it, and a publication that is no request.
    let mut plain = Client::with(&running, r#"{"verbose":false,"headers":true}"#).await;
    plain
        .send("SUB _INBOX.y.* 9\r\nPUB nothing.here _INBOX.y.1 2\r\nhi\r\nPUB nothing.here 2\r\nhi\r\n")
        .await;
    plain.settled().await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn clients_request_and_reply() {
    let (bus, _, running) = started().await;
    let mut responder = Client::connect(&running).await;
    responder.send("SUB square q 1\r\n").await;
    responder.settled().await;
    let mut requester = Client::connect(&running).await;
    requester.send("SUB _INBOX.r.* 1\r\nPUB square _INBOX.r.1 1\r\n7\r\n").await;
    responder.expect("MSG square 1 _INBOX.r.1 1", "7").await;
    responder.publish("_INBOX.r.1", "49").await;
    requester.expect("MSG _INBOX.r.1 1 2", "49").await;
    // A request of the process: the client gets a subject for its reply that no other client can guess.
    let request = tokio::spawn({
        let bus = bus.clone();
        async move { bus.request::<u32, serde_json::Value>("square", &7).codec(Codec::Json).await }
    });
    let (line, text) = responder.message().await;
    assert_eq!(text, "7");
    let reply = line.split(' ').nth(3).unwrap().to_owned();
    assert!(reply.starts_with("_REPLY."), "{line}");
    let forged = reply.rsplit_once('.').unwrap().0.to_owned() + ".0000000000000000";
    responder.publish(&forged, "1").await;
    let headers = "NATS/1.0\r\nContent-Type: application/json\r\n\r\n";
    let total = headers.len() + 2;
    responder.send(&format!("HPUB {reply} {} {total}\r\n{headers}49\r\n", headers.len())).await;
    assert_eq!(*soon(request).await.unwrap().unwrap(), 49);
    // A subscriber in the process replies to a client.
    let mut native = bus.subscribe_encoded("double").await.unwrap();
    requester.send("PUB double _INBOX.r.2 1\r\n4\r\n").await;
    let Some(Delivery::Entry(request)) = soon(native.next()).await.unwrap() else { panic!("a request") };
    request.reply_encoded(Codec::Raw, "8".into()).await.unwrap();
    requester.expect("MSG _INBOX.r.2 1 1", "8").await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn subjects_of_replies_are_not_kept() {
    let (bus, _, running) = started().await;
    let mut client = Client::connect(&running).await;
    client.send("SUB _INBOX.r.* 1\r\nSUB echo 2\r\n").await;
    for batch in 0..100 {
        let requests = (0..50).map(|at| format!("PUB _INBOX.r.{batch}-{at} 1\r\nx\r\n"));
        client.send(&requests.collect::<String>()).await;
        for _ in 0..50 {
            client.message().await;
        }
    }
    assert!(bus.stats().topics < 2_000, "{:?}", bus.stats());
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_client_without_echo_does_not_get_its_own_messages() {
    let (_, _, running) = started().await;
    let mut quiet = Client::with(&running, r#"{"verbose":false,"echo":false,"headers":true}"#).await;
    let mut other = Client::connect(&running).await;
    for client in [&mut quiet, &mut other] {
        client.send("SUB a 1\r\n").await;
        client.settled().await;
    }
    quiet.publish("a", "x").await;
    other.expect("MSG a 1 1", "x").await;
    other.publish("a", "y").await;
    quiet.expect("MSG a 1 1", "y").await;
    other.expect("MSG a 1 1", "y").await;
    // Its queue group has the other member for them.
    for client in [&mut quiet, &mut other] {
        client.send("SUB jobs workers 2\r\n").await;
        client.settled().await;
    }
    for job in ["1", "2", "3"] {
        quiet.publish("jobs", job).await;
        other.expect("MSG jobs 2 1", job).await;
    }
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_verbose_client_gets_ok_before_the_messages_of_its_command() {
    let (_, _, running) = started().await;
    let mut client = Client::new(&running).await;
    client.send("CONNECT {\"verbose\":true,\"pedantic\":true}\r\nPING\r\nSUB a 1\r\nPUB a 1\r\nx\r\nPUB a..b 0\r\n\r\n").await;
    for line in ["+OK", "PONG", "+OK", "+OK"] {
        assert_eq!(client.line().await, line);
    }
    // The error and the message have no order.
    let mut rest = vec![client.line().await, client.line().await, client.line().await];
    rest.sort();
    assert_eq!(rest, ["-ERR 'Invalid Subject'", "MSG a 1 1", "x"]);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn bad_input_gets_the_errors_of_nats() {
    let (bus, nats, running) = started().await;
    // Those that close the connection.
    let line = format!("SUB {} 1\r\n", "a".repeat(4096));
    let size = "PUB a 1048577\r\n";
    for (input, error) in [
        (&line[..], "Maximum Control Line Exceeded"),
        (size, "Maximum Payload Violation"),
        ("PUB a 18446744073709551616\r\n", "Maximum Payload Violation"),
        ("GET / HTTP/1.1\r\n", "Unknown Protocol Operation"),
        ("PUBLISH a 1\r\n", "Unknown Protocol Operation"),
        ("HPUB a 10 5\r\n", "Parser Error"),
        ("HPUB a 4 4\r\nabcd\r\n", "Parser Error"),
        ("PUB a x\r\n", "Parser Error"),
        ("PUB a 1\r\nxy\r\n", "Parser Error"),
        ("CONNECT {\"verbose\":1}\r\n", "Parser Error"),
        ("SUB\r\n", "Parser Error"),
    ] {
        let mut client = Client::connect(&running).await;
        client.send(input).await;
        assert_eq!(client.line().await, format!("-ERR '{error}'"), "{}", &input[..input.len().min(40)]);
        assert_eq!(client.line().await, "", "the connection is closed");
    }
    assert_eq!(nats.stats().protocol_errors, 11);
    // Those that do not.
    let mut client = Client::with(&running, r#"{"verbose":false,"pedantic":true}"#).await;
    let deep = "x.".repeat(16) + "x";
    for (input, error) in [
        ("PUB a.* 0\r\n\r\n".to_owned(), "'Invalid Subject'".to_owned()),
        ("PUB a..b 0\r\n\r\n".to_owned(), "'Invalid Subject'".to_owned()),
        (format!("PUB {deep} 0\r\n\r\n"), "'Invalid Subject'".to_owned()),
        (format!("PUB {} 0\r\n\r\n", "x".repeat(257)), "'Invalid Subject'".to_owned()),
        ("SUB a.>.b 1\r\n".to_owned(), "'Invalid Subject'".to_owned()),
        ("SUB a.+ 1\r\n".to_owned(), "'Invalid Subject'".to_owned()),
        (format!("SUB {deep} 1\r\n"), "'Invalid Subject'".to_owned()),
        ("SUB $SYS.> 1\r\n".to_owned(), "'Permissions Violation for Subscription to \"$SYS.>\"'".to_owned()),
        ("PUB $SYS.x 0\r\n\r\n".to_owned(), "'Permissions Violation for Publish to \"$SYS.x\"'".to_owned()),
    ] {
        client.send(&input).await;
        assert_eq!(client.line().await, format!("-ERR {error}"), "{input}");
        client.settled().await;
    }
    // Without pedantic, an invalid subject is dropped and counted.
    let mut client = Client::connect(&running).await;
    client.send("\r\n\r\nPUB a.* 0\r\n\r\n").await;
    client.settled().await;
    assert_eq!(nats.stats().invalid_subjects, 10);
    assert_eq!((nats.stats().published, bus.stats().topics), (0, 0));
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_client_has_a_limited_number_of_subscriptions() {
    let bus = Bus::new();
    let running = start(&Nats::new(bus.clone()).subscriptions_max(2)).await;
    let mut client = Client::connect(&running).await;
    client.send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n").await;
    assert_eq!(client.line().await, "-ERR 'Maximum Subscriptions Exceeded'");
    client.send("UNSUB 1\r\nSUB c 3\r\n").await;
    client.settled().await;
    drop(client);
    // Its subscriptions end with it.
    until(|| bus.stats().subscriptions == 0).await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_slow_consumer_is_closed_and_others_are_not() {
    let bus = Bus::new();
    let mut options = Options::default();
    options.outbox_bytes_max = 1 << 20;
    let nats = Nats::new(bus.clone()).options(options);
    let running = start(&nats).await;
    let mut slow = Client::connect(&running).await;
    let mut fast = Client::connect(&running).await;
    for client in [&mut slow, &mut fast] {
        client.send("SUB a 1\r\n").await;
        client.settled().await;
    }
    let text = "x".repeat(100_000);
    while nats.stats().slow_consumers == 0 {
        bus.publish_encoded("a", raw(text.clone())).await.unwrap();
        fast.expect("MSG a 1 100000", &text).await;
    }
    // What it was sent before, and then the reason.
    let mut line = slow.line().await;
    while line.starts_with("MSG") {
        let payload = slow.line().await;
        assert_eq!(payload.len(), 100_000);
        line = slow.line().await;
    }
    assert_eq!(line, "-ERR 'Slow Consumer'");
    assert_eq!(slow.line().await, "");
    fast.settled().await;
    assert_eq!(nats.stats().slow_consumers, 1);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn messages_to_a_durable_topic_are_kept_once_and_in_order() {
    let folder = std::env::temp_dir().join(format!("switchboard-nats-durable-{}", std::process::id()));
    let options = TopicOptions::new().history(100, Duration::MAX).storage(Storage::File);
    let bus = Bus::builder().topics("jobs", options).unwrap().open(FileOptions::new(&folder)).unwrap();
    let nats = Nats::new(bus.clone());
    let running = start(&nats).await;
    let mut client = Client::connect(&running).await;
    let mut reader = bus.subscribe_encoded("jobs").await.unwrap();
    client.send("PUB jobs 1\r\n1\r\nPUB jobs 1\r\n2\r\nPUB jobs 1\r\n3\r\n").await;
    for (at, text) in ["1", "2", "3"].into_iter().enumerate() {
        let Some(Delivery::Entry(job)) = soon(reader.next()).await.unwrap() else { panic!("no job") };
        assert_eq!((&job[..], job.position().offset), (text.as_bytes(), at as u64 + 1));
    }
    client.settled().await;
    assert_eq!((bus.topic_stats("jobs").unwrap().published, nats.stats().published), (3, 3));
    running.stop(StopOptions::new()).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_slow_consumer_misses_messages_by_option() {
    let bus = Bus::new();
    let mut options = Options::default();
    options.outbox_bytes_max = 1 << 20;
    let nats = Nats::new(bus.clone()).options(options).slow_consumers(SlowConsumer::Drop);
    let running = start(&nats).await;
    let mut slow = Client::connect(&running).await;
    slow.send("SUB a 1\r\n").await;
    slow.settled().await;
    let mut sent = 0;
    while nats.stats().dropped < 10 {
        bus.publish_encoded("a", raw(format!("{sent:>60000}"))).await.unwrap();
        sent += 1;
        // The engine has delivered it, or counted it.
        until(|| nats.stats().delivered + nats.stats().dropped == sent).await;
    }
    let delivered = nats.stats().delivered;
    for number in 0..delivered {
        slow.expect("MSG a 1 60000", &format!("{number:>60000}")).await;
    }
    slow.settled().await;
    bus.publish_encoded("a", raw("next")).await.unwrap();
    slow.expect("MSG a 1 4", "next").await;
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn what_waits_for_clients_counts_in_the_memory_of_the_server() {
    let bus = Bus::new();
    let nats = Nats::new(bus.clone());
    let server = Server::new().plugin(nats.clone()).limit(Limit::MemoryBytesMax, 8 << 20);
    let running = server.listen("nats://127.0.0.1:0").start().await.unwrap();
    let mut slow = Client::connect(&running).await;
    slow.send("SUB a 1\r\n").await;
    slow.settled().await;
    let text = "x".repeat(100_000);
    let mut sent = 0;
    while bus.stats().subscriptions > 0 {
        bus.publish_encoded("a", raw(text.clone())).await.unwrap();
        sent += 1;
        // The engine has delivered it, or closed the client.
        until(|| nats.stats().delivered == sent || bus.stats().subscriptions == 0).await;
    }
    // Far below the bytes that make a slow consumer.
    assert!(sent < 200, "{sent} entries");
    assert_eq!(nats.stats().slow_consumers, 0);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn credentials_go_to_the_checks_of_the_server() {
    let bus = Bus::new();
    let nats = Nats::new(bus.clone());
    let tokens = Tokens::default().token("t0ken-of-alice", Caller::new("alice"));
    let basic = switchboard::auth::Basic::default().user("carol", "p4ss", Caller::new("carol"));
    let server = Server::new().auth(tokens).auth(basic).plugin(nats.clone());
    let running = server.listen("nats://127.0.0.1:0").start().await.unwrap();
    for (options, is_accepted) in [
        (r#"{"verbose":false,"auth_token":"t0ken-of-alice"}"#, true),
        (r#"{"verbose":false,"user":"carol","pass":"p4ss"}"#, true),
        (r#"{"verbose":false,"jwt":"t0ken-of-alice","sig":"x"}"#, true),
        (r#"{"verbose":false,"auth_token":"wrong"}"#, false),
        (r#"{"verbose":false,"user":"carol","pass":"wrong"}"#, false),
        (r#"{"verbose":false,"nkey":"UABC","sig":"x"}"#, false),
        (r#"{"verbose":false}"#, false),
    ] {
        let mut client = Client::new(&running).await;
        assert!(client.info.contains("\"auth_required\":true"), "{}", client.info);
        // The commands after it are not read before the verdict.
        client.send(&format!("CONNECT {options}\r\nPUB a 1\r\nx\r\nPING\r\n")).await;
        if is_accepted {
            assert_eq!(client.line().await, "PONG", "{options}");
        } else {
            assert_eq!(client.line().await, "-ERR 'Authorization Violation'", "{options}");
            assert_eq!(client.line().await, "", "{options}");
        }
    }
    assert_eq!((nats.stats().published, nats.stats().unauthorized), (3, 4));
    // A command before CONNECT, and no command at all.
    let mut early = Client::new(&running).await;
    early.send("PING\r\n").await;
    assert_eq!(early.line().await, "-ERR 'Authorization Violation'");
    let mut silent = Client::new(&running).await;
    assert_eq!(silent.line().await, "-ERR 'Authentication Timeout'");
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn callers_use_the_topics_of_their_rules() {
    let bus = Bus::new();
    let rules = TopicRules::new([
        TopicRule::topics("quotes/>").to_subscribe(),
        TopicRule::topics("quotes/>").roles(["market"]),
        TopicRule::topics("_INBOX/>").public(),
        TopicRule::topics(">").deny(),
    ]);
    let nats = Nats::new(bus.clone()).rules(rules.unwrap());
    let tokens = Tokens::default()
        .token("of-alice", Caller::new("alice"))
        .token("of-nyse", Caller::new("nyse").role("market"));
    let running =
        Server::new().auth(tokens).plugin(nats.clone()).listen("nats://127.0.0.1:0").start().await.unwrap();
    let mut alice = Client::with(&running, r#"{"verbose":false,"auth_token":"of-alice"}"#).await;
    let mut market = Client::with(&running, r#"{"verbose":false,"auth_token":"of-nyse"}"#).await;
    for subject in ["secret", "*.a", ">"] {
        alice.send(&format!("SUB {subject} 9\r\n")).await;
        let expected = format!("-ERR 'Permissions Violation for Subscription to \"{subject}\"'");
        assert_eq!(alice.line().await, expected);
    }
    alice.send("SUB quotes.* 1\r\n").await;
    alice.settled().await;
    for (message, denied) in [
        ("PUB quotes.a 1\r\nx", "quotes.a"),
        ("PUB secret 1\r\nx", "secret"),
        // The reply to a request is a publication, too.
        ("PUB _INBOX.a quotes.b 1\r\nx", "quotes.b"),
        ("PUB $SRV.PING quotes.c 0\r\n", "quotes.c"),
    ] {
        alice.send(&format!("{message}\r\n")).await;
        assert_eq!(alice.line().await, format!("-ERR 'Permissions Violation for Publish to \"{denied}\"'"));
    }
    market.publish("quotes.a", "12").await;
    alice.expect("MSG quotes.a 1 2", "12").await;
    assert_eq!((nats.stats().published, nats.stats().refused), (1, 4));
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_check_of_credentials_that_waits_holds_back_the_commands() {
    let (allow, allowed) = tokio::sync::watch::channel(false);
    let sessions = switchboard::auth::from_fn("session", move |credentials| {
        let Some(token) = credentials.authorization("Bearer").map(str::to_owned) else {
            return switchboard::auth::Checked::Absent;
        };
        let mut allowed = allowed.clone();
        switchboard::auth::Checked::Later(Box::pin(async move {
            allowed.wait_for(|allowed| *allowed).await.unwrap();
            match token.as_str() {
                "good" => Ok(std::sync::Arc::new(Caller::new("ali"))),
                _ => Err(switchboard::Status::unauthenticated("no such session")),
            }
        }))
    });
    let nats = Nats::new(Bus::new());
    let server = Server::new().auth(sessions).plugin(nats.clone());
    let running = server.listen("nats://127.0.0.1:0").start().await.unwrap();
    let (mut good, mut bad) = (Client::new(&running).await, Client::new(&running).await);
    for (client, token) in [(&mut good, "good"), (&mut bad, "bad")] {
        let connect = format!("CONNECT {{\"verbose\":false,\"auth_token\":\"{token}\"}}\r\n");
        client.send(&(connect + "SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n")).await;
    }
    // A third one shows that the engine has read both.
    let mut other = Client::new(&running).await;
    other.send("PING\r\n").await;
    assert_eq!(other.line().await, "-ERR 'Authorization Violation'");
    assert_eq!(nats.stats().published, 0);
    allow.send_replace(true);
    good.expect("MSG a 1 1", "x").await;
    assert_eq!(good.line().await, "PONG");
    assert_eq!(bad.line().await, "-ERR 'Authorization Violation'");
    assert_eq!((nats.stats().published, nats.stats().unauthorized), (1, 1));
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_check_of_credentials_ends_with_its_client() {
    /// Sends when the check is dropped.
    struct Ended(tokio::sync::mpsc::UnboundedSender<&'static str>);
    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.send("ended");
        }
    }
    let (steps, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let endless = switchboard::auth::from_fn("endless", move |credentials| {
        if credentials.authorization("Bearer").is_none() {
            return switchboard::auth::Checked::Absent;
        }
        let ended = Ended(steps.clone());
        switchboard::auth::Checked::Later(Box::pin(async move {
            let _ = ended.0.send("begun");
            std::future::pending::<()>().await;
            Err(switchboard::Status::unauthenticated("not reached"))
        }))
    });
    let server = Server::new().auth(endless).plugin(Nats::new(Bus::new()));
    let running = server.listen("nats://127.0.0.1:0").start().await.unwrap();
    let mut client = Client::new(&running).await;
    client.send("CONNECT {\"verbose\":false,\"auth_token\":\"x\"}\r\n").await;
    assert_eq!(soon(seen.recv()).await, Some("begun"));
    drop(client);
    assert_eq!(soon(seen.recv()).await, Some("ended"), "the check outlives its client");
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn clients_are_anonymous_by_option() {
    let nats = Nats::new(Bus::new()).anonymous();
    let tokens = Tokens::default().token("t0ken-of-alice", Caller::new("alice"));
    let server = Server::new().auth(tokens).plugin(nats.clone()).listen("nats://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let mut client = Client::connect(&running).await;
    assert!(!client.info.contains("auth_required"), "{}", client.info);
    client.publish("a", "x").await;
    client.settled().await;
    assert_eq!(nats.stats().published, 1);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn a_server_that_stops_has_its_clients_move() {
    let bus = Bus::new();
    let mut options = Options::default();
    options.drain_notice = Duration::from_millis(300);
    let running = start(&Nats::new(bus.clone()).options(options)).await;
    let mut client = Client::connect(&running).await;
    client.send("SUB a 1\r\n").await;
    client.settled().await;
    // The first version of the protocol has one INFO.
    let mut old = Client::with(&running, r#"{"verbose":false,"protocol":0}"#).await;
    let stop = tokio::spawn(running.stop(StopOptions::new()));
    let info = client.line().await;
    assert!(info.starts_with("INFO {") && info.contains("\"ldm\":true"), "{info}");
    // Until the end of the notice it is served.
    bus.publish_encoded("a", raw("x")).await.unwrap();
    client.expect("MSG a 1 1", "x").await;
    assert_eq!((client.line().await, old.line().await), (String::new(), String::new()));
    soon(stop).await.unwrap();
}

#[tokio::test]
async fn a_silent_client_gets_pings_and_is_closed() {
    let running = start(&Nats::new(Bus::new()).ping_interval(Duration::from_secs(1))).await;
    let mut client = Client::connect(&running).await;
    assert_eq!(client.line().await, "PING");
    client.send("PONG\r\n").await;
    for line in ["PING", "PING", "-ERR 'Stale Connection'", ""] {
        assert_eq!(client.line().await, line);
    }
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn the_listener_has_the_wire_alone() {
    let nats = Nats::new(Bus::new());
    let error = Server::new().plugin(nats.clone()).listen("nats://127.0.0.1:0?wires=native").start().await;
    let text = error.err().unwrap().to_string();
    assert!(text.contains("nats:// has the wire nats alone"), "{text}");
    // The same listener in its other form, beside one for all other wires.
    let server =
        Server::new().plugin(nats).listen("tcp://127.0.0.1:0").listen("tcp://127.0.0.1:0?wires=nats");
    let running = server.start().await.unwrap();
    let mut client = Client::with(&running, QUIET).await;
    client.settled().await;
    running.stop(StopOptions::new()).await;
}
