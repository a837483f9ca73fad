//! A room of a push gateway: members of each protocol receive the messages that are pushed to it.

use super::{answers::Method, table::Row};
use crate::{
    push::Gateway,
    serving::{self, url},
};
use bytes::{Bytes, BytesMut};
use serde_json::Value;
use std::{
    num::NonZeroU16,
    sync::atomic::{AtomicU64, Ordering},
};
use switchboard::Server;
use switchboard_push::v1::{Publication, PublishRequest, PushClient, Target, target};
use switchboard_wire::{Input, Outbox, goim, mqtt};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::Mutex,
};

/// The message that is pushed.
const MESSAGE: &str = "goal";
/// The room, its name in goim, and its topic.
const ROOM: &str = "live/7";
const GOIM_ROOM: &str = "live://7";
const TOPIC: &str = "room/live/7";
/// Longest line of an event stream that is read.
const LINE_MAX: u64 = 64 << 10;

/// Starts a gateway of its own, has a member of each protocol join a room, and pushes to it.
///
/// # Errors
/// When the gateway cannot be started or a member cannot join.
pub(super) async fn rows() -> Result<Vec<Row>, String> {
    let server = Gateway::open().add_to(Server::new().listen("127.0.0.1:0")).await?;
    let gateway = serving::start(server).await?;
    let base = url(&gateway.addresses()[0]);
    let address = base.trim_start_matches("http://");
    let client = PushClient::connect(&gateway.url()).await.map_err(|status| status.to_string())?;
    let room = Room { client, published: AtomicU64::new(0) };
    let events = Mutex::new(Events::join(address).await?);
    let goim = Mutex::new(Goim::join(address).await?);
    let mqtt = Mutex::new(Mqtt::join(address).await?);
    let method = Method::Room;
    Ok(vec![
        Row::measure("room, server-sent events", method, async || room.pushed(&events).await).await,
        Row::measure("room, goim, TCP", method, async || room.pushed(&goim).await).await,
        Row::measure("room, MQTT, TCP", method, async || room.pushed(&mqtt).await).await,
    ])
}

struct Room {
    client: PushClient,
    published: AtomicU64,
}

impl Room {
    /// Pushes the message to all members, and returns what one of them receives for it.
    async fn pushed<M: Member>(&self, member: &Mutex<M>) -> Result<String, String> {
        let room = Target { target: Some(target::Target::Room(ROOM.to_owned())), ..Default::default() };
        let entry = Publication { payload: Bytes::from_static(MESSAGE.as_bytes()), ..Default::default() };
        let request = PublishRequest { targets: vec![room], entry: entry.into(), ..Default::default() };
        self.client.publish(request).await.map_err(|status| status.to_string())?;
        let published = self.published.fetch_add(1, Ordering::Relaxed) + 1;
        let mut member = member.lock().await;
        // The messages before are those of other rows.
        loop {
            let message = member.next().await?;
            if member.received() == published {
                return Ok(message);
            }
        }
    }
}

/// A device in the room.
trait Member {
    /// Returns the next message.
    async fn next(&mut self) -> Result<String, String>;

    /// Returns the number of messages so far.
    fn received(&self) -> u64;
}

/// A reader of server-sent events.
struct Events {
    stream: BufReader<TcpStream>,
    received: u64,
}

impl Events {
    async fn join(address: &str) -> Result<Events, String> {
        let mut stream = connect(address).await?;
        let request = format!(
            "GET /events?room={ROOM} HTTP/1.0\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut events = Events { stream: BufReader::new(stream), received: 0 };
        let status = events.line().await?;
        if !status.contains(" 200 ") {
            return Err(format!("GET /events: {}", status.trim_end()));
        }
        // The first id means that the device is in the room.
        while !events.line().await?.starts_with("id: ") {}
        Ok(events)
    }

    async fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = (&mut self.stream).take(LINE_MAX).read_line(&mut line).await;
        match read.map_err(|error| error.to_string())? {
            0 => Err(ended()),
            _ => Ok(line),
        }
    }
}

impl Member for Events {
    async fn next(&mut self) -> Result<String, String> {
        loop {
            let line = self.line().await?;
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let event: Value = serde_json::from_str(data).map_err(|error| error.to_string())?;
            if event["topic"] == TOPIC {
                self.received += 1;
                return Ok(event["data"].as_str().unwrap_or_default().to_owned());
            }
        }
    }

    fn received(&self) -> u64 {
        self.received
    }
}

/// A connection of bytes whose machine is elsewhere.
struct Link {
    stream: TcpStream,
    input: Input,
}

impl Link {
    async fn open(address: &str) -> Result<Link, String> {
        Ok(Link { stream: connect(address).await?, input: Input::new(BytesMut::new()) })
    }

    async fn send(&mut self, out: &mut Outbox) -> Result<(), String> {
        self.stream.write_all(&out.take_all()).await.map_err(|error| error.to_string())
    }

    async fn read(&mut self) -> Result<(), String> {
        match self.stream.read_buf(self.input.buffer()).await.map_err(|error| error.to_string())? {
            0 => Err(ended()),
            _ => Ok(()),
        }
    }
}

/// A device with goim.
struct Goim {
    link: Link,
    client: goim::Client,
    received: u64,
}

impl Goim {
    async fn join(address: &str) -> Result<Goim, String> {
        let client = goim::Client::new(goim::Variant::Goim, goim::PushLimits::default());
        let mut device = Goim { link: Link::open(address).await?, client, received: 0 };
        let auth = goim::Auth {
            mid: 1,
            room: Some(GOIM_ROOM.to_owned()),
            accepts: vec![1000],
            ..goim::Auth::default()
        };
        let mut out = Outbox::new();
        device.client.auth(&auth, &mut out).map_err(|error| error.to_string())?;
        device.link.send(&mut out).await?;
        match device.event().await? {
            goim::ClientEvent::Reply { operation: goim::operation::AUTH_REPLY, .. } => Ok(device),
            other => Err(format!("the response to the authentication is {other:?}")),
        }
    }

    async fn event(&mut self) -> Result<goim::ClientEvent, String> {
        loop {
            match self.client.recv(&mut self.link.input).map_err(|error| error.to_string())? {
                Some(event) => return Ok(event),
                None => self.link.read().await?,
            }
        }
    }
}

impl Member for Goim {
    async fn next(&mut self) -> Result<String, String> {
        loop {
            if let goim::ClientEvent::Push { payload, .. } = self.event().await? {
                self.received += 1;
                return Ok(text(&payload));
            }
        }
    }

    fn received(&self) -> u64 {
        self.received
    }
}

/// A client of MQTT.
struct Mqtt {
    link: Link,
    client: mqtt::Client,
    received: u64,
}

impl Mqtt {
    async fn join(address: &str) -> Result<Mqtt, String> {
        let version = mqtt::Version::V3_1_1;
        let client = mqtt::Client::new(version, mqtt::Limits::client());
        let mut device = Mqtt { link: Link::open(address).await?, client, received: 0 };
        let connect = mqtt::Connect { version, clean_start: true, ..mqtt::Connect::default() };
        let subscribe = mqtt::Subscribe {
            packet_id: NonZeroU16::MIN,
            properties: mqtt::Properties::default(),
            filters: vec![(Bytes::from_static(TOPIC.as_bytes()), mqtt::FilterOptions::default())],
        };
        let mut out = Outbox::new();
        device.client.send(&mqtt::Packet::Connect(Box::new(connect)), &mut out);
        device.client.send(&mqtt::Packet::Subscribe(subscribe), &mut out);
        device.link.send(&mut out).await?;
        loop {
            match device.packet().await? {
                mqtt::Packet::ConnAck(ack) if !ack.reason.is_error() => {}
                mqtt::Packet::SubAck(ack) if ack.reasons.iter().all(|reason| !reason.is_error()) => {
                    return Ok(device);
                }
                other => return Err(format!("the response to the subscription is {}", other.name())),
            }
        }
    }

    async fn packet(&mut self) -> Result<mqtt::Packet, String> {
        loop {
            match self.client.recv(&mut self.link.input).map_err(|error| error.to_string())? {
                Some(packet) => return Ok(packet),
                None => self.link.read().await?,
            }
        }
    }
}

impl Member for Mqtt {
    async fn next(&mut self) -> Result<String, String> {
        loop {
            if let mqtt::Packet::Publish(publish) = self.packet().await? {
                self.received += 1;
                return Ok(text(&publish.payload));
            }
        }
    }

    fn received(&self) -> u64 {
        self.received
    }
}

async fn connect(address: &str) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| format!("connect to {address}: {error}"))?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

fn ended() -> String {
    "the gateway closed the connection".to_owned()
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}
