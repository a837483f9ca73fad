//! Packets, except for CONNECT, CONNACK and PUBLISH, and their parts.

use super::{ConnAck, Connect, Properties, Publish, Reason};
use bytes::Bytes;
use std::num::NonZeroU16;

/// Version of the protocol.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
// closed: the published versions
pub enum Version {
    /// MQTT 3.1, level 3.
    V3_1,
    /// MQTT 3.1.1, level 4.
    #[default]
    V3_1_1,
    /// MQTT 5, level 5.
    V5,
}

impl Version {
    /// Returns the level in CONNECT.
    pub fn level(self) -> u8 {
        match self {
            Version::V3_1 => 3,
            Version::V3_1_1 => 4,
            Version::V5 => 5,
        }
    }

    /// Returns true for version 5, whose packets have properties and reason codes.
    pub fn is_v5(self) -> bool {
        self == Version::V5
    }
}

/// Quality of service: how often a message is delivered.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
// closed: the values of the standard
pub enum QoS {
    /// QoS 0: without an acknowledgement.
    #[default]
    AtMostOnce,
    /// QoS 1: again until it is acknowledged.
    AtLeastOnce,
    /// QoS 2: in two steps, so that nothing is repeated.
    ExactlyOnce,
}

impl QoS {
    /// Returns the QoS of two bits; `None` for 3.
    pub fn from_bits(bits: u8) -> Option<QoS> {
        match bits {
            0 => Some(QoS::AtMostOnce),
            1 => Some(QoS::AtLeastOnce),
            2 => Some(QoS::ExactlyOnce),
            _ => None,
        }
    }

    /// Returns the two bits.
    pub fn bits(self) -> u8 {
        self as u8
    }
}

/// An acknowledgement: PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ack {
    /// Which of the four.
    pub kind: AckKind,
    /// Identifier of the message.
    pub packet_id: NonZeroU16,
    /// Reason code; success in version 3.
    pub reason: Reason,
    /// Properties of version 5.
    pub properties: Properties,
}

impl Ack {
    /// Creates an acknowledgement without properties.
    pub fn new(kind: AckKind, packet_id: NonZeroU16, reason: Reason) -> Ack {
        Ack { kind, packet_id, reason, properties: Properties::default() }
    }
}

/// Kind of an acknowledgement.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: the values of the standard
pub enum AckKind {
    /// QoS 1: the receiver has the message.
    PubAck,
    /// QoS 2, step 1: the receiver has the message.
    PubRec,
    /// QoS 2, step 2: the sender releases the identifier.
    PubRel,
    /// QoS 2, step 3: the receiver has released it.
    PubComp,
}

/// SUBSCRIBE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Subscribe {
    /// Identifier for the SUBACK.
    pub packet_id: NonZeroU16,
    /// Properties of version 5.
    pub properties: Properties,
    /// Filters with their options; at least one.
    pub filters: Vec<(Bytes, FilterOptions)>,
}

/// Options of a subscription.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct FilterOptions {
    /// Highest QoS of messages.
    pub qos: QoS,
    /// The client's own messages are not delivered to it.
    pub no_local: bool,
    /// Messages keep the RETAIN flag that they were published with.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

/// When a subscription receives retained messages.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
// closed: the values of the standard
pub enum RetainHandling {
    /// At every SUBSCRIBE.
    #[default]
    Always,
    /// At a SUBSCRIBE for a new subscription.
    IfNew,
    /// Never.
    Never,
}

impl FilterOptions {
    /// Returns the options in a byte.
    pub fn bits(self) -> u8 {
        self.qos.bits()
            | u8::from(self.no_local) << 2
            | u8::from(self.retain_as_published) << 3
            | (self.retain_handling as u8) << 4
    }

    /// Reads a byte of options; `None` if reserved bits or values are set.
    pub(super) fn from_bits(bits: u8, version: Version) -> Option<FilterOptions> {
        let reserved = if version.is_v5() { 0xC0 } else { 0xFC };
        if bits & reserved != 0 {
            return None;
        }
        Some(FilterOptions {
            qos: QoS::from_bits(bits & 3)?,
            no_local: bits & 4 != 0,
            retain_as_published: bits & 8 != 0,
            retain_handling: match bits >> 4 & 3 {
                0 => RetainHandling::Always,
                1 => RetainHandling::IfNew,
                2 => RetainHandling::Never,
                _ => return None,
            },
        })
    }
}

/// SUBACK or UNSUBACK.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubAck {
    /// True for UNSUBACK.
    pub is_unsubscribe: bool,
    /// Identifier of the SUBSCRIBE or UNSUBSCRIBE.
    pub packet_id: NonZeroU16,
    /// Properties of version 5.
    pub properties: Properties,
    /// A code for each filter; none in an UNSUBACK of version 3.
    pub reasons: Vec<Reason>,
}

/// UNSUBSCRIBE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unsubscribe {
    /// Identifier for the UNSUBACK.
    pub packet_id: NonZeroU16,
    /// Properties of version 5.
    pub properties: Properties,
    /// Filters; at least one.
    pub filters: Vec<Bytes>,
}

/// DISCONNECT.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Disconnect {
    /// Reason code; success in version 3.
    pub reason: Reason,
    /// Properties of version 5.
    pub properties: Properties,
}

/// AUTH, of version 5.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Auth {
    /// Reason code.
    pub reason: Reason,
    /// Properties: the method and its data.
    pub properties: Properties,
}

/// A packet of either side.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: the packets of the standard
pub enum Packet {
    /// PUBACK, PUBREC, PUBREL, PUBCOMP.
    Ack(Ack),
    /// AUTH.
    Auth(Auth),
    /// CONNACK.
    ConnAck(ConnAck),
    /// CONNECT.
    Connect(Box<Connect>),
    /// DISCONNECT.
    Disconnect(Disconnect),
    /// PINGREQ.
    PingReq,
    /// PINGRESP.
    PingResp,
    /// PUBLISH.
    Publish(Publish),
    /// SUBACK, UNSUBACK.
    SubAck(SubAck),
    /// SUBSCRIBE.
    Subscribe(Subscribe),
    /// UNSUBSCRIBE.
    Unsubscribe(Unsubscribe),
}

impl Packet {
    /// Returns the name of the packet, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Packet::Ack(ack) => match ack.kind {
                AckKind::PubAck => "PUBACK",
                AckKind::PubRec => "PUBREC",
                AckKind::PubRel => "PUBREL",
                AckKind::PubComp => "PUBCOMP",
            },
            Packet::Auth(_) => "AUTH",
            Packet::ConnAck(_) => "CONNACK",
            Packet::Connect(_) => "CONNECT",
            Packet::Disconnect(_) => "DISCONNECT",
            Packet::PingReq => "PINGREQ",
            Packet::PingResp => "PINGRESP",
            Packet::Publish(_) => "PUBLISH",
            Packet::SubAck(ack) if ack.is_unsubscribe => "UNSUBACK",
            Packet::SubAck(_) => "SUBACK",
            Packet::Subscribe(_) => "SUBSCRIBE",
            Packet::Unsubscribe(_) => "UNSUBSCRIBE",
        }
    }
}
