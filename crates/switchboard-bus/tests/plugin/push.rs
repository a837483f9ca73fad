//! Topics for clients that receive pushes: `Pusher::forward`.

use crate::support::soon;
use std::sync::{Arc, Mutex};
use switchboard::{Channel, Code, Codec, Cx, Limit, Pushes, Result, Server, Status};
use switchboard_message::{Bus, Publication, TopicOptions};
use tokio::task::JoinHandle;

#[switchboard::service(name = "test.Feed")]
trait Feed {
    async fn subscribe(&self, topics: String, cx: &Cx) -> Result<()>;
}

#[derive(Clone)]
struct Topics {
    bus: Bus,
    tasks: Arc<Mutex<Vec<JoinHandle<Result<()>>>>>,
}

impl Feed for Topics {
    async fn subscribe(&self, topics: String, cx: &Cx) -> Result<()> {
        let (pusher, topics) = (cx.pusher()?, self.bus.subscribe_encoded(topics).await?);
        self.tasks.lock().unwrap().push(tokio::spawn(async move { pusher.forward(topics).await }));
        Ok(())
    }
}

impl Topics {
    fn new(options: TopicOptions) -> Topics {
        let bus = Bus::builder().topics(">", options).unwrap().build();
        Topics { bus, tasks: Arc::default() }
    }

    async fn ended(&self) -> Status {
        let task = self.tasks.lock().unwrap().remove(0);
        soon(task).await.unwrap().unwrap_err()
    }

    async fn publish(&self, topic: &str, payload: impl Into<bytes::Bytes>) {
        self.bus.publish_encoded(topic, Publication::new(Codec::Json, payload)).await.unwrap();
    }
}

const WIRES: [&str; 3] = ["wire=rpcx", "wire=rpcx&network=http", "wire=erpc&framing=raw"];

#[tokio::test]
async fn pushes_have_the_topic_as_their_path() {
    for wire in WIRES {
        let topics = Topics::new(TopicOptions::new());
        let server = Server::new().add(FeedServer::new(topics.clone())).listen("tcp://127.0.0.1:0");
        let (running, pushes) = (server.start().await.unwrap(), Pushes::new());
        let url = format!("{}?{wire}", running.url());
        let client = FeedClient::new(Channel::builder(&url).pushes(&pushes).connect().await.unwrap());
        for pattern in ["quotes/*", "news/sport"] {
            client.subscribe(pattern.to_owned()).await.unwrap();
        }
        for number in 1..=100 {
            topics.publish("quotes/acme", number.to_string()).await;
            let push = soon(pushes.next()).await;
            assert_eq!(
                (&*push.path, &*push.message),
                ("quotes/acme", number.to_string().as_bytes()),
                "{wire}"
            );
        }
        topics.publish("news/sport", "\"goal\"").await;
        assert_eq!(soon(pushes.next()).await.path, "news/sport");
        drop(client);
        for _ in 0..2 {
            assert_eq!(topics.ended().await.code(), Code::Unavailable, "{wire}");
        }
        assert_eq!(topics.bus.stats().subscriptions, 0);
    }
}

#[tokio::test]
async fn a_slow_peer_has_a_cursor_instead_of_a_queue() {
    let topics = Topics::new(TopicOptions::new().backlog(2_000).backlog_bytes(1 << 30));
    let server = Server::new().add(FeedServer::new(topics.clone())).limit(Limit::OutboxBytesMax, 1 << 20);
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let mut peer = slow::Peer::subscribe(&running).await;
    for number in 1..=1_000_u32 {
        let mut payload = vec![b'1'; 32 << 10];
        payload[..4].copy_from_slice(format!("{number:04}").as_bytes());
        topics.publish("t", payload).await;
        tokio::task::yield_now().await;
    }
    let held = running.stats().memory.held;
    assert!(held < 4 << 20, "{held} bytes for the peer");
    for number in 1..=1_000 {
        assert_eq!(soon(peer.next()).await, format!("{number:04}"));
    }
    assert_eq!(running.stats().methods[0].wires[0].in_flight, 0);
}

#[tokio::test]
async fn missing_entries_end_it() {
    let topics = Topics::new(TopicOptions::new().backlog(4));
    let server = Server::new().add(FeedServer::new(topics.clone())).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let mut peer = slow::Peer::subscribe(&running).await;
    for _ in 0..2_000 {
        topics.publish("t", vec![b'1'; 32 << 10]).await;
        tokio::task::yield_now().await;
    }
    // A peer that reads nothing has no room, and its cursor stays where it is.
    assert!(!topics.tasks.lock().unwrap()[0].is_finished());
    let reader = tokio::spawn(async move {
        loop {
            peer.next().await;
        }
    });
    let status = topics.ended().await;
    reader.abort();
    assert_eq!(status.code(), Code::DataLoss, "{status}");
    assert!(status.message().contains("of topic \"t\" are missing: lagged"), "{status}");
}

/// A client of rpcx that reads when the test says so.
mod slow {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    pub(super) struct Peer(TcpStream);

    impl Peer {
        /// Calls `Feed.subscribe` for the topic `t`.
        pub(super) async fn subscribe(running: &switchboard::Running) -> Peer {
            let url = running.url();
            let mut io = TcpStream::connect(url.strip_prefix("tcp://").unwrap()).await.unwrap();
            // Magic, version, request, JSON, number; then texts with lengths.
            let mut message = vec![8, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 1];
            let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes()[..], text].concat();
            let body = [text(b"test.Feed"), text(b"Subscribe"), text(b""), text(br#"["t"]"#)].concat();
            message.extend(text(&body));
            io.write_all(&message).await.unwrap();
            let mut peer = Peer(io);
            let (_, _, status) = peer.message().await;
            assert_eq!(status, 0);
            peer
        }

        /// Returns path, payload and status of the next message.
        async fn message(&mut self) -> (String, Vec<u8>, u8) {
            let mut head = [0; 16];
            self.0.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
            let mut body = vec![0; length as usize];
            self.0.read_exact(&mut body).await.unwrap();
            let mut rest = &body[..];
            let mut text = || {
                let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
                let text = &rest[4..4 + length];
                rest = &rest[4 + length..];
                text
            };
            let (path, method, _, payload) = (text(), text(), text(), text());
            let path = format!("{}/{}", String::from_utf8_lossy(path), String::from_utf8_lossy(method));
            (path, payload.to_vec(), head[2] & 3)
        }

        /// Returns the first bytes of the next push.
        pub(super) async fn next(&mut self) -> String {
            let (path, payload, _) = self.message().await;
            assert!(path.starts_with('t'), "{path}");
            String::from_utf8_lossy(&payload[..4]).into_owned()
        }
    }
}
