//! The machines of MQTT against arbitrary bytes and against each other.

use super::{Choices, feed::pieces};
use crate::{
    Input, Outbox,
    mqtt::{
        Accept, Ack, AckKind, Auth, Client, Connect, Disconnect, FilterOptions, Limits, Packet, Properties,
        PropertyId, ProtocolError, Publish, QoS, Reason, RetainHandling, Server, ServerEvent, SubAck,
        Subscribe, Unsubscribe, Version, Will, topic,
    },
};
use bytes::Bytes;
use std::{fmt::Debug, num::NonZeroU16};

/// Bytes that a machine writes at most for one event or error.
const WRITTEN_MAX: usize = 64;

/// Events, output and error of a machine.
type Outcome<E> = (Vec<E>, Vec<u8>, Option<ProtocolError>);

/// Feeds a server and a client with any bytes. Checks that they do not panic, that the events do not depend on the
/// split, that they respect the limits, and that the output is bounded.
///
/// # Panics
/// If the property does not hold.
pub fn mqtt_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits {
        aliases_max: u16::from(choices.byte() % 4),
        client_id_bytes_max: u32::from(choices.byte() % 30),
        filters_max: u32::from(choices.byte() % 5),
        packet_bytes_max: 20 + u32::from(choices.short() % 2000),
        receive_max: u16::from(choices.byte() % 5),
        topic_bytes_max: u32::from(choices.byte()),
        user_properties_max: u32::from(choices.byte() % 4),
        user_property_bytes_max: u32::from(choices.byte()),
        will_bytes_max: u32::from(choices.byte()),
    };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let accepts = !choices.one_in(8);
    if choices.one_in(3) {
        let version = version(&mut choices);
        let bytes = packets(false, version, &mut choices);
        let run = |steps: &[u8]| called(version, limits, &bytes, steps);
        assert_eq!(run(&steps), run(&[]));
    } else {
        let version = version(&mut choices);
        let bytes = packets(true, version, &mut choices);
        let run = |steps: &[u8]| served(limits, accepts, &bytes, steps);
        assert_eq!(run(&steps), run(&[]));
    }
}

fn served(limits: Limits, accepts: bool, bytes: &[u8], steps: &[u8]) -> Outcome<ServerEvent> {
    let mut server = Server::new(limits);
    feed(&limits, bytes, steps, |input, out| {
        let event = server.recv(input, out)?;
        match &event {
            Some(ServerEvent::Connect(connect)) => {
                assert!(connect.client_id.len() <= limits.client_id_bytes_max as usize);
                let will = connect.will.as_ref();
                assert!(will.is_none_or(|will| will.payload.len() <= limits.will_bytes_max as usize));
                let _ = (connect.authorization(), connect.session_expiry(), format!("{connect:?}"));
                assert_eq!(server.recv(input, out), Ok(None), "waits for a verdict");
                match accepts {
                    true => server.accept(&Accept::default(), out),
                    false => server.reject(Reason::NOT_AUTHORIZED, "", out),
                }
                assert_eq!(server.is_open(), accepts);
            }
            Some(ServerEvent::Publish(publish)) => {
                assert!(topic::is_name(&publish.topic) && std::str::from_utf8(&publish.topic).is_ok());
                assert!(publish.topic.len() <= limits.topic_bytes_max as usize);
                assert_eq!(publish.packet_id.is_some(), publish.qos != QoS::AtMostOnce);
                check_properties(&publish.properties, &limits);
                if let Some(id) = publish.packet_id.filter(|id| id.get() % 2 == 0) {
                    server.acknowledge(AckKind::PubAck, id, Reason::SUCCESS, "", out);
                }
            }
            Some(ServerEvent::Subscribe(subscribe)) => {
                assert!((1..=limits.filters_max as usize).contains(&subscribe.filters.len()));
                for (filter, _) in &subscribe.filters {
                    if let Ok((_, filter)) = topic::shared(filter) {
                        let _ = (topic::is_filter(filter), topic::matches(filter, b"a/b"));
                    }
                }
            }
            _ => {}
        }
        Ok(event)
    })
}

fn called(version: Version, limits: Limits, bytes: &[u8], steps: &[u8]) -> Outcome<Packet> {
    let mut client = Client::new(version, limits);
    feed(&limits, bytes, steps, |input, _| client.recv(input))
}

fn check_properties(properties: &Properties, limits: &Limits) {
    assert!(properties.user().count() <= limits.user_properties_max as usize);
    let max = limits.user_property_bytes_max as usize;
    assert!(properties.user().all(|(name, value)| name.len() + value.len() <= max));
}

/// Feeds a machine with pieces of the bytes.
fn feed<E: Debug>(
    limits: &Limits,
    bytes: &[u8],
    steps: &[u8],
    mut recv: impl FnMut(&mut Input, &mut Outbox) -> Result<Option<E>, ProtocolError>,
) -> Outcome<E> {
    let kept_max = limits.packet_bytes_max as usize + 5;
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let (mut events, mut written) = (Vec::new(), Vec::new());
    for piece in pieces(bytes, steps) {
        input.extend(piece);
        loop {
            let received = recv(&mut input, &mut out);
            assert!(out.len() <= 2 * WRITTEN_MAX, "{} bytes for one event", out.len());
            written.extend(out.take_all());
            match received {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, written, Some(error)),
            }
        }
        assert!(input.len() < kept_max, "{} bytes are kept", input.len());
    }
    (events, written, None)
}

/// Mostly well-formed packets, with damage at times, or only noise.
fn packets(of_client: bool, version: Version, choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(16) {
        return choices.rest().to_vec();
    }
    let writer = Client::new(version, Limits::client());
    let mut out = Outbox::new();
    if of_client && !choices.one_in(16) {
        writer.send(&Packet::Connect(Box::new(connect(version, choices))), &mut out);
    }
    let mut bytes = out.take_all();
    while !choices.is_over() {
        if choices.one_in(32) {
            bytes.extend(choices.bytes(12));
        }
        writer.send(&packet(of_client, version, choices), &mut out);
        let mut packet = out.take_all();
        if choices.one_in(16) {
            let at = usize::from(choices.short()) % packet.len();
            packet[at] ^= choices.byte();
        }
        bytes.extend(packet);
    }
    bytes
}

fn version(choices: &mut Choices<'_>) -> Version {
    [Version::V5, Version::V5, Version::V3_1_1, Version::V3_1][usize::from(choices.byte() % 4)]
}

fn qos(choices: &mut Choices<'_>) -> QoS {
    QoS::from_bits(choices.byte() % 3).unwrap_or_default()
}

fn text(choices: &mut Choices<'_>, max: usize) -> Bytes {
    let text = String::from_utf8_lossy(choices.bytes(max)).replace(['\0', '+', '#'], "x");
    text.into()
}

fn name(choices: &mut Choices<'_>) -> Bytes {
    let names = ["a", "a/b", "/", "a//b", "$SYS/x", "größe"];
    match choices.byte() {
        index @ 0..220 => names[usize::from(index) % names.len()].into(),
        _ => [b"t", &text(choices, 60)[..]].concat().into(),
    }
}

fn id(choices: &mut Choices<'_>) -> NonZeroU16 {
    NonZeroU16::new(choices.short() % 8).unwrap_or(NonZeroU16::MAX)
}

fn users(choices: &mut Choices<'_>, version: Version) -> Properties {
    let mut properties = Properties::default();
    if version.is_v5() {
        for _ in 0..choices.byte() % 3 {
            properties = properties.with_user(text(choices, 10), text(choices, 20));
        }
    }
    properties
}

fn connect(version: Version, choices: &mut Choices<'_>) -> Connect {
    let mut properties = users(choices, version);
    if version.is_v5() {
        properties = properties
            .with_number(PropertyId::SessionExpiry, choices.long())
            .with_number(PropertyId::ReceiveMaximum, 1 + u32::from(choices.byte()));
    }
    let user_name = choices.one_in(2).then(|| text(choices, 10));
    let password =
        (user_name.is_some() && choices.one_in(2)).then(|| Bytes::copy_from_slice(choices.bytes(10)));
    let will = choices.one_in(2).then(|| Will {
        qos: qos(choices),
        retain: choices.one_in(2),
        properties: users(choices, version),
        topic: name(choices),
        payload: Bytes::copy_from_slice(choices.bytes(40)),
    });
    let client_id = [b"c", &text(choices, 20)[..]].concat().into();
    let (clean_start, keep_alive) = (choices.one_in(2), choices.short());
    Connect { version, clean_start, keep_alive, properties, client_id, will, user_name, password }
}

fn publish(of_client: bool, version: Version, choices: &mut Choices<'_>) -> Publish {
    let qos = qos(choices);
    let mut properties = users(choices, version);
    if version.is_v5() && choices.one_in(2) {
        properties = properties
            .with_number(PropertyId::MessageExpiry, choices.long())
            .with_bytes(PropertyId::CorrelationData, choices.bytes(8).to_vec());
    }
    if version.is_v5() && !of_client {
        for _ in 0..choices.byte() % 3 {
            properties = properties.with_number(PropertyId::SubscriptionId, 1 + choices.long() % 268_435_455);
        }
    }
    Publish {
        dup: qos != QoS::AtMostOnce && choices.one_in(2),
        qos,
        retain: choices.one_in(2),
        topic: name(choices),
        packet_id: (qos != QoS::AtMostOnce).then(|| id(choices)),
        properties,
        payload: choices.message(),
    }
}

/// Draws a packet of a side, other than CONNECT and CONNACK.
fn packet(of_client: bool, version: Version, choices: &mut Choices<'_>) -> Packet {
    let reason = if version.is_v5() { Reason(choices.byte()) } else { Reason::SUCCESS };
    match choices.byte() % 8 {
        0 if of_client => {
            let filters = (0..1 + choices.byte() % 3).map(|_| (name(choices), options(version, choices)));
            let filters = filters.collect();
            Packet::Subscribe(Subscribe {
                packet_id: id(choices),
                properties: users(choices, version),
                filters,
            })
        }
        1 if of_client => {
            let filters = (0..1 + choices.byte() % 3).map(|_| name(choices)).collect();
            Packet::Unsubscribe(Unsubscribe {
                packet_id: id(choices),
                properties: users(choices, version),
                filters,
            })
        }
        0 | 1 => {
            let is_unsubscribe = choices.one_in(2);
            let count = if is_unsubscribe && !version.is_v5() { 0 } else { 1 + choices.byte() % 3 };
            let reasons = (0..count).map(|_| Reason(choices.byte() % 3)).collect();
            let properties = users(choices, version);
            Packet::SubAck(SubAck { is_unsubscribe, packet_id: id(choices), properties, reasons })
        }
        2 if of_client => Packet::PingReq,
        2 => Packet::PingResp,
        3 if choices.one_in(8) => {
            Packet::Disconnect(Disconnect { reason, properties: users(choices, version) })
        }
        4 if version.is_v5() && choices.one_in(2) => {
            Packet::Auth(Auth { reason, properties: users(choices, version) })
        }
        5 => {
            let kinds = [AckKind::PubAck, AckKind::PubRec, AckKind::PubRel, AckKind::PubComp];
            let kind = kinds[usize::from(choices.byte() % 4)];
            Packet::Ack(Ack { kind, packet_id: id(choices), reason, properties: users(choices, version) })
        }
        _ => Packet::Publish(publish(of_client, version, choices)),
    }
}

fn options(version: Version, choices: &mut Choices<'_>) -> FilterOptions {
    let qos = qos(choices);
    if !version.is_v5() {
        return FilterOptions { qos, ..FilterOptions::default() };
    }
    let handling = [RetainHandling::Always, RetainHandling::IfNew, RetainHandling::Never];
    FilterOptions {
        qos,
        no_local: choices.one_in(2),
        retain_as_published: choices.one_in(2),
        retain_handling: handling[usize::from(choices.byte() % 3)],
    }
}

/// Checks that each side receives what the other one sends, for any split of the bytes.
///
/// # Panics
/// If the property does not hold.
pub fn mqtt_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let version = version(&mut choices);
    let limits = Limits { receive_max: u16::MAX, ..Limits::server() };
    let (mut server, mut client) = (Server::new(limits), Client::new(version, Limits::client()));
    let (mut at_server, mut at_client, mut out) = (Input::default(), Input::default(), Outbox::new());
    let sent = connect(version, &mut choices);
    client.send(&Packet::Connect(Box::new(sent.clone())), &mut out);
    let mut to_server = |server: &mut Server, out: &mut Outbox| {
        let mut events = Vec::new();
        for piece in pieces(&out.take_all(), &steps) {
            at_server.extend(piece);
            while let Some(event) = server.recv(&mut at_server, out).expect("no error") {
                server.accept(&Accept::default(), out);
                events.push(event);
            }
        }
        assert!(at_server.is_empty());
        events
    };
    let mut to_client = |client: &mut Client, out: &mut Outbox| {
        let mut packets = Vec::new();
        for piece in pieces(&out.take_all(), &steps) {
            at_client.extend(piece);
            while let Some(packet) = client.recv(&mut at_client).expect("no error") {
                packets.push(packet);
            }
        }
        assert!(at_client.is_empty());
        packets
    };
    assert_eq!(to_server(&mut server, &mut out), [ServerEvent::Connect(Box::new(sent))]);
    assert!(
        matches!(&to_client(&mut client, &mut out)[..], [Packet::ConnAck(ack)] if !ack.reason.is_error())
    );
    while !choices.is_over() && server.is_open() {
        if choices.one_in(2) {
            let sent = packet(true, version, &mut choices);
            client.send(&sent, &mut out);
            let events = to_server(&mut server, &mut out);
            assert_eq!(events, [event(sent.clone())]);
            let responses = to_client(&mut client, &mut out);
            assert_eq!(responses, if sent == Packet::PingReq { vec![Packet::PingResp] } else { Vec::new() });
        } else {
            let sent = publish(false, version, &mut choices);
            server.publish(&sent.outgoing(), sent.packet_id, &mut out).expect("the connection is open");
            assert_eq!(to_client(&mut client, &mut out), [Packet::Publish(sent)]);
        }
    }
}

/// Returns the event of a packet of a client.
fn event(packet: Packet) -> ServerEvent {
    match packet {
        Packet::Ack(ack) => ServerEvent::Ack(ack),
        Packet::Auth(auth) => ServerEvent::Auth(auth),
        Packet::Connect(connect) => ServerEvent::Connect(connect),
        Packet::Disconnect(disconnect) => ServerEvent::Disconnect(disconnect),
        Packet::Publish(publish) => ServerEvent::Publish(publish),
        Packet::Subscribe(subscribe) => ServerEvent::Subscribe(subscribe),
        Packet::Unsubscribe(unsubscribe) => ServerEvent::Unsubscribe(unsubscribe),
        Packet::PingReq | Packet::PingResp | Packet::ConnAck(_) | Packet::SubAck(_) => ServerEvent::Ping,
    }
}
