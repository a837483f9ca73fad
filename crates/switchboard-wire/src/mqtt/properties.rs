//! Properties of version 5.

use super::{
    Limits, ProtocolError,
    error::ErrorKind,
    fields::{Fields, put_binary, put_varint, varint_len},
};
use bytes::{BufMut, Bytes, BytesMut};

/// Packets with properties, as bits of a set.
pub(super) mod within {
    pub(in super::super) const CONNECT: u16 = 1;
    pub(in super::super) const CONNACK: u16 = 1 << 1;
    pub(in super::super) const PUBLISH: u16 = 1 << 2;
    /// PUBACK, PUBREC, PUBREL, PUBCOMP.
    pub(in super::super) const ACK: u16 = 1 << 3;
    pub(in super::super) const SUBSCRIBE: u16 = 1 << 4;
    pub(in super::super) const SUBACK: u16 = 1 << 5;
    pub(in super::super) const UNSUBSCRIBE: u16 = 1 << 6;
    pub(in super::super) const UNSUBACK: u16 = 1 << 7;
    pub(in super::super) const DISCONNECT: u16 = 1 << 8;
    pub(in super::super) const AUTH: u16 = 1 << 9;
    pub(in super::super) const WILL: u16 = 1 << 10;
    pub(super) const MESSAGE: u16 = PUBLISH | WILL;
    pub(super) const ANSWERS: u16 = CONNACK | ACK | SUBACK | UNSUBACK | DISCONNECT | AUTH;
    pub(super) const ALL: u16 = (1 << 11) - 1;
}

/// Type of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Binary,
    Flag,
    Long,
    Pair,
    Short,
    Text,
    Varint,
}

/// Defines the identifiers: their number, name, type, and packets.
macro_rules! properties {
    ($($(#[doc = $doc:literal])+ $name:ident = $id:literal $kind:ident in $packets:expr;)+) => {
        /// Identifier of a property.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        // closed: the identifiers of the standard
        pub enum PropertyId {
            $($(#[doc = $doc])+ $name = $id,)+
        }

        impl PropertyId {
            /// Every identifier.
            pub const ALL: &'static [PropertyId] = &[$(PropertyId::$name),+];

            fn from_number(number: u32) -> Option<PropertyId> {
                match number {
                    $($id => Some(PropertyId::$name),)+
                    _ => None,
                }
            }

            fn kind(self) -> Kind {
                match self {
                    $(PropertyId::$name => Kind::$kind,)+
                }
            }

            /// Returns the packets that may have it.
            fn packets(self) -> u16 {
                use within::*;
                match self {
                    $(PropertyId::$name => $packets,)+
                }
            }
        }
    };
}

properties! {
    /// 1 if the payload is UTF-8.
    PayloadFormat = 0x01 Flag in MESSAGE;
    /// Seconds until the message expires.
    MessageExpiry = 0x02 Long in MESSAGE;
    /// Content type.
    ContentType = 0x03 Text in MESSAGE;
    /// Topic for responses.
    ResponseTopic = 0x08 Text in MESSAGE;
    /// Data that a response repeats.
    CorrelationData = 0x09 Binary in MESSAGE;
    /// Identifier of a subscription.
    SubscriptionId = 0x0B Varint in SUBSCRIBE | PUBLISH;
    /// Seconds that a session is kept after its connection.
    SessionExpiry = 0x11 Long in CONNECT | CONNACK | DISCONNECT;
    /// Client identifier that the server has chosen.
    AssignedClientId = 0x12 Text in CONNACK;
    /// Keep alive, in seconds, that the server has chosen.
    ServerKeepAlive = 0x13 Short in CONNACK;
    /// Method of authentication.
    AuthenticationMethod = 0x15 Text in CONNECT | CONNACK | AUTH;
    /// Data of the method.
    AuthenticationData = 0x16 Binary in CONNECT | CONNACK | AUTH;
    /// 0 if answers have no reason strings and user properties.
    RequestProblem = 0x17 Flag in CONNECT;
    /// Seconds between the end of the connection and the will.
    WillDelay = 0x18 Long in WILL;
    /// 1 if CONNACK is to have response information.
    RequestResponse = 0x19 Flag in CONNECT;
    /// Start of topics for responses.
    ResponseInformation = 0x1A Text in CONNACK;
    /// Another server to use.
    ServerReference = 0x1C Text in CONNACK | DISCONNECT;
    /// Reason for people.
    ReasonString = 0x1F Text in ANSWERS;
    /// Messages of QoS 1 and 2 that may be unacknowledged.
    ReceiveMaximum = 0x21 Short in CONNECT | CONNACK;
    /// Largest topic alias.
    TopicAliasMaximum = 0x22 Short in CONNECT | CONNACK;
    /// Number in place of a topic name.
    TopicAlias = 0x23 Short in PUBLISH;
    /// Highest QoS that the server accepts.
    MaximumQoS = 0x24 Flag in CONNACK;
    /// 0 if the server has no retained messages.
    RetainAvailable = 0x25 Flag in CONNACK;
    /// A name and a value of the application.
    UserProperty = 0x26 Pair in ALL;
    /// Largest packet, in bytes.
    MaximumPacketSize = 0x27 Long in CONNECT | CONNACK;
    /// 0 if filters have no wildcards.
    WildcardsAvailable = 0x28 Flag in CONNACK;
    /// 0 if subscriptions have no identifiers.
    SubscriptionIdsAvailable = 0x29 Flag in CONNACK;
    /// 0 without shared subscriptions.
    SharedAvailable = 0x2A Flag in CONNACK;
}

/// Value of a property.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
// closed: the types of the standard
pub enum Value {
    /// Binary data, or a text.
    Bytes(Bytes),
    /// An integer of any size.
    Number(u32),
    /// A name and a value.
    Pair(Bytes, Bytes),
}

/// Properties of a packet, in their order; empty in version 3, and then without memory.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Properties {
    list: Vec<(PropertyId, Value)>,
}

impl Properties {
    /// Returns true without properties.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the properties in their order.
    pub fn iter(&self) -> impl Iterator<Item = (PropertyId, &Value)> {
        self.list.iter().map(|(id, value)| (*id, value))
    }

    /// Adds a property. The caller keeps to the type of the identifier: a value of another type is not written.
    pub fn push(&mut self, id: PropertyId, value: Value) {
        self.list.push((id, value));
    }

    /// Adds an integer.
    #[must_use]
    pub fn with_number(mut self, id: PropertyId, value: u32) -> Properties {
        self.push(id, Value::Number(value));
        self
    }

    /// Adds a text or binary data.
    #[must_use]
    pub fn with_bytes(mut self, id: PropertyId, value: impl Into<Bytes>) -> Properties {
        self.push(id, Value::Bytes(value.into()));
        self
    }

    /// Adds a user property.
    #[must_use]
    pub fn with_user(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Properties {
        self.push(PropertyId::UserProperty, Value::Pair(name.into(), value.into()));
        self
    }

    /// Returns an integer.
    pub fn number(&self, id: PropertyId) -> Option<u32> {
        self.iter().find_map(|(known, value)| match value {
            Value::Number(number) if known == id => Some(*number),
            _ => None,
        })
    }

    /// Returns a text or binary data.
    pub fn bytes(&self, id: PropertyId) -> Option<&Bytes> {
        self.iter().find_map(|(known, value)| match value {
            Value::Bytes(bytes) if known == id => Some(bytes),
            _ => None,
        })
    }

    /// Returns the user properties in their order.
    pub fn user(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.iter().filter_map(|(_, value)| match value {
            Value::Pair(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// Keeps the properties for which the function returns true.
    pub fn retain(&mut self, mut is_kept: impl FnMut(PropertyId) -> bool) {
        self.list.retain(|(id, _)| is_kept(*id));
    }

    /// Reads the properties of a packet.
    ///
    /// # Errors
    /// An unknown identifier or one of other packets, a second value, a value out of its range, too many user
    /// properties.
    pub(super) fn read(
        fields: &mut Fields,
        packet: u16,
        limits: &Limits,
    ) -> Result<Properties, ProtocolError> {
        let length = fields.varint("the length of the properties")?;
        let mut fields = Fields::new(fields.take("the list of properties", length as usize)?);
        let (mut properties, mut seen, mut users) = (Properties::default(), 0_u64, 0_u32);
        while !fields.is_empty() {
            let number = fields.varint("the identifier of a property")?;
            let Some(id) = PropertyId::from_number(number) else {
                return Err(ProtocolError::malformed(format!("property 0x{number:02X} does not exist")));
            };
            if id.packets() & packet == 0 {
                let text = format!("the packet cannot have property 0x{number:02X} ({id:?})");
                return Err(ProtocolError::protocol(text));
            }
            let can_repeat = id == PropertyId::UserProperty;
            if seen & 1 << number != 0
                && !can_repeat
                && !(id == PropertyId::SubscriptionId && packet == within::PUBLISH)
            {
                let text = format!("property 0x{number:02X} ({id:?}) is there twice");
                return Err(ProtocolError::protocol(text));
            }
            seen |= 1 << number;
            let value = read_value(&mut fields, id)?;
            if let Value::Pair(name, value) = &value {
                users += 1;
                check_user(users, name.len() + value.len(), limits)?;
            }
            properties.push(id, value);
        }
        Ok(properties)
    }

    /// Returns the number of bytes without that of the length.
    pub(super) fn encoded_body_len(&self) -> usize {
        self.iter().map(|(id, value)| 1 + value_len(id, value)).sum()
    }

    /// Returns the number of bytes, with the length.
    pub fn encoded_len(&self) -> usize {
        let body = self.encoded_body_len();
        varint_len(body) + body
    }

    /// Appends the length and the properties.
    pub fn encode(&self, out: &mut BytesMut) {
        put_varint(out, self.encoded_body_len());
        self.encode_body(out);
    }

    /// Appends the properties without their length.
    pub(super) fn encode_body(&self, out: &mut BytesMut) {
        for (id, value) in self.iter() {
            out.put_u8(id as u8);
            match (id.kind(), value) {
                (Kind::Flag, Value::Number(number)) => out.put_u8(*number as u8),
                (Kind::Short, Value::Number(number)) => out.put_u16(*number as u16),
                (Kind::Long, Value::Number(number)) => out.put_u32(*number),
                (Kind::Varint, Value::Number(number)) => put_varint(out, *number as usize),
                (_, Value::Number(_)) => {}
                (_, Value::Bytes(bytes)) => put_binary(out, bytes),
                (_, Value::Pair(name, value)) => {
                    put_binary(out, name);
                    put_binary(out, value);
                }
            }
        }
    }

    /// Reads properties of a message that [`encode`](Self::encode) has written, for instance in the metadata of an
    /// entry; `None` for other bytes. Properties that the sender of each packet sets are not returned.
    pub fn decode_message(bytes: Bytes, limits: &Limits) -> Option<Properties> {
        let mut fields = Fields::new(bytes);
        let mut properties = Properties::read(&mut fields, within::PUBLISH, limits).ok()?;
        properties.retain(|id| {
            !matches!(id, PropertyId::TopicAlias | PropertyId::SubscriptionId | PropertyId::MessageExpiry)
        });
        fields.is_empty().then_some(properties)
    }
}

fn value_len(id: PropertyId, value: &Value) -> usize {
    match (id.kind(), value) {
        (Kind::Flag, Value::Number(_)) => 1,
        (Kind::Short, Value::Number(_)) => 2,
        (Kind::Long, Value::Number(_)) => 4,
        (Kind::Varint, Value::Number(number)) => varint_len(*number as usize),
        (_, Value::Number(_)) => 0,
        (_, Value::Bytes(bytes)) => 2 + bytes.len().min(0xFFFF),
        (_, Value::Pair(name, value)) => 4 + name.len().min(0xFFFF) + value.len().min(0xFFFF),
    }
}

fn read_value(fields: &mut Fields, id: PropertyId) -> Result<Value, ProtocolError> {
    let what = "the value of a property";
    let value = match id.kind() {
        Kind::Binary => return Ok(Value::Bytes(fields.binary(what)?)),
        Kind::Text => return Ok(Value::Bytes(fields.text(what)?)),
        Kind::Pair => return Ok(Value::Pair(fields.text(what)?, fields.text(what)?)),
        Kind::Flag => u32::from(fields.u8(what)?),
        Kind::Short => u32::from(fields.u16(what)?),
        Kind::Long => fields.u32(what)?,
        Kind::Varint => fields.varint(what)?,
    };
    let is_positive =
        matches!(id, PropertyId::MaximumPacketSize | PropertyId::ReceiveMaximum | PropertyId::SubscriptionId);
    if id == PropertyId::TopicAlias && value == 0 {
        return Err(ProtocolError::new(ErrorKind::TopicAlias, "topic alias 0"));
    }
    if is_positive && value == 0 || id.kind() == Kind::Flag && value > 1 {
        return Err(ProtocolError::protocol(format!(
            "property 0x{:02X} ({id:?}) cannot be {value}",
            id as u8
        )));
    }
    Ok(Value::Number(value))
}

fn check_user(count: u32, bytes: usize, limits: &Limits) -> Result<(), ProtocolError> {
    let text = if count > limits.user_properties_max {
        let max = limits.user_properties_max;
        format!("a packet has more than {max} user properties (user_properties_max)")
    } else if bytes > limits.user_property_bytes_max as usize {
        let max = limits.user_property_bytes_max;
        format!("a user property has {bytes} bytes; the limit is {max} (user_property_bytes_max)")
    } else {
        return Ok(());
    };
    Err(ProtocolError::new(ErrorKind::Quota, text))
}
