//! Calls of methods, and credentials.

use crate::support::{Client, array, confirmation, soon};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use switchboard::{Caller, Cx, Limit, Result, Running, Server, Status, StopOptions, auth::Tokens};
use switchboard_adapter::Redis;
use switchboard_message::Bus;
use tokio::sync::Semaphore;

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

#[tokio::test]
async fn calls_end_before_a_server_that_stops() {
    let clerk = Clerk::new();
    let mut options = switchboard_fanout::Options::default();
    options.drain_notice = std::time::Duration::ZERO;
    let redis = Redis::new(Bus::new()).options(options);
    let server = Server::new().add(DeskServer::new(clerk.clone())).plugin(redis);
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let (mut idle, mut client) = (Client::connect(&running).await, Client::connect(&running).await);
    idle.ask("PING", "+PONG\r\n").await;
    let name = "CALL test.v1.Desk/";
    client
        .send(&[&format!("{name}Wait {{\"text\":\"a\"}}"), &format!("{name}Echo {{\"text\":\"late\"}}")])
        .await;
    while clerk.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let stopping = tokio::spawn(running.stop(StopOptions::new()));
    assert_eq!(idle.rest().await, "");
    clerk.doors.add_permits(1);
    client.expect("$3\r\n\"a\"\r\n").await;
    assert!(soon(stopping).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_call_ends_with_the_time_of_a_server_that_stops() {
    let clerk = Clerk::new();
    let server = Server::new().add(DeskServer::new(clerk.clone())).plugin(Redis::new(Bus::new()));
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let mut client = Client::connect(&running).await;
    client.send(&["CALL test.v1.Desk/Wait {\"text\":\"a\"}"]).await;
    while clerk.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // Long enough that the call does not end because its connection is closed.
    let options =
        StopOptions::new().drain(std::time::Duration::ZERO).close(std::time::Duration::from_secs(60));
    let stopping = tokio::spawn(running.stop(options));
    client.expect("-UNAVAILABLE ").await;
    soon(stopping).await.unwrap();
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
