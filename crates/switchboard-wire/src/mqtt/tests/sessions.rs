//! Exchanges of QoS 1 and 2 over connections that are cut, with the state that a session keeps.

use super::*;
use crate::mqtt::{
    Ack, AckKind, Client, Connect, OutgoingPublish, Packet, Properties, Publish, QoS, Reason, ReceivedIds,
    Resend, Version, Window, window::Acknowledged,
};
use bytes::Bytes;

/// A server that sends messages of one session, and a client that receives them, with connections between them.
struct Pair {
    window: Window<u8>,
    server: Server,
    client: Client,
    /// Identifiers of messages of QoS 2 that the client has not seen released.
    received: ReceivedIds,
    delivered: Vec<(u8, bool)>,
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            window: Window::new(10),
            server: Server::new(Limits::server()),
            client: Client::new(Version::V5, Limits::client()),
            received: ReceivedIds::default(),
            delivered: Vec::new(),
        };
        pair.connect(10);
        pair
    }

    /// Begins a new connection, which has the server send again; returns the packets.
    fn connect(&mut self, receive_max: u16) -> Vec<Packet> {
        self.server = Server::new(Limits::server());
        self.client = Client::new(Version::V5, Limits::client());
        let mut out = Outbox::new();
        let connect =
            Connect { version: Version::V5, client_id: Bytes::from_static(b"c"), ..Connect::default() };
        self.client.send(&Packet::Connect(Box::new(connect)), &mut out);
        let (_, connack, error) = feed(&mut self.server, &out.take_all(), 1000);
        assert_eq!(error, None);
        self.window.reconnect(receive_max);
        let mut packets = self.resend();
        packets.extend(self.arrive(&connack));
        packets.retain(|packet| !matches!(packet, Packet::ConnAck(_)));
        packets
    }

    /// Sends what the window has to send again; returns the packets as the client reads them.
    fn resend(&mut self) -> Vec<Packet> {
        let mut out = Outbox::new();
        while let Some(resend) = self.window.next_resend() {
            match resend {
                Resend::Publish { packet_id, qos, dup, message } => {
                    let payload = Bytes::from(vec![*message]);
                    send(&mut self.server, qos, dup, packet_id, &payload, &mut out);
                }
                Resend::Release(id) => {
                    self.server.acknowledge(AckKind::PubRel, id, Reason::SUCCESS, "", &mut out);
                }
            }
        }
        self.arrive(&out.take_all())
    }

    fn publish(&mut self, qos: QoS, message: u8) -> Vec<Packet> {
        let mut out = Outbox::new();
        let id = self.window.begin(qos, message).expect("room in the window");
        send(&mut self.server, qos, false, id, &Bytes::from(vec![message]), &mut out);
        self.arrive(&out.take_all())
    }

    fn arrive(&mut self, bytes: &[u8]) -> Vec<Packet> {
        let (mut input, mut packets) = (Input::default(), Vec::new());
        input.extend(bytes);
        while let Some(packet) = self.client.recv(&mut input).expect("no error") {
            packets.push(packet);
        }
        packets
    }

    /// The client handles a packet, and returns its response.
    fn handle(&mut self, packet: &Packet) -> Option<Packet> {
        let ack = |kind, id| Some(Packet::Ack(Ack::new(kind, id, Reason::SUCCESS)));
        match packet {
            Packet::Publish(Publish { qos: QoS::AtLeastOnce, packet_id: Some(id), dup, payload, .. }) => {
                self.delivered.push((payload[0], *dup));
                ack(AckKind::PubAck, *id)
            }
            Packet::Publish(Publish { packet_id: Some(id), dup, payload, .. }) => {
                if self.received.insert(*id) {
                    self.delivered.push((payload[0], *dup));
                }
                ack(AckKind::PubRec, *id)
            }
            Packet::Ack(Ack { kind: AckKind::PubRel, packet_id, .. }) => {
                self.received.remove(*packet_id);
                ack(AckKind::PubComp, *packet_id)
            }
            packet => panic!("{packet:?}"),
        }
    }

    /// The server handles a response of the client; returns what the client then reads.
    fn respond(&mut self, packet: &Packet) -> Vec<Packet> {
        let mut out = Outbox::new();
        self.client.send(packet, &mut out);
        let (events, _, error) = feed(&mut self.server, &out.take_all(), 1000);
        assert_eq!(error, None);
        let [ServerEvent::Ack(ack)] = &events[..] else { panic!("{events:?}") };
        if let Acknowledged::Released(_) = self.window.acknowledge(ack.kind, ack.packet_id, ack.reason) {
            self.server.acknowledge(AckKind::PubRel, ack.packet_id, Reason::SUCCESS, "", &mut out);
        }
        self.arrive(&out.take_all())
    }

    /// Handles everything until neither side has anything to say.
    fn settle(&mut self, packets: Vec<Packet>) {
        let mut packets = std::collections::VecDeque::from(packets);
        while let Some(packet) = packets.pop_front() {
            let response = self.handle(&packet).expect("a response");
            packets.extend(self.respond(&response));
            packets.extend(self.resend());
        }
    }
}

fn send(
    server: &mut Server,
    qos: QoS,
    dup: bool,
    id: std::num::NonZeroU16,
    payload: &Bytes,
    out: &mut Outbox,
) {
    let properties = Properties::default();
    let payload = payload.into();
    let message = OutgoingPublish {
        dup,
        qos,
        retain: false,
        topic: b"t",
        properties: &properties,
        subscription_id: None,
        payload,
    };
    server.publish(&message, Some(id), out).expect("the connection is open");
}

#[test]
fn a_message_of_qos_1_is_repeated_with_dup_and_in_order_after_a_cut() {
    let mut pair = Pair::new();
    for message in [1, 2, 3] {
        pair.publish(QoS::AtLeastOnce, message);
    }
    // The connection is cut before any PUBACK.
    let packets = pair.connect(10);
    assert_eq!(packets.len(), 3);
    pair.settle(packets);
    assert_eq!(pair.delivered, [(1, true), (2, true), (3, true)]);
    assert!(pair.window.is_empty() && pair.connect(10).is_empty(), "once");
}

#[test]
fn a_message_of_qos_2_arrives_once_wherever_the_connection_is_cut() {
    // Cut before PUBLISH arrives, before PUBREC does, before PUBREL does, before PUBCOMP does.
    for cut in 0..4 {
        let mut pair = Pair::new();
        let mut packets = pair.publish(QoS::ExactlyOnce, 7);
        if cut > 0 {
            let received = pair.handle(&packets[0]).unwrap();
            if cut > 1 {
                packets = pair.respond(&received);
                if cut > 2 {
                    pair.handle(&packets[0]).unwrap();
                }
            }
        }
        let packets = pair.connect(10);
        let expected = if cut > 1 { "PUBREL" } else { "PUBLISH" };
        assert_eq!(packets.iter().map(Packet::name).collect::<Vec<_>>(), [expected], "cut {cut}");
        pair.settle(packets);
        assert_eq!(pair.delivered, [(7, cut == 0)], "cut {cut}");
        assert!(pair.window.is_empty() && pair.received.is_empty());
    }
}

#[test]
fn receive_maximum_1_sends_one_message_at_a_time() {
    let mut pair = Pair::new();
    for message in [1, 2, 3] {
        pair.publish(if message == 2 { QoS::ExactlyOnce } else { QoS::AtLeastOnce }, message);
    }
    let packets = pair.connect(1);
    assert_eq!(packets.len(), 1);
    assert!(!pair.window.has_room());
    pair.settle(packets);
    assert_eq!(pair.delivered, [(1, true), (2, true), (3, true)]);
    assert!(pair.window.is_empty());
}
