//! A server with the plugin, and a client, of which a test sees every reply.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::BytesMut;
use ring::hmac;
use std::time::Duration;
use switchboard::{Running, Server};
use switchboard_push::{
    Access, Hub, HubBuilder, Jwt, Rooms,
    adapter::centrifuge::{Centrifuge, CentrifugeStats},
};
use switchboard_wire::{
    Input, Outbox,
    centrifuge::{Client, Command, Connect, Format, Limits, Push, Reply, Subscribe},
    websocket::{Event, Handshake, Kind, Limits as MessageLimits, Role, WebSocket},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), work).await.expect("in time")
}

const SECRET: [u8; 32] = [7; 32];

/// A hub that verifies tokens. Rooms of `live` keep 10 entries and have presence, devices publish to them; rooms of
/// `private` need a token.
pub(crate) fn verified() -> HubBuilder {
    let live = Rooms::new().history(10, Duration::MAX).presence().publish(Access::members());
    let private = Rooms::new().join(Access::none());
    Hub::builder().auth(Jwt::hs256(SECRET)).rooms("live/*", live).rooms("private/*", private)
}

/// Returns a token with these claims: `"sub":"ali","exp":4000000000`.
pub(crate) fn token(claims: &str) -> String {
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", encode(r#"{"alg":"HS256"}"#), encode(&format!("{{{claims}}}")));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), signed.as_bytes());
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
}

/// Returns a token that is valid for a century.
pub(crate) fn token_of(user: &str) -> String {
    token(&format!("\"sub\":\"{user}\",\"exp\":4000000000,\"info\":{{\"name\":\"{user}\"}}"))
}

/// A server with clients.
pub(crate) struct Gateway {
    pub(crate) hub: Hub,
    centrifuge: Centrifuge,
    pub(crate) running: Running,
}

pub(crate) async fn start(hub: HubBuilder, change: impl FnOnce(Centrifuge) -> Centrifuge) -> Gateway {
    let hub = hub.build().await.unwrap();
    let centrifuge = change(Centrifuge::new(hub.clone()));
    let server = Server::new().plugin(centrifuge.clone());
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    Gateway { hub, centrifuge, running }
}

impl Gateway {
    pub(crate) fn stats(&self) -> CentrifugeStats {
        self.centrifuge.stats()
    }

    pub(crate) async fn client(&self, format: Format) -> Device {
        Device::new(&self.running, format).await
    }

    /// Connects the client of a user.
    pub(crate) async fn user(&self, format: Format, user: &str) -> Device {
        let mut device = self.client(format).await;
        let reply = device.connect(&token_of(user)).await;
        assert!(reply.connect.is_some(), "{reply:?}");
        device
    }
}

/// The end of a connection.
pub(crate) type Closed = (u16, String);

/// A client.
pub(crate) struct Device {
    link: TcpStream,
    input: Input,
    socket: WebSocket,
    message: BytesMut,
    kind: Kind,
    format: Format,
    plain: Input,
    client: Client,
    out: Outbox,
}

impl Device {
    pub(crate) async fn new(server: &Running, format: Format) -> Device {
        let mut link = TcpStream::connect(server.url().replace("tcp://", "")).await.unwrap();
        let (handshake, path, kind) = match format {
            Format::Json => (Handshake::without_protocol([1; 16]), "/connection/websocket", Kind::Text),
            Format::Protobuf => {
                (Handshake::new([1; 16], "centrifuge-protobuf"), "/connection/websocket", Kind::Binary)
            }
        };
        link.write_all(handshake.request("localhost", path).as_bytes()).await.unwrap();
        let mut input = Input::default();
        while handshake.answer(&mut input).unwrap().is_none() {
            assert_ne!(soon(link.read_buf(input.buffer())).await.unwrap(), 0);
        }
        let limits = MessageLimits { frame_bytes_max: 1 << 20, message_bytes_max: 1 << 20 };
        let limits_of_replies = Limits { command_bytes_max: 1 << 20, ..Limits::default() };
        Device {
            link,
            input,
            socket: WebSocket::new(Role::Client { seed: 1 }, limits),
            message: BytesMut::new(),
            kind,
            format,
            plain: Input::default(),
            client: Client::new(format, limits_of_replies),
            out: Outbox::new(),
        }
    }

    /// Sends a message of this kind.
    pub(crate) async fn raw(&mut self, kind: Kind, message: &[u8]) {
        let mut out = Outbox::new();
        self.socket.send(kind, &[message], &mut out);
        soon(self.link.write_all(&out.take_all())).await.unwrap();
    }

    /// Sends a message with these bytes.
    pub(crate) async fn text(&mut self, message: &str) {
        self.raw(self.kind, message.as_bytes()).await;
    }

    /// Expects the reply to a command that was sent as text.
    pub(crate) fn expect(&mut self, id: u32) {
        self.client.expect(id);
    }

    pub(crate) async fn send(&mut self, command: Command) {
        self.client.send(command, &mut self.out).unwrap();
        let bytes = self.out.take_all();
        self.raw(self.kind, &bytes).await;
    }

    /// Returns the next reply or push, without pings; the pong is not sent. `Err` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Result<Reply, Closed> {
        loop {
            let mut pong = Outbox::new();
            match self.client.recv(&mut self.plain, &mut pong).unwrap() {
                Some(reply) if reply.is_ping() => continue,
                Some(reply) => return Ok(reply),
                None => {}
            }
            let mut out = Outbox::new();
            match self.socket.recv(&mut self.input, &mut self.message, &mut out).unwrap() {
                Some(Event::Data { last: true, kind, .. }) => {
                    assert_eq!(kind, self.kind);
                    let message = std::mem::take(&mut self.message);
                    self.plain.extend(&message);
                    if self.format == Format::Json {
                        self.plain.extend(b"\n");
                    }
                }
                Some(Event::Closed(close)) => {
                    let close = close.unwrap();
                    return Err((close.code, close.reason));
                }
                Some(_) => {}
                None => {
                    let read = soon(self.link.read_buf(self.input.buffer())).await.unwrap();
                    assert_ne!(read, 0, "the connection has ended without a CLOSE");
                }
            }
        }
    }

    pub(crate) async fn reply(&mut self, command: Command) -> Reply {
        self.send(command).await;
        let reply = self.next().await.unwrap();
        assert_ne!(reply.id, 0, "{reply:?}");
        reply
    }

    /// Returns the code of the error of a command.
    pub(crate) async fn error(&mut self, command: Command) -> u32 {
        self.reply(command).await.error.expect("an error").code
    }

    pub(crate) async fn push(&mut self) -> Push {
        let reply = self.next().await.unwrap();
        *reply.push.unwrap_or_else(|| panic!("no push"))
    }

    /// Returns the data of the next publication as text, and its offset.
    pub(crate) async fn publication(&mut self) -> (String, u64) {
        let publication = self.push().await.publication.expect("a publication");
        (String::from_utf8(publication.data.0.to_vec()).unwrap(), publication.offset)
    }

    /// Waits for the end of the connection.
    pub(crate) async fn closed(&mut self) -> Closed {
        loop {
            if let Err(closed) = self.next().await {
                return closed;
            }
        }
    }

    pub(crate) async fn connect(&mut self, token: &str) -> Reply {
        let mut request = Connect::default();
        request.token = token.to_owned();
        self.reply(command(|command| command.connect = Some(Box::new(request)))).await
    }

    /// Subscribes; returns the result.
    pub(crate) async fn join(&mut self, channel: &str) -> switchboard_wire::centrifuge::Subscribed {
        let reply = self.reply(subscribe(channel, |_| {})).await;
        *reply.subscribe.unwrap_or_else(|| panic!("{:?}", reply.error))
    }
}

pub(crate) fn command(fill: impl FnOnce(&mut Command)) -> Command {
    let mut command = Command::default();
    fill(&mut command);
    command
}

pub(crate) fn subscribe(channel: &str, fill: impl FnOnce(&mut Subscribe)) -> Command {
    let mut request = Subscribe::default();
    request.channel = channel.to_owned();
    fill(&mut request);
    command(|command| command.subscribe = Some(Box::new(request)))
}
