//! Clients of Redis on a server: what they may do, byte by byte, and what ends with them. Real clients are in
//! `interop/redis`.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use switchboard::{Caller, Codec, Cx, Limit, Result, Running, Server, Status, StopOptions, auth::Tokens};
use switchboard_adapter::Redis;
use switchboard_message::{Bus, Delivery, Pattern, Publication, SlowReader, TopicOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
    time::timeout,
};

/// Methods that clients call.
#[switchboard::service(name = "test.v1.Desk")]
trait Desk {
    /// Returns the text and the name of the caller.
    async fn echo(&self, text: String) -> Result<String>;
    /// Waits until the test lets it go.
    async fn wait(&self, text: String) -> Result<String>;
}

#[derive(Clone)]
struct Clerk {
    doors: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Clerk {
    fn new() -> Clerk {
        Clerk { doors: Arc::new(Semaphore::new(0)), waiting: Arc::default() }
    }
}

/// Counts a call that waits, also one that is cancelled.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Desk for Clerk {
    async fn echo(&self, text: String) -> Result<String> {
        match text.as_str() {
            "fail" => Err(Status::failed_precondition("not today")),
            _ => Ok(text),
        }
    }

    async fn wait(&self, text: String) -> Result<String> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self.waiting.clone());
        self.doors.acquire().await.map_err(|_| Status::internal("closed"))?.forget();
        Ok(text)
    }
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), work).await.expect("in time")
}

/// A connection, of which the test sees every byte.
struct Client(TcpStream);

impl Client {
    async fn connect(running: &Running) -> Client {
        let address = running.url().replace("tcp://", "").parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // What the kernel holds for it is part of what the server has written.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        Client(socket.connect(address).await.unwrap())
    }

    async fn write(&mut self, bytes: &[u8]) {
        soon(self.0.write_all(bytes)).await.unwrap();
    }

    /// Sends commands, each a list of words.
    async fn send(&mut self, commands: &[&str]) {
        let bytes: String = commands.iter().map(|command| array(&words(command))).collect();
        self.write(bytes.as_bytes()).await;
    }

    /// Reads exactly these bytes.
    async fn expect(&mut self, bytes: &str) {
        let mut read = vec![0; bytes.len()];
        let mut at = 0;
        while at < read.len() {
            let n = soon(self.0.read(&mut read[at..])).await.unwrap();
            at += n;
            let text = String::from_utf8_lossy(&read[..at]);
            assert!(n > 0 && bytes.starts_with(&*text), "expected {bytes:?}, not {text:?}");
        }
    }

    async fn ask(&mut self, command: &str, reply: &str) {
        self.send(&[command]).await;
        self.expect(reply).await;
    }

    /// Reads up to these bytes.
    async fn until(&mut self, end: &str) {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            read.push(soon(self.0.read_u8()).await.unwrap());
        }
    }

    /// Reads to the end of the connection.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // The server may have closed the connection with bytes of the client unread.
        let _ = soon(self.0.read_to_end(&mut rest)).await;
        String::from_utf8_lossy(&rest).into_owned()
    }
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').filter(|word| !word.is_empty()).collect()
}

fn array(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect::<Vec<_>>();
    format!("*{}\r\n{}", words.len(), words.concat())
}

/// A confirmation, or a push of RESP3.
fn confirmation(kind: char, word: &str, name: &str, count: u32) -> String {
    format!("{kind}3\r\n${}\r\n{word}\r\n${}\r\n{name}\r\n:{count}\r\n", word.len(), name.len())
}

fn push(words: &[&str]) -> String {
    array(words).replacen('*', ">", 1)
}

async fn start(redis: &Redis) -> Running {
    Server::new().plugin(redis.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

fn raw(text: &'static str) -> Publication {
    Publication::new(Codec::Raw, text)
}

#[tokio::test]
async fn subscribers_get_messages_by_channel_and_by_pattern() {
    let redis = Redis::new(Bus::new());
    let running = start(&redis).await;
    let (mut old, mut new) = (Client::connect(&running).await, Client::connect(&running).await);
    let mut publisher = Client::connect(&running).await;
    publisher.ask("PUBLISH news unread", ":0\r\n").await;
    old.send(&["SUBSCRIBE news other", "PSUBSCRIBE n[a-f]ws*"]).await;
    old.expect(&confirmation('*', "subscribe", "news", 1)).await;
    old.expect(&confirmation('*', "subscribe", "other", 2)).await;
    old.expect(&confirmation('*', "psubscribe", "n[a-f]ws*", 3)).await;
    // Subscribers with RESP2 have few commands.
    old.ask("PING hi", &array(&["pong", "hi"])).await;
    old.ask("ECHO hi", "-ERR Can't execute 'echo': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n").await;
    new.send(&["HELLO 3"]).await;
    new.expect("%7\r\n$6\r\nserver\r\n$11\r\nswitchboard\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:").await;
    new.0.read_u8().await.unwrap();
    new.expect(
        "\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
    )
    .await;
    new.ask("SSUBSCRIBE news", &confirmation('>', "ssubscribe", "news", 1)).await;
    new.ask("PSUBSCRIBE *", &confirmation('>', "psubscribe", "*", 1)).await;
    publisher.ask("PUBLISH news hello", ":4\r\n").await;
    publisher.ask("PUBSUB CHANNELS n*", &array(&["news"])).await;
    publisher
        .ask("PUBSUB NUMSUB news other x", "*6\r\n$4\r\nnews\r\n:2\r\n$5\r\nother\r\n:1\r\n$1\r\nx\r\n:0\r\n")
        .await;
    publisher.ask("PUBSUB NUMPAT", ":2\r\n").await;
    old.expect(&array(&["message", "news", "hello"])).await;
    old.expect(&array(&["pmessage", "n[a-f]ws*", "news", "hello"])).await;
    new.expect(&push(&["smessage", "news", "hello"])).await;
    new.expect(&push(&["pmessage", "*", "news", "hello"])).await;
    // A client with RESP3 may use any command, also to publish to itself: the reply comes first.
    new.ask("PUBLISH me own", ":1\r\n").await;
    new.expect(&push(&["pmessage", "*", "me", "own"])).await;
    old.send(&["UNSUBSCRIBE", "UNSUBSCRIBE x", "PUNSUBSCRIBE n[a-f]ws*", "PING", "UNSUBSCRIBE"]).await;
    old.expect(&confirmation('*', "unsubscribe", "news", 2)).await;
    old.expect(&confirmation('*', "unsubscribe", "other", 1)).await;
    old.expect(&confirmation('*', "unsubscribe", "x", 1)).await;
    old.expect(&confirmation('*', "punsubscribe", "n[a-f]ws*", 0)).await;
    old.expect("+PONG\r\n*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n").await;
    new.ask("RESET", "+RESET\r\n").await;
    publisher.ask("PUBLISH news again", ":0\r\n").await;
    publisher.ask("QUIT", "+OK\r\n").await;
    assert_eq!(publisher.rest().await, "");
    // RESP3 with another version again: messages follow it.
    new.send(&["HELLO 3", "SUBSCRIBE a"]).await;
    old.ask("PING", "+PONG\r\n").await;
    assert_eq!(redis.stats().published, 4);
}

#[tokio::test]
async fn topics_are_shared_with_the_bus() {
    let bus = Bus::new();
    let mut all = bus.subscribe_encoded(Pattern::prefix("")).await.unwrap();
    let running = start(&Redis::new(bus.clone())).await;
    let mut client = Client::connect(&running).await;
    client.ask("SUBSCRIBE quotes/acme", &confirmation('*', "subscribe", "quotes/acme", 1)).await;
    bus.publish_encoded("quotes/acme", raw("12.5")).await.unwrap();
    bus.publish_encoded("quotes/other", raw("1")).await.unwrap();
    client.expect(&array(&["message", "quotes/acme", "12.5"])).await;
    let mut publisher = Client::connect(&running).await;
    publisher.ask("PUBLISH orders one", ":0\r\n").await;
    let mut names = Vec::new();
    while names.len() < 3 {
        let Some(Delivery::Entry(entry)) = soon(all.next()).await.unwrap() else { panic!("no entry") };
        names.push(format!("{}={}", entry.topic(), String::from_utf8_lossy(&entry[..])));
    }
    names.sort();
    assert_eq!(names, ["orders=one", "quotes/acme=12.5", "quotes/other=1"]);
    // An entry larger than what buffers copy.
    let large = "x".repeat(100_000);
    publisher.send(&[&format!("PUBLISH quotes/acme {large}")]).await;
    client.expect(&array(&["message", "quotes/acme", &large])).await;
}

/// More publications than a topic keeps, in one piece: subscribers of any engine miss none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_pipeline_of_publications_reaches_every_subscriber() {
    const COUNT: usize = 8_000;
    let redis = Redis::new(Bus::new());
    let running = start(&redis).await;
    let (mut one, mut other) = (Client::connect(&running).await, Client::connect(&running).await);
    one.ask("SUBSCRIBE t", &confirmation('*', "subscribe", "t", 1)).await;
    other.ask("PSUBSCRIBE t*", &confirmation('*', "psubscribe", "t*", 1)).await;
    let mut publisher = Client::connect(&running).await;
    let commands: String = (0..COUNT).map(|at| array(&["PUBLISH", "t", &at.to_string()])).collect();
    let (read, mut write) = publisher.0.split();
    let mut replies = tokio::io::BufReader::new(read);
    let publish = async { write.write_all(commands.as_bytes()).await.unwrap() };
    let confirm = async {
        let mut reply = [0; 4];
        for _ in 0..COUNT {
            replies.read_exact(&mut reply).await.unwrap();
            assert_eq!(&reply, b":2\r\n");
        }
    };
    let by_channel = async {
        for at in 0..COUNT {
            one.expect(&array(&["message", "t", &at.to_string()])).await;
        }
    };
    let by_pattern = async {
        for at in 0..COUNT {
            other.expect(&array(&["pmessage", "t*", "t", &at.to_string()])).await;
        }
    };
    soon(async { tokio::join!(publish, confirm, by_channel, by_pattern) }).await;
    let stats = redis.stats();
    assert_eq!((stats.published, stats.missed, stats.lagged), (COUNT as u64, 0, 0));
}

/// Publications of a client keep their order at a subscriber of several channels, although the bus has none between
/// topics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publications_to_several_channels_arrive_in_order() {
    const COUNT: usize = 1000;
    let running = start(&Redis::new(Bus::new())).await;
    let mut subscriber = Client::connect(&running).await;
    subscriber.ask("PSUBSCRIBE c*", &confirmation('*', "psubscribe", "c*", 1)).await;
    let mut publisher = Client::connect(&running).await;
    let channel = |at: usize| format!("c{}", at * 7 % 31);
    let commands: String = (0..COUNT).map(|at| array(&["PUBLISH", &channel(at), &at.to_string()])).collect();
    let publish = async {
        publisher.write(commands.as_bytes()).await;
        publisher.expect(&":1\r\n".repeat(COUNT)).await;
    };
    let receive = async {
        for at in 0..COUNT {
            subscriber.expect(&array(&["pmessage", "c*", &channel(at), &at.to_string()])).await;
        }
    };
    tokio::join!(publish, receive);
}

/// A subscription receives no message whose publication was confirmed before it, and each one until its end.
#[tokio::test]
async fn a_subscription_begins_and_ends_between_two_publications() {
    let running = start(&Redis::new(Bus::new())).await;
    let mut other = Client::connect(&running).await;
    other.ask("PSUBSCRIBE *", &confirmation('*', "psubscribe", "*", 1)).await;
    let mut client = Client::connect(&running).await;
    client.send(&["HELLO 3"]).await;
    client.until("modules\r\n*0\r\n").await;
    for round in 0..50 {
        let name = format!("t{round}");
        client.send(&[&format!("PUBLISH {name} 1"), &format!("SUBSCRIBE {name} extra")]).await;
        client.expect(":1\r\n").await;
        client.expect(&confirmation('>', "subscribe", &name, 1)).await;
        client.expect(&confirmation('>', "subscribe", "extra", 2)).await;
        client.ask(&format!("PUBLISH {name} 2"), ":2\r\n").await;
        client.expect(&push(&["message", &name, "2"])).await;
        for text in ["1", "2"] {
            other.expect(&array(&["pmessage", "*", &name, text])).await;
        }
        // What was published before the end arrives before its confirmation.
        client.send(&[&format!("PUBLISH {name} 3"), &format!("UNSUBSCRIBE {name} extra")]).await;
        client.expect(":2\r\n").await;
        client.expect(&push(&["message", &name, "3"])).await;
        other.expect(&array(&["pmessage", "*", &name, "3"])).await;
        client.expect(&confirmation('>', "unsubscribe", &name, 1)).await;
        client.expect(&confirmation('>', "unsubscribe", "extra", 0)).await;
    }
}

#[tokio::test]
async fn replies_have_the_order_of_the_commands() {
    let clerk = Clerk::new();
    let redis = Redis::new(Bus::new());
    let server = Server::new().add(DeskServer::new(clerk.clone())).plugin(redis.clone());
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let mut client = Client::connect(&running).await;
    let many: Vec<String> = (0..1000).map(|at| format!("PING {at}")).collect();
    client.send(&many.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for at in 0..1000 {
        client.expect(&format!("${}\r\n{at}\r\n", at.to_string().len())).await;
    }
    let name = "CALL test.v1.Desk/";
    client.ask(&format!("{name}Echo {{\"text\":\"hi\"}}"), "$4\r\n\"hi\"\r\n").await;
    client.ask(&format!("{name}Echo {{\"text\":\"fail\"}}"), "-FAILED_PRECONDITION not today\r\n").await;
    client.send(&[&format!("{name}Wait {{\"text\":\"a\"}}"), "PING after", "SUBSCRIBE t", "PING"]).await;
    let mut other = Client::connect(&running).await;
    other.ask("PUBLISH t early", ":0\r\n").await;
    other.ask(&format!("{name}Nothing {{}}"), "-UNIMPLEMENTED unknown method test.v1.Desk/Nothing").await;
    clerk.doors.add_permits(1);
    client.expect("$3\r\n\"a\"\r\n$5\r\nafter\r\n").await;
    client.expect(&confirmation('*', "subscribe", "t", 1)).await;
    client.expect(&array(&["pong", ""])).await;
    // A call ends with its client.
    let mut caller = Client::connect(&running).await;
    caller.send(&[&format!("{name}Wait {{\"text\":\"b\"}}")]).await;
    while clerk.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(caller);
    soon(async {
        while clerk.waiting.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(redis.stats().calls, 5);
}

/// Returns the name of its caller.
#[switchboard::service(name = "test.v1.Who")]
trait Who {
    async fn name(&self, cx: &Cx) -> Result<String>;
}

struct Names;

impl Who for Names {
    async fn name(&self, cx: &Cx) -> Result<String> {
        Ok(cx.caller().map_or_else(String::new, |caller| caller.name.clone()))
    }
}

async fn start_with_auth(redis: &Redis) -> Running {
    let auth = Tokens::default().token("secret", Caller::new("ali"));
    let server = Server::new().add(WhoServer::new(Names)).plugin(redis.clone()).auth(auth);
    server.listen("tcp://127.0.0.1:0").start().await.unwrap()
}

#[tokio::test]
async fn credentials_are_checked_by_the_server() {
    let redis = Redis::new(Bus::new());
    let running = start_with_auth(&redis).await;
    let mut client = Client::connect(&running).await;
    client.ask("PUBLISH t x", "-NOAUTH Authentication required.\r\n").await;
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.ask("AUTH wrong", wrong).await;
    client.ask("AUTH ali secret", "+OK\r\n").await;
    client.ask("PUBLISH t x", ":0\r\n").await;
    client.ask("CALL test.v1.Who/Name {}", "$5\r\n\"ali\"\r\n").await;
    // A call may have credentials of its own.
    client.ask("CALL test.v1.Who/Name {} authorization Bearer-wrong", "-UNAUTHENTICATED ").await;
    let mut other = Client::connect(&running).await;
    other.send(&["HELLO 3 AUTH default secret SETNAME me", "CLIENT GETNAME"]).await;
    other.expect("%7\r\n").await;
    other.send(&["RESET", "CLIENT GETNAME", "QUIT"]).await;
    let rest = other.rest().await;
    assert!(rest.contains("$2\r\nme\r\n+RESET\r\n-NOAUTH Authentication required.\r\n+OK\r\n"), "{rest}");
    let mut guess = Client::connect(&running).await;
    guess.send(&["AUTH no"; 12]).await;
    assert_eq!(guess.rest().await, wrong.repeat(10));
    let stats = redis.stats();
    assert_eq!((stats.rejected_credentials, stats.protocol_errors), (11, 1));
}

#[tokio::test]
async fn a_client_has_little_time_for_its_credentials() {
    let auth = Tokens::default().token("secret", Caller::new("ali"));
    let server = Server::new().plugin(Redis::new(Bus::new())).auth(auth);
    let running =
        server.limit(Limit::HandshakeTimeout, 100).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let mut slow = Client::connect(&running).await;
    slow.ask("PING", "-NOAUTH Authentication required.\r\n").await;
    let mut fast = Client::connect(&running).await;
    fast.ask("AUTH secret", "+OK\r\n").await;
    assert_eq!(slow.rest().await, "");
    fast.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_is_closed_and_others_are_not() {
    let bus = Bus::new();
    let redis = Redis::new(bus.clone());
    let running = start(&redis).await;
    let (mut slow, mut fast) = (Client::connect(&running).await, Client::connect(&running).await);
    for client in [&mut slow, &mut fast] {
        client.ask("SUBSCRIBE t", &confirmation('*', "subscribe", "t", 1)).await;
    }
    // More than a buffer and the sockets have room for.
    let text = "x".repeat(64 << 10);
    let mut publisher = Client::connect(&running).await;
    let message = array(&["message", "t", &text]);
    for _ in 0..400 {
        publisher.send(&[&format!("PUBLISH t {text}")]).await;
        publisher.expect(":").await;
        publisher.0.read_exact(&mut [0; 3]).await.unwrap();
        fast.expect(&message).await;
    }
    // It is closed before it reads.
    assert_eq!((redis.stats().lagged, redis.stats().missed), (1, 0));
    let rest = slow.rest().await;
    assert!(rest.len() < 400 * message.len());
    publisher.ask("PUBSUB NUMSUB t", "*2\r\n$1\r\nt\r\n:1\r\n").await;
}

/// Replies of a client that sends and does not read are bounded, and all arrive when it reads.
#[tokio::test]
async fn replies_that_are_not_read_make_the_client_wait() {
    const COUNT: usize = 1000;
    let running = start(&Redis::new(Bus::new())).await;
    let mut subscriber = Client::connect(&running).await;
    let names: Vec<String> = (0..100).map(|at| format!("{}{at}", "n".repeat(200))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    subscriber.send(&[&format!("SUBSCRIBE {}", names.join(" "))]).await;
    for (at, name) in names.iter().enumerate() {
        subscriber.expect(&confirmation('*', "subscribe", name, at as u32 + 1)).await;
    }
    // Each reply has 20 KB: all together 20 MB.
    let mut client = Client::connect(&running).await;
    let commands = array(&["PUBSUB", "CHANNELS"]).repeat(COUNT);
    client.write(commands.as_bytes()).await;
    let mut other = Client::connect(&running).await;
    other.ask("PING", "+PONG\r\n").await;
    let expected: usize = array(&names).len() * COUNT;
    let mut read = 0;
    let mut buffer = vec![0; 64 << 10];
    while read < expected {
        let n = soon(client.0.read(&mut buffer)).await.unwrap();
        assert!(n > 0, "closed after {read} of {expected}");
        read += n;
    }
    client.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn bad_input_is_answered_and_closes_the_connection() {
    let redis = Redis::new(Bus::new());
    let running = start(&redis).await;
    let cases = [
        ("*-5\r\n", "invalid multibulk length \"-5\""),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
        (
            "*1025\r\n",
            "invalid multibulk length: request has 1025 arguments; the limit is 1024 (arguments_max)",
        ),
        ("*1\r\n$99999999\r\n", "invalid bulk length: argument 1 has 99999999 bytes; the limit is "),
        ("*1\r\n$3\r\nPING\r\n", "argument 1 does not end after 3 bytes, its length"),
        ("*1\r\n:1\r\n", "expected '$', got ':'"),
        ("*1\r\n$4\r\nPOST\r\n", "\"POST\" is of HTTP"),
        ("*1\r\n$5\r\nHost:\r\n", "\"Host:\" is of HTTP"),
        ("*1\r\n$4\r\nPING\r\nPING\r\n", "expected '*', got 'P'; inline commands are disabled"),
    ];
    for (bytes, error) in &cases {
        let mut client = Client::connect(&running).await;
        client.write(bytes.as_bytes()).await;
        let rest = client.rest().await;
        let rest = rest.trim_start_matches("+PONG\r\n");
        assert!(rest.starts_with(&format!("-ERR Protocol error: {error}")), "{bytes:?}: {rest:?}");
        assert!(rest.ends_with("\r\n"), "{rest:?}");
    }
    assert_eq!(redis.stats().protocol_errors, cases.len() as u64);
}

#[tokio::test]
async fn names_that_topics_cannot_have_are_refused() {
    let bus = Bus::new();
    let redis = Redis::new(bus);
    let running = start(&redis).await;
    let mut client = Client::connect(&running).await;
    let refused = "-INVALID_ARGUMENT topic name \"$own\" begins with $, which is reserved\r\n";
    client.ask("PUBLISH $own x", refused).await;
    client.ask("SUBSCRIBE $own", refused).await;
    client.ask("PUBLISH a/* x", "-INVALID_ARGUMENT topic name \"a/*\" has a wildcard as a level").await;
    let mut client = Client::connect(&running).await;
    client.write(b"*3\r\n$7\r\nPUBLISH\r\n$1\r\n\xff\r\n$1\r\nx\r\n").await;
    client.expect("-INVALID_ARGUMENT topic name \"\\xff\" is not UTF-8\r\n").await;
    // Patterns match any name.
    client.ask("PSUBSCRIBE $*", &confirmation('*', "psubscribe", "$*", 1)).await;
    assert_eq!(redis.stats().refused, 4);
}

#[tokio::test]
async fn inline_commands_are_served_where_they_are_enabled() {
    let running = start(&Redis::new(Bus::new()).inline()).await;
    let mut client = Client::connect(&running).await;
    client.write(b"ping\r\nPUBLISH t \"a b\"\r\nQUIT\r\n").await;
    assert_eq!(client.rest().await, "+PONG\r\n:0\r\n+OK\r\n");
    let mut client = Client::connect(&running).await;
    client.ask("PING", "+PONG\r\n").await;
    client.write(b"PING\r\n").await;
    client.expect("+PONG\r\n").await;
}

/// A client whose subscriptions change gets each message once, in order, in sets of any size.
#[tokio::test]
async fn changes_of_subscriptions_lose_no_message() {
    let running = start(&Redis::new(Bus::new())).await;
    let mut client = Client::connect(&running).await;
    client.ask("SUBSCRIBE t", &confirmation('*', "subscribe", "t", 1)).await;
    let mut publisher = Client::connect(&running).await;
    let mut number = 0;
    for at in 2..60 {
        for _ in 0..3 {
            publisher.ask(&format!("PUBLISH t {number}"), ":1\r\n").await;
            client.expect(&array(&["message", "t", &number.to_string()])).await;
            number += 1;
        }
        let name = format!("c{at}");
        client.ask(&format!("SUBSCRIBE {name}"), &confirmation('*', "subscribe", &name, at)).await;
    }
    for at in (2..60).rev() {
        let name = format!("c{at}");
        client.ask(&format!("UNSUBSCRIBE {name}"), &confirmation('*', "unsubscribe", &name, at - 1)).await;
        publisher.ask(&format!("PUBLISH {name} gone"), ":0\r\n").await;
        publisher.ask(&format!("PUBLISH t {number}"), ":1\r\n").await;
        client.expect(&array(&["message", "t", &number.to_string()])).await;
        number += 1;
    }
    client.ask("UNSUBSCRIBE t", &confirmation('*', "unsubscribe", "t", 0)).await;
    client.ask("PING", "+PONG\r\n").await;
}

/// A topic that makes its publishers wait makes clients wait for the reply.
#[tokio::test]
async fn a_full_topic_makes_its_publisher_wait() {
    let full = TopicOptions::new().backlog(1).slow_reader(SlowReader::Wait(Duration::from_secs(60)));
    let bus = Bus::builder().topics("jobs", full).unwrap().build();
    let mut reader = bus.subscribe_encoded("jobs").await.unwrap();
    let running = start(&Redis::new(bus)).await;
    let mut client = Client::connect(&running).await;
    client.send(&["PUBLISH jobs 1", "PUBLISH jobs 2", "PUBLISH jobs 3", "PING"]).await;
    for text in ["1", "2", "3"] {
        let Some(Delivery::Entry(job)) = soon(reader.next()).await.unwrap() else { panic!("no job") };
        assert_eq!(&job[..], text.as_bytes());
    }
    client.expect(":0\r\n:0\r\n:0\r\n+PONG\r\n").await;
}

#[tokio::test]
async fn a_server_that_stops_writes_what_was_published_and_closes() {
    let redis = Redis::new(Bus::new());
    let running = start(&redis).await;
    let (mut client, mut idle) = (Client::connect(&running).await, Client::connect(&running).await);
    client.ask("SUBSCRIBE t", &confirmation('*', "subscribe", "t", 1)).await;
    idle.ask("PUBLISH t last", ":1\r\n").await;
    let stopped = tokio::spawn(async move { running.stop(StopOptions::new()).await });
    assert_eq!(client.rest().await, array(&["message", "t", "last"]));
    assert_eq!(idle.rest().await, "");
    soon(stopped).await.unwrap();
}
