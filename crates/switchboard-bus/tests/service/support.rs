//! A server with a bus, and its callers.

use switchboard::{Codec, Receiver, Running, Server};
use switchboard_bus::{
    BusServer,
    v1::{
        BusClient, Entry, Publication, PublishRequest, SubscribeEvent, SubscribeRequest,
        subscribe_event::Event,
    },
};
use switchboard_message::Bus;

/// Options of channels: every wire that has streams of replies, with both codecs where it has both.
pub(crate) const WIRES: [&str; 9] = [
    "",
    "json",
    "?wire=grpc",
    "?wire=grpc&codec=json",
    "?wire=grpc-web",
    "?wire=connect",
    "?wire=connect&codec=json",
    "ws",
    "ws?wire=jsonrpc",
];

/// Starts a server with the service.
pub(crate) async fn serve(bus: &Bus) -> Running {
    Server::new().add(BusServer::new(bus.clone())).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

/// Connects with these options; `ws` first means a WebSocket, and `json` the native wire with JSON.
pub(crate) async fn connect(server: &Running, options: &str) -> BusClient {
    if options == "json" {
        return BusClient::connect(&server.url()).await.unwrap().with_codec(Codec::Json);
    }
    let url = match options.strip_prefix("ws") {
        Some(options) => server.url().replacen("tcp", "ws", 1) + options,
        None => server.url() + options,
    };
    BusClient::connect(&url).await.unwrap()
}

/// Publishes a payload with a key and a header.
pub(crate) fn publish(topic: &str, payload: &str) -> PublishRequest {
    PublishRequest { topic: topic.to_owned(), entry: publication(payload).into(), ..Default::default() }
}

pub(crate) fn publication(payload: &str) -> Publication {
    Publication { payload: payload.to_owned().into(), ..Default::default() }
}

/// Requests the entries of a topic from now on.
pub(crate) fn subscribe(topic: &str) -> SubscribeRequest {
    SubscribeRequest { topic: topic.to_owned(), ..Default::default() }
}

/// A subscription that has begun.
pub(crate) struct Events(Receiver<SubscribeEvent>);

impl Events {
    pub(crate) async fn begin(client: &BusClient, request: SubscribeRequest) -> Events {
        let mut events = Events(client.subscribe(request).await.unwrap());
        let first = events.event().await;
        assert!(matches!(first, Event::Started(_)), "{first:?}");
        events
    }

    pub(crate) async fn event(&mut self) -> Event {
        self.0.next().await.unwrap().expect("an event").event.expect("a known kind")
    }

    pub(crate) async fn entry(&mut self) -> Entry {
        match self.event().await {
            Event::Entry(entry) => *entry,
            event => panic!("no entry: {event:?}"),
        }
    }

    /// Receives this number of entries; returns their offsets and payloads.
    pub(crate) async fn entries(&mut self, count: usize) -> Vec<(u64, String)> {
        let mut entries = Vec::new();
        for _ in 0..count {
            let entry = self.entry().await;
            entries.push((entry.position.offset, String::from_utf8(entry.payload.to_vec()).unwrap()));
        }
        entries
    }

    /// Receives the error that ends the stream.
    pub(crate) async fn error(&mut self) -> switchboard::Status {
        loop {
            match self.0.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without an error"),
                Err(status) => return status,
            }
        }
    }
}
