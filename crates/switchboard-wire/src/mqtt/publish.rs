//! PUBLISH.

use super::{
    Properties, PropertyId, QoS, Version,
    fields::{put_binary, put_varint, varint_len},
};
use crate::{Outbox, Outgoing};
use bytes::{BufMut, Bytes, BytesMut};
use std::num::NonZeroU16;

/// A message that was received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Publish {
    /// The client may have sent it before.
    pub dup: bool,
    /// QoS.
    pub qos: QoS,
    /// The message becomes the retained one of its topic, or is it.
    pub retain: bool,
    /// Topic name: UTF-8. An alias is resolved.
    pub topic: Bytes,
    /// Packet identifier; with QoS 1 and 2.
    pub packet_id: Option<NonZeroU16>,
    /// Properties of version 5, without the alias.
    pub properties: Properties,
    /// Payload.
    pub payload: Bytes,
}

impl Publish {
    /// Returns the message as one to be sent.
    pub fn outgoing(&self) -> OutgoingPublish<'_> {
        OutgoingPublish {
            dup: self.dup,
            qos: self.qos,
            retain: self.retain,
            topic: &self.topic,
            properties: &self.properties,
            subscription_id: None,
            payload: (&self.payload).into(),
        }
    }
}

/// A message to be sent, borrowed from its owner. Its packet identifier differs between subscribers and is passed
/// apart.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingPublish<'a> {
    /// It was sent before.
    pub dup: bool,
    /// QoS.
    pub qos: QoS,
    /// RETAIN.
    pub retain: bool,
    /// Topic name: at most 65,535 bytes of UTF-8.
    pub topic: &'a [u8],
    /// Properties, for clients of version 5.
    pub properties: &'a Properties,
    /// Identifier of the subscription, for clients of version 5.
    pub subscription_id: Option<u32>,
    /// Payload.
    pub payload: Outgoing<'a>,
}

/// A message in the bytes of one version: everything but the packet identifier is equal for all subscribers.
#[derive(Clone, Copy, Debug)]
pub struct EncodedPublish<'a> {
    message: OutgoingPublish<'a>,
    version: Version,
    /// Topic alias, and whether the topic name is left out.
    alias: Option<(u16, bool)>,
    /// Bytes after the fixed header.
    body_len: usize,
    properties_len: usize,
}

impl<'a> EncodedPublish<'a> {
    /// Calculates the size of a message.
    pub fn new(message: OutgoingPublish<'a>, version: Version) -> EncodedPublish<'a> {
        EncodedPublish::with_alias(message, version, None)
    }

    pub(super) fn with_alias(
        message: OutgoingPublish<'a>,
        version: Version,
        alias: Option<(u16, bool)>,
    ) -> EncodedPublish<'a> {
        let has_name = alias.is_none_or(|(_, is_known)| !is_known);
        let topic_len = if has_name { message.topic.len() } else { 0 };
        let id_len = if message.qos == QoS::AtMostOnce { 0 } else { 2 };
        let mut encoded = EncodedPublish { message, version, alias, body_len: 0, properties_len: 0 };
        let mut properties_bytes = 0;
        if version.is_v5() {
            let id = message.subscription_id.map_or(0, |id| 1 + varint_len(id as usize));
            let alias = if alias.is_some() { 3 } else { 0 };
            encoded.properties_len = message.properties.encoded_body_len() + id + alias;
            properties_bytes = varint_len(encoded.properties_len) + encoded.properties_len;
        }
        encoded.body_len = 2 + topic_len + id_len + properties_bytes + message.payload.len();
        encoded
    }

    /// Returns the bytes of the packet.
    pub fn packet_len(&self) -> usize {
        1 + varint_len(self.body_len) + self.body_len
    }

    /// Returns everything before the payload, for a broadcast buffer of messages of QoS 0.
    pub fn head(&self) -> BytesMut {
        let mut head = BytesMut::with_capacity(self.packet_len() - self.message.payload.len());
        self.write_head(None, &mut head);
        head
    }

    /// Appends the packet. A message of QoS 1 or 2 has a packet identifier.
    pub fn write(&self, packet_id: Option<NonZeroU16>, out: &mut Outbox) {
        self.write_head(packet_id, out.tail());
        out.put(self.message.payload);
    }

    fn write_head(&self, packet_id: Option<NonZeroU16>, out: &mut BytesMut) {
        let message = &self.message;
        let flags = u8::from(message.dup) << 3 | message.qos.bits() << 1 | u8::from(message.retain);
        out.put_u8(0x30 | flags);
        put_varint(out, self.body_len);
        match self.alias {
            Some((_, true)) => out.put_u16(0),
            _ => put_binary(out, message.topic),
        }
        if message.qos != QoS::AtMostOnce {
            out.put_u16(packet_id.map_or(0, NonZeroU16::get));
        }
        if self.version.is_v5() {
            put_varint(out, self.properties_len);
            message.properties.encode_body(out);
            if let Some(id) = message.subscription_id {
                out.put_u8(PropertyId::SubscriptionId as u8);
                put_varint(out, id as usize);
            }
            if let Some((alias, _)) = self.alias {
                out.put_u8(PropertyId::TopicAlias as u8);
                out.put_u16(alias);
            }
        }
    }
}
