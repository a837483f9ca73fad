//! A server with the plugin, and a device, of which a test sees every byte.

use bytes::BytesMut;
use std::time::Duration;
use switchboard::{Running, Server};
use switchboard_push::{Hub, HubBuilder, adapter::goim::Goim};
use switchboard_wire::{
    Input, Outbox,
    goim::{Auth, Client, ClientEvent, PushLimits, Variant, operation},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), work).await.expect("in time")
}

/// A server with devices.
pub(crate) struct Gateway {
    pub(crate) hub: Hub,
    pub(crate) goim: Goim,
    pub(crate) running: Running,
}

pub(crate) async fn start(hub: HubBuilder, change: impl FnOnce(Goim) -> Goim) -> Gateway {
    let hub = hub.build().await.unwrap();
    let goim = change(Goim::new(hub.clone()));
    let running = Server::new().plugin(goim.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    Gateway { hub, goim, running }
}

impl Gateway {
    pub(crate) async fn link(&self) -> TcpStream {
        TcpStream::connect(self.running.url().replace("tcp://", "")).await.unwrap()
    }

    /// Connects a device whose credentials are accepted.
    pub(crate) async fn device(&self, auth: Auth) -> Device {
        let mut device = Device::new(self.link().await);
        device.client.auth(&auth, &mut device.out).unwrap();
        assert_eq!(device.reply().await, (operation::AUTH_REPLY, Vec::new()));
        device
    }
}

/// An authentication in the room `live://1`.
pub(crate) fn auth(mid: i64, key: &str) -> Auth {
    Auth {
        mid,
        key: Some(key.to_owned()).filter(|key| !key.is_empty()),
        room: Some("live://1".to_owned()),
        accepts: vec![1000],
        ..Auth::default()
    }
}

/// A device.
pub(crate) struct Device {
    link: TcpStream,
    input: Input,
    pub(crate) client: Client,
    pub(crate) out: Outbox,
}

impl Device {
    pub(crate) fn new(link: TcpStream) -> Device {
        let client = Client::new(Variant::Goim, PushLimits::default());
        Device { link, input: Input::new(BytesMut::new()), client, out: Outbox::new() }
    }

    pub(crate) fn into_link(self) -> TcpStream {
        self.link
    }

    pub(crate) async fn write(&mut self) {
        let bytes = self.out.take_all();
        soon(self.link.write_all(&bytes)).await.unwrap();
    }

    /// Returns the next event; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<ClientEvent> {
        self.write().await;
        loop {
            if let Some(event) = self.client.recv(&mut self.input).unwrap() {
                return Some(event);
            }
            // The server may have closed the connection with bytes of the device unread.
            if soon(self.link.read_buf(self.input.buffer())).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Writes the requests, and returns the operation and the body of the next reply.
    pub(crate) async fn reply(&mut self) -> (i32, Vec<u8>) {
        match self.next().await {
            Some(ClientEvent::Reply { operation, body, .. }) => (operation, body.to_vec()),
            other => panic!("no reply: {other:?}"),
        }
    }

    /// Returns the number of members of the room.
    pub(crate) async fn members(&mut self) -> i32 {
        self.client.heartbeat(&mut self.out).unwrap();
        self.next().await.and_then(|event| event.room_connections()).expect("a count")
    }

    /// Returns the next push as text.
    pub(crate) async fn push(&mut self) -> (i32, String) {
        match self.next().await {
            Some(ClientEvent::Push { operation, payload }) => {
                (operation, String::from_utf8(payload.to_vec()).unwrap())
            }
            other => panic!("no push: {other:?}"),
        }
    }

    /// Waits for the end of the connection.
    pub(crate) async fn closed(&mut self) {
        while let Some(event) = self.next().await {
            assert!(matches!(event, ClientEvent::Push { .. }), "{event:?}");
        }
    }
}
