//! A client that sends and receives packets.

use bytes::Bytes;
use std::{num::NonZeroU16, time::Duration};
use switchboard::{Address, Running};
use switchboard_wire::{
    Input, Outbox,
    mqtt::{
        self, Ack, AckKind, ConnAck, Connect, Disconnect, FilterOptions, Limits, Packet, Properties, Publish,
        QoS, Reason, Subscribe, Unsubscribe, Version,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), work).await.expect("in time")
}

/// Returns the last address of a server.
pub(crate) fn address(running: &Running) -> String {
    let Some(Address::Tcp(host, port)) = running.addresses().last() else { panic!("a TCP listener") };
    format!("{host}:{port}")
}

/// CONNECT of version 3.1.1 with a clean session.
pub(crate) fn v4(client_id: &str) -> Connect {
    let client_id = Bytes::copy_from_slice(client_id.as_bytes());
    Connect { version: Version::V3_1_1, clean_start: true, client_id, ..Connect::default() }
}

/// CONNECT of version 5 with a session that is kept for an hour, and no clean start.
pub(crate) fn v5(client_id: &str) -> Connect {
    let properties = Properties::default().with_number(mqtt::PropertyId::SessionExpiry, 3600);
    Connect { version: Version::V5, clean_start: false, properties, ..v4(client_id) }
}

pub(crate) fn id(id: u16) -> NonZeroU16 {
    NonZeroU16::new(id).unwrap()
}

/// A connection of a client.
pub(crate) struct Client {
    stream: TcpStream,
    machine: mqtt::Client,
    input: Input,
    last_id: u16,
    /// Messages that arrived while another packet was expected.
    messages: std::collections::VecDeque<Publish>,
}

impl Client {
    /// Opens a connection without CONNECT.
    pub(crate) async fn new(running: &Running, version: Version) -> Client {
        let stream = TcpStream::connect(address(running)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let machine = mqtt::Client::new(version, Limits::client());
        Client { stream, machine, input: Input::default(), last_id: 0, messages: Default::default() }
    }

    /// Connects; the server responds.
    pub(crate) async fn respond(running: &Running, connect: Connect) -> (Client, ConnAck) {
        let mut client = Client::new(running, connect.version).await;
        client.send(&Packet::Connect(Box::new(connect))).await;
        match client.recv().await {
            Packet::ConnAck(ack) => (client, ack),
            packet => panic!("{packet:?}"),
        }
    }

    /// Connects; the server accepts.
    pub(crate) async fn connect(running: &Running, connect: Connect) -> Client {
        let (client, ack) = Client::respond(running, connect).await;
        assert_eq!(ack.reason, Reason::SUCCESS);
        client
    }

    pub(crate) async fn bytes(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.unwrap();
    }

    pub(crate) async fn send(&mut self, packet: &Packet) {
        let mut out = Outbox::new();
        self.machine.send(packet, &mut out);
        self.bytes(&out.take_all()).await;
    }

    /// Sends packets in one write.
    pub(crate) async fn send_all(&mut self, packets: &[Packet]) {
        let mut out = Outbox::new();
        packets.iter().for_each(|packet| self.machine.send(packet, &mut out));
        self.bytes(&out.take_all()).await;
    }

    /// Returns the next packet; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Packet> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            if let Some(packet) = self.machine.recv(&mut self.input).expect("no error") {
                return Some(packet);
            }
            // A connection that is closed with unread bytes is reset.
            let read = soon(self.stream.read(&mut buffer)).await.unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.input.extend(&buffer[..read]);
        }
    }

    pub(crate) async fn recv(&mut self) -> Packet {
        self.next().await.expect("the connection is open")
    }

    /// Expects the end of the connection.
    pub(crate) async fn closed(&mut self) {
        assert_eq!(self.next().await, None);
    }

    /// Expects DISCONNECT and the end of the connection; returns the reason.
    pub(crate) async fn disconnected(&mut self) -> Reason {
        match self.recv().await {
            Packet::Disconnect(Disconnect { reason, .. }) => {
                self.closed().await;
                reason
            }
            packet => panic!("{packet:?}"),
        }
    }

    /// Returns the next message, without an acknowledgement.
    pub(crate) async fn message(&mut self) -> Publish {
        if let Some(message) = self.messages.pop_front() {
            return message;
        }
        match self.recv().await {
            Packet::Publish(publish) => publish,
            packet => panic!("{packet:?}"),
        }
    }

    /// Returns topic and payload of the next message, and acknowledges it.
    pub(crate) async fn text(&mut self) -> (String, String) {
        let message = self.message().await;
        self.acknowledge(&message).await;
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&message.topic), text(&message.payload))
    }

    /// Acknowledges a message; all of QoS 2 in one step.
    pub(crate) async fn acknowledge(&mut self, message: &Publish) {
        let Some(packet_id) = message.packet_id else { return };
        if message.qos == QoS::AtLeastOnce {
            return self.ack(AckKind::PubAck, packet_id).await;
        }
        self.ack(AckKind::PubRec, packet_id).await;
        assert_eq!(self.other().await, Packet::Ack(Ack::new(AckKind::PubRel, packet_id, Reason::SUCCESS)));
        self.ack(AckKind::PubComp, packet_id).await;
    }

    pub(crate) async fn ack(&mut self, kind: AckKind, packet_id: NonZeroU16) {
        self.send(&Packet::Ack(Ack::new(kind, packet_id, Reason::SUCCESS))).await;
    }

    /// Returns the next packet that is no message; messages before it are kept.
    pub(crate) async fn other(&mut self) -> Packet {
        loop {
            match self.recv().await {
                Packet::Publish(publish) => self.messages.push_back(publish),
                packet => return packet,
            }
        }
    }

    fn next_id(&mut self) -> NonZeroU16 {
        self.last_id += 1;
        id(self.last_id)
    }

    /// Subscribes; returns the reason codes.
    pub(crate) async fn subscribe_with(
        &mut self,
        properties: Properties,
        filters: &[(&str, FilterOptions)],
    ) -> Vec<Reason> {
        let packet_id = self.next_id();
        let filters =
            filters.iter().map(|(filter, options)| (Bytes::copy_from_slice(filter.as_bytes()), *options));
        let filters = filters.collect();
        self.send(&Packet::Subscribe(Subscribe { packet_id, properties, filters })).await;
        match self.other().await {
            Packet::SubAck(ack) => {
                assert_eq!((ack.packet_id, ack.is_unsubscribe), (packet_id, false));
                ack.reasons
            }
            packet => panic!("{packet:?}"),
        }
    }

    pub(crate) async fn subscribe(&mut self, filter: &str, qos: QoS) -> Reason {
        let options = FilterOptions { qos, ..FilterOptions::default() };
        self.subscribe_with(Properties::default(), &[(filter, options)]).await[0]
    }

    pub(crate) async fn unsubscribe(&mut self, filter: &str) -> Vec<Reason> {
        let packet_id = self.next_id();
        let filters = vec![Bytes::copy_from_slice(filter.as_bytes())];
        self.send(&Packet::Unsubscribe(Unsubscribe {
            packet_id,
            properties: Properties::default(),
            filters,
        }))
        .await;
        match self.other().await {
            Packet::SubAck(ack) => ack.reasons,
            packet => panic!("{packet:?}"),
        }
    }

    /// Makes a message.
    pub(crate) fn make(&mut self, topic: &str, qos: QoS, payload: &str) -> Publish {
        Publish {
            dup: false,
            qos,
            retain: false,
            topic: Bytes::copy_from_slice(topic.as_bytes()),
            packet_id: (qos != QoS::AtMostOnce).then(|| self.next_id()),
            properties: Properties::default(),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
        }
    }

    /// Publishes, and returns the reason of the acknowledgement.
    pub(crate) async fn publish_message(&mut self, message: Publish) -> Reason {
        let (qos, packet_id) = (message.qos, message.packet_id);
        self.send(&Packet::Publish(message)).await;
        let Some(packet_id) = packet_id else { return Reason::SUCCESS };
        let Packet::Ack(ack) = self.other().await else { panic!("an acknowledgement") };
        assert_eq!(ack.packet_id, packet_id);
        if qos == QoS::ExactlyOnce && !ack.reason.is_error() {
            assert_eq!(ack.kind, AckKind::PubRec);
            self.ack(AckKind::PubRel, packet_id).await;
            let Packet::Ack(done) = self.other().await else { panic!("PUBCOMP") };
            assert_eq!((done.kind, done.reason), (AckKind::PubComp, Reason::SUCCESS));
        }
        ack.reason
    }

    pub(crate) async fn publish(&mut self, topic: &str, qos: QoS, payload: &str) -> Reason {
        let message = self.make(topic, qos, payload);
        self.publish_message(message).await
    }

    pub(crate) async fn retain(&mut self, topic: &str, payload: &str) {
        let message = Publish { retain: true, ..self.make(topic, QoS::AtLeastOnce, payload) };
        assert!(!self.publish_message(message).await.is_error());
    }

    /// Waits until the server has handled everything that was sent.
    pub(crate) async fn settled(&mut self) {
        self.send(&Packet::PingReq).await;
        assert_eq!(self.other().await, Packet::PingResp);
    }

    /// Ends the connection in order.
    pub(crate) async fn bye(mut self) {
        self.send(&Packet::Disconnect(Disconnect::default())).await;
        self.closed().await;
    }
}
