//! Writing of packets.

use super::{
    Ack, AckKind, ConnAck, Connect, EncodedPublish, Packet, Properties, Reason, SubAck, Version,
    fields::{put_binary, put_varint},
};
use crate::Outbox;
use bytes::{BufMut, BytesMut};

/// Appends a packet.
pub(super) fn packet(packet: &Packet, version: Version, out: &mut Outbox) {
    if let Packet::Publish(publish) = packet {
        return EncodedPublish::new(publish.outgoing(), version).write(publish.packet_id, out);
    }
    let mut body = BytesMut::new();
    let first = match packet {
        Packet::Ack(ack) => return self::ack(ack, version, out),
        Packet::Auth(auth) => {
            reason(auth.reason, &auth.properties, version, &mut body);
            0xF0
        }
        Packet::ConnAck(ack) => return connack(ack, version, out),
        Packet::Connect(connect) => {
            self::connect(connect, &mut body);
            0x10
        }
        Packet::Disconnect(disconnect) => {
            reason(disconnect.reason, &disconnect.properties, version, &mut body);
            0xE0
        }
        Packet::PingReq => 0xC0,
        Packet::PingResp => 0xD0,
        Packet::Publish(_) => return,
        Packet::SubAck(ack) => return suback(ack, version, out),
        Packet::Subscribe(subscribe) => {
            body.put_u16(subscribe.packet_id.get());
            properties(&subscribe.properties, version, &mut body);
            for (filter, options) in &subscribe.filters {
                put_binary(&mut body, filter);
                body.put_u8(if version.is_v5() { options.bits() } else { options.qos.bits() });
            }
            0x82
        }
        Packet::Unsubscribe(unsubscribe) => {
            body.put_u16(unsubscribe.packet_id.get());
            properties(&unsubscribe.properties, version, &mut body);
            unsubscribe.filters.iter().for_each(|filter| put_binary(&mut body, filter));
            0xA2
        }
    };
    write(first, &body, out);
}

fn write(first: u8, body: &[u8], out: &mut Outbox) {
    let tail = out.tail();
    tail.put_u8(first);
    put_varint(tail, body.len());
    tail.extend_from_slice(body);
}

fn properties(properties: &Properties, version: Version, out: &mut BytesMut) {
    if version.is_v5() {
        properties.encode(out);
    }
}

/// Appends a reason code and properties, as far as they are needed.
fn reason(reason: Reason, properties: &Properties, version: Version, out: &mut BytesMut) {
    if !version.is_v5() || reason == Reason::SUCCESS && properties.is_empty() {
        return;
    }
    out.put_u8(reason.0);
    if !properties.is_empty() {
        properties.encode(out);
    }
}

/// Appends PUBACK, PUBREC, PUBREL or PUBCOMP.
pub(super) fn ack(ack: &Ack, version: Version, out: &mut Outbox) {
    let first = match ack.kind {
        AckKind::PubAck => 0x40,
        AckKind::PubRec => 0x50,
        AckKind::PubRel => 0x62,
        AckKind::PubComp => 0x70,
    };
    if ack.properties.is_empty() && (ack.reason == Reason::SUCCESS || !version.is_v5()) {
        let [high, low] = ack.packet_id.get().to_be_bytes();
        return out.tail().extend_from_slice(&[first, 2, high, low]);
    }
    let mut body = BytesMut::new();
    body.put_u16(ack.packet_id.get());
    reason(ack.reason, &ack.properties, version, &mut body);
    write(first, &body, out);
}

/// Appends CONNACK.
pub(super) fn connack(ack: &ConnAck, version: Version, out: &mut Outbox) {
    let mut body = BytesMut::new();
    body.put_u8(u8::from(ack.session_present && ack.reason == Reason::SUCCESS));
    match version {
        Version::V5 => body.put_u8(ack.reason.0),
        _ => body.put_u8(ack.reason.connack_v3()),
    }
    properties(&ack.properties, version, &mut body);
    write(0x20, &body, out);
}

/// Appends SUBACK or UNSUBACK.
pub(super) fn suback(ack: &SubAck, version: Version, out: &mut Outbox) {
    let mut body = BytesMut::new();
    body.put_u16(ack.packet_id.get());
    properties(&ack.properties, version, &mut body);
    match version {
        Version::V5 => body.extend(ack.reasons.iter().map(|reason| reason.0)),
        _ if ack.is_unsubscribe => {}
        _ => body.extend(ack.reasons.iter().map(|reason| reason.suback_v3())),
    }
    write(if ack.is_unsubscribe { 0xB0 } else { 0x90 }, &body, out);
}

fn connect(connect: &Connect, out: &mut BytesMut) {
    let Connect { version, clean_start, keep_alive, client_id, will, user_name, password, .. } = connect;
    put_binary(out, if *version == Version::V3_1 { b"MQIsdp" } else { b"MQTT" });
    out.put_u8(version.level());
    let will_flags = |will: &super::Will| 4 | will.qos.bits() << 3 | u8::from(will.retain) << 5;
    let flags = u8::from(*clean_start) << 1
        | will.as_ref().map_or(0, will_flags)
        | u8::from(password.is_some()) << 6
        | u8::from(user_name.is_some()) << 7;
    out.put_u8(flags);
    out.put_u16(*keep_alive);
    properties(&connect.properties, *version, out);
    put_binary(out, client_id);
    if let Some(will) = will {
        properties(&will.properties, *version, out);
        put_binary(out, &will.topic);
        put_binary(out, &will.payload);
    }
    for field in [user_name, password].into_iter().flatten() {
        put_binary(out, field);
    }
}
