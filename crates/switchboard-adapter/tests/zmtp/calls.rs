//! Peers that call services.

use super::peer::{Peer, closed, soon};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use switchboard::{
    Call, Caller, Kind, Limit, MethodInfo, Reply, Result, Running, Server, Service, ServiceInfo, Status,
    StopOptions, auth::Basic,
};
use switchboard_adapter::{Zmtp, ZmtpRouterOptions};
use switchboard_message::Bus;
use switchboard_wire::zmtp::{Settings, SocketType};
use tokio::sync::Notify;

static DESK_INFO: ServiceInfo = ServiceInfo {
    name: "test.Desk",
    methods: &[
        MethodInfo::new("Echo", Kind::Unary),
        MethodInfo::new("Fail", Kind::Unary),
        MethodInfo::new("Hang", Kind::Unary),
        MethodInfo::new("Large", Kind::Unary),
        MethodInfo::new("Name", Kind::Unary),
        MethodInfo::new("Wait", Kind::Unary),
    ],
    descriptor: &[],
};

/// Bytes of a response of `Large`.
const LARGE: usize = 200 << 10;

#[derive(Clone, Default)]
pub(crate) struct Desk {
    hanging: Arc<AtomicUsize>,
    changed: Arc<Notify>,
    /// Ends a `Wait`.
    released: Arc<Notify>,
}

/// A handler that waits; counted until it is dropped.
struct Hanging(Desk);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.hanging.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

impl Desk {
    async fn until_hanging(&self, count: usize) {
        soon(async {
            while self.hanging.load(Ordering::SeqCst) != count {
                self.changed.notified().await;
            }
        })
        .await;
    }
}

impl Service for Desk {
    fn info(&self) -> &'static ServiceInfo {
        &DESK_INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let method = call.method();
        let (message, cx) = call.into_one()?;
        match method {
            0 => {
                if let Some(value) = cx.metadata().value("x-echo") {
                    cx.reply_metadata("x-echo", value.clone())?;
                }
                Ok(Reply::one(message, cx))
            }
            1 => Err(Status::not_found("no such thing")),
            2 => {
                self.hanging.fetch_add(1, Ordering::SeqCst);
                self.changed.notify_one();
                let _hanging = Hanging(self.clone());
                std::future::pending().await
            }
            3 => Ok(Reply::one(vec![b'x'; LARGE], cx)),
            5 => {
                self.hanging.fetch_add(1, Ordering::SeqCst);
                self.changed.notify_one();
                self.released.notified().await;
                Ok(Reply::one(message, cx))
            }
            _ => {
                let name = cx.caller().map_or("-", |caller| &caller.name).to_owned();
                Ok(Reply::one(name.into_bytes(), cx))
            }
        }
    }
}

fn zmtp() -> Zmtp {
    Zmtp::new(Bus::new()).services([SocketType::Req, SocketType::Dealer]).default_method("test.Desk/Echo")
}

async fn start(server: Server) -> Running {
    server.listen("tcp://127.0.0.1:0").start().await.unwrap()
}

impl Peer {
    async fn ask(&mut self, frames: &[&[u8]]) -> Vec<String> {
        self.send(frames).await;
        let reply = self.message().await.expect("a response");
        reply.into_iter().map(|frame| String::from_utf8(frame).unwrap()).collect()
    }
}

#[tokio::test]
async fn requests_are_calls_of_services() {
    let running = start(Server::new().add(Desk::default()).plugin(zmtp())).await;
    let mut peer = Peer::connect(&running, SocketType::Req).await;
    assert_eq!(peer.ask(&[b"", b"test.Desk/Echo", b"{}"]).await, ["", "OK", "{}"]);
    assert_eq!(peer.ask(&[b"", b"test.Desk/Echo", b"x-echo: 1", b""]).await, ["", "OK", "", "x-echo: 1\n"]);
    assert_eq!(peer.ask(&[b"", b"{}"]).await, ["", "{}"]);
    assert_eq!(peer.ask(&[b"", b"test.Desk/Fail", b"0"]).await, ["", "NOT_FOUND", "no such thing"]);
    let late = peer.ask(&[b"", b"test.Desk/Hang", b"timeout-ms: 10", b"0"]).await;
    assert_eq!(late, ["", "DEADLINE_EXCEEDED", "the deadline of 10 ms has passed on the server"]);
    let unknown = peer.ask(&[b"", b"test.Desk/Other", b"0"]).await;
    assert_eq!(unknown[1], "UNIMPLEMENTED");
    assert!(unknown[2].contains("test.Desk has Echo, Fail"), "{unknown:?}");
    // A DEALER with many requests, each with its number in the envelope.
    let mut dealer = Peer::connect(&running, SocketType::Dealer).await;
    for at in 0..200_u8 {
        dealer.send(&[&[at], b"", b"test.Desk/Echo", &[at]]).await;
    }
    for at in 0..200_u8 {
        let reply = dealer.message().await.unwrap();
        assert_eq!(reply, [vec![at], Vec::new(), b"OK".to_vec(), vec![at]]);
    }
    let stats = running.stats();
    let echo = stats.methods.iter().find(|stats| stats.name == "test.Desk/Echo").unwrap();
    assert_eq!(echo.wires.iter().find(|stats| stats.wire == "zmtp").unwrap().ended[0], 203);
    running.stop(StopOptions::new()).await;
}

#[tokio::test]
async fn calls_carry_the_credentials_of_the_login() {
    let basic = Basic::default().user("alice", "secret", Caller::new("alice"));
    let basic = basic.user("bob", "other", Caller::new("bob"));
    let zmtp = zmtp().plain();
    let running = start(Server::new().add(Desk::default()).auth(basic).plugin(zmtp.clone())).await;
    let mut peer = Peer::log_in_as(&running, SocketType::Req, "alice", "secret").await.unwrap();
    assert_eq!(peer.ask(&[b"", b"test.Desk/Name", b""]).await, ["", "OK", "alice"]);
    // Of "bob:other".
    let own = b"authorization: Basic Ym9iOm90aGVy";
    assert_eq!(peer.ask(&[b"", b"test.Desk/Name", own, b""]).await, ["", "OK", "bob"]);
    let forged = b"authorization: Basic AAAA";
    assert_eq!(peer.ask(&[b"", b"test.Desk/Name", forged, b""]).await[1], "UNAUTHENTICATED");
}

#[tokio::test]
async fn calls_in_flight_are_limited_and_end_with_their_peer() {
    let desk = Desk::default();
    let server = Server::new().add(desk.clone()).plugin(zmtp()).limit(Limit::CallsMax, 3);
    let running = start(server).await;
    let mut peer = Peer::connect(&running, SocketType::Dealer).await;
    for _ in 0..10 {
        peer.send(&[b"", b"test.Desk/Hang", b"timeout-ms: 60000", b""]).await;
    }
    desk.until_hanging(3).await;
    // Others are served meanwhile.
    let mut other = Peer::connect(&running, SocketType::Req).await;
    assert_eq!(other.ask(&[b"", b"1"]).await, ["", "1"]);
    assert_eq!(desk.hanging.load(Ordering::SeqCst), 3, "calls_max");
    assert_eq!(running.stats().calls_in_flight, 3);
    running.kill();
    desk.until_hanging(0).await;
}

#[tokio::test]
async fn responses_wait_for_a_peer_that_reads_slowly() {
    let zmtp = zmtp();
    let running = start(Server::new().add(Desk::default()).plugin(zmtp.clone())).await;
    let mut peer = Peer::connect(&running, SocketType::Dealer).await;
    // More than the outbox of a peer may have.
    for at in 0..60_u8 {
        peer.send(&[&[at], b"", b"test.Desk/Large", b""]).await;
    }
    for at in 0..60_u8 {
        let reply = peer.message().await.expect("a response");
        assert_eq!((reply[0][0], reply[3].len()), (at, LARGE));
    }
    assert_eq!(closed(&zmtp, "lagged"), 0);
    assert_eq!(peer.ask(&[b"", b"1"]).await, ["", "1"]);
}

#[tokio::test]
async fn a_type_of_peers_has_one_local_socket() {
    let (both, _router) = zmtp().router([SocketType::Dealer], ZmtpRouterOptions::default());
    let server = Server::new().plugin(both).listen("tcp://127.0.0.1:0");
    let text = server.start().await.err().unwrap().to_string();
    let expected = "DEALER peers are mapped to the services of the server (Zmtp::services) and to ROUTER 0 of the \
                    application (Zmtp::router)";
    assert!(text.contains(expected), "{text}");

    // A type that is not mapped, or refused, gets an ERROR.
    let zmtp = zmtp().without([SocketType::Pub]);
    let running = start(Server::new().add(Desk::default()).plugin(zmtp.clone())).await;
    for kind in [SocketType::Pub, SocketType::Push, SocketType::Router, SocketType::Pair] {
        assert!(Peer::open(&running, Settings::new(kind)).await.is_none(), "{kind}");
    }
    assert_eq!(closed(&zmtp, "socket_type"), 4);
    assert!(Peer::open(&running, Settings::new(SocketType::Xpub)).await.is_some());
}

#[tokio::test]
async fn a_request_that_follows_the_handshake_at_once_is_answered_after_it() {
    let running = start(Server::new().add(Desk::default()).plugin(zmtp())).await;
    let address = running.url().replace("tcp://", "");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut bytes = b"\xFF\0\0\0\0\0\0\0\x01\x7F\x03\x01NULL".to_vec();
    bytes.resize(64, 0);
    bytes.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ");
    // A request of too many frames, whose error needs no handler.
    bytes.extend_from_slice(b"\x01\0\x01\x01m\x01\x01h\x01\x01x\0\x01y");
    tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes).await.unwrap();
    let mut reply = vec![0; 64 + 60];
    soon(tokio::io::AsyncReadExt::read_exact(&mut stream, &mut reply)).await.unwrap();
    let text = reply[64..].escape_ascii().to_string();
    assert!(text.starts_with("\\x04") && text.contains("READY"), "{text}");
    assert!(text.contains("INVALID"), "{text}");
}

#[tokio::test]
async fn a_long_return_path_ends_the_connection() {
    let zmtp = zmtp();
    let running = start(Server::new().add(Desk::default()).plugin(zmtp.clone())).await;
    let mut peer = Peer::connect(&running, SocketType::Dealer).await;
    let long = vec![b'x'; 64 << 10];
    peer.send(&[&long, b"", b"test.Desk/Echo", b"1"]).await;
    assert_eq!(peer.message().await.unwrap()[3], b"1");
    peer.send(&[&long, b"y", b"", b"test.Desk/Echo", b"1"]).await;
    assert!(peer.message().await.is_none());
    assert_eq!(closed(&zmtp, "envelope"), 1);
}

#[tokio::test]
async fn calls_end_before_a_server_that_stops() {
    let desk = Desk::default();
    let mut options = switchboard_fanout::Options::default();
    options.drain_notice = std::time::Duration::ZERO;
    let running = start(Server::new().add(desk.clone()).plugin(zmtp().options(options))).await;
    let mut idle = Peer::connect(&running, SocketType::Req).await;
    let mut peer = Peer::connect(&running, SocketType::Dealer).await;
    peer.send(&[b"", b"test.Desk/Wait", b"1"]).await;
    desk.until_hanging(1).await;
    let stopping = tokio::spawn(running.stop(StopOptions::new()));
    assert!(idle.event().await.is_none());
    let refused = peer.ask(&[b"", b"test.Desk/Echo", b"2"]).await;
    assert_eq!(refused[1], "UNAVAILABLE", "{refused:?}");
    desk.released.notify_one();
    assert_eq!(peer.message().await.unwrap(), [b"".to_vec(), b"OK".to_vec(), b"1".to_vec()]);
    assert!(peer.event().await.is_none());
    drop((idle, peer));
    assert!(soon(stopping).await.unwrap().is_clean());
}
