//! Reading of packets.

use super::{
    Ack, AckKind, Auth, ConnAck, Connect, Disconnect, FilterOptions, Limits, Packet, Properties,
    ProtocolError, Publish, QoS, Reason, SubAck, Subscribe, Unsubscribe, Version, Will,
    error::ErrorKind,
    fields::{Fields, Varint, varint},
    properties::within,
    topic,
};
use crate::{Input, protocol_error::over_limit};
use bytes::Bytes;
use std::num::NonZeroU16;

/// A packet in bytes: its first byte, and what follows its length.
pub(super) struct RawPacket {
    pub(super) first: u8,
    pub(super) body: Fields,
}

/// Takes the next complete packet; `None` if its bytes have not all arrived.
///
/// # Errors
/// A length of five bytes, or over the limit. Wrong flags are found before the length.
pub(super) fn take_packet(input: &mut Input, limits: &Limits) -> Result<Option<RawPacket>, ProtocolError> {
    let rest = input.rest();
    let Some(&first) = rest.first() else { return Ok(None) };
    crate::work::add(rest.len().min(5));
    check_flags(first)?;
    let (length, bytes) = match varint(&rest[1..]) {
        Varint::More => return Ok(None),
        Varint::Malformed => {
            return Err(ProtocolError::malformed("the length of a packet has more than 4 bytes"));
        }
        Varint::Value(length, bytes) => (length, bytes),
    };
    if length > limits.packet_bytes_max {
        let max = limits.packet_bytes_max.into();
        let text = over_limit("a packet", length.into(), "bytes", max, "packet_bytes_max");
        return Err(ProtocolError::new(ErrorKind::PacketTooLarge, text));
    }
    if input.len() < 1 + bytes + length as usize {
        return Ok(None);
    }
    input.skip(1 + bytes);
    Ok(Some(RawPacket { first, body: Fields::new(input.take(length as usize)) }))
}

fn check_flags(first: u8) -> Result<(), ProtocolError> {
    let expected = match first >> 4 {
        0 => return Err(ProtocolError::malformed("packet type 0 is reserved")),
        3 => {
            let is_valid = first & 6 != 6 && (first & 8 == 0 || first & 6 != 0);
            let text = "PUBLISH has QoS 3, or DUP with QoS 0";
            return is_valid.then_some(()).ok_or_else(|| ProtocolError::malformed(text));
        }
        6 | 8 | 10 => 2,
        _ => 0,
    };
    if first & 15 != expected {
        let text = format!("a packet of type {} has the flags {}", first >> 4, first & 15);
        return Err(ProtocolError::malformed(text));
    }
    Ok(())
}

/// Reads a packet, except for CONNECT, in a version.
pub(super) fn packet(raw: RawPacket, version: Version, limits: &Limits) -> Result<Packet, ProtocolError> {
    let RawPacket { first, mut body } = raw;
    let read = Reading { version, limits };
    let fields = &mut body;
    let packet = match first >> 4 {
        2 => read.connack(fields)?,
        3 => return read.publish(first, body).map(Packet::Publish),
        4 => read.ack(AckKind::PubAck, fields)?,
        5 => read.ack(AckKind::PubRec, fields)?,
        6 => read.ack(AckKind::PubRel, fields)?,
        7 => read.ack(AckKind::PubComp, fields)?,
        8 => read.subscribe(fields)?,
        9 => read.suback(false, fields)?,
        10 => read.unsubscribe(fields)?,
        11 => read.suback(true, fields)?,
        12 => Packet::PingReq,
        13 => Packet::PingResp,
        14 => {
            let (reason, properties) = read.reason(within::DISCONNECT, fields)?;
            Packet::Disconnect(Disconnect { reason, properties })
        }
        15 if version.is_v5() => {
            let (reason, properties) = read.reason(within::AUTH, fields)?;
            Packet::Auth(Auth { reason, properties })
        }
        kind => return Err(ProtocolError::protocol(format!("a packet of type {kind} cannot be sent here"))),
    };
    if !body.is_empty() {
        return Err(ProtocolError::malformed(format!("{} is longer than its fields", packet.name())));
    }
    Ok(packet)
}

struct Reading<'a> {
    version: Version,
    limits: &'a Limits,
}

impl Reading<'_> {
    fn properties(&self, packet: u16, fields: &mut Fields) -> Result<Properties, ProtocolError> {
        match self.version {
            Version::V5 => Properties::read(fields, packet, self.limits),
            _ => Ok(Properties::default()),
        }
    }

    /// Reads a reason code and properties; both may be left out, and are in version 3.
    fn reason(&self, packet: u16, fields: &mut Fields) -> Result<(Reason, Properties), ProtocolError> {
        if fields.is_empty() || !self.version.is_v5() {
            return Ok((Reason::SUCCESS, Properties::default()));
        }
        let reason = Reason(fields.u8("a reason code")?);
        if fields.is_empty() {
            return Ok((reason, Properties::default()));
        }
        Ok((reason, self.properties(packet, fields)?))
    }

    fn connack(&self, fields: &mut Fields) -> Result<Packet, ProtocolError> {
        let flags = fields.u8("the flags of CONNACK")?;
        let code = fields.u8("the code of CONNACK")?;
        if flags > 1 || flags == 1 && code != 0 {
            return Err(ProtocolError::malformed(format!(
                "CONNACK has the flags {flags} and the code {code}"
            )));
        }
        // A server that does not know the version of the client responds in its own.
        let is_v5 = self.version.is_v5() && !fields.is_empty();
        let reason = if self.version.is_v5() { Reason(code) } else { Reason::from_connack_v3(code) };
        let properties =
            if is_v5 { self.properties(within::CONNACK, fields)? } else { Properties::default() };
        Ok(Packet::ConnAck(ConnAck { session_present: flags == 1, reason, properties }))
    }

    fn ack(&self, kind: AckKind, fields: &mut Fields) -> Result<Packet, ProtocolError> {
        let packet_id = packet_id(fields)?;
        let (reason, properties) = self.reason(within::ACK, fields)?;
        Ok(Packet::Ack(Ack { kind, packet_id, reason, properties }))
    }

    fn publish(&self, first: u8, mut body: Fields) -> Result<Publish, ProtocolError> {
        let topic = body.text("a topic name")?;
        self.check_topic(&topic)?;
        // The flags were checked.
        let qos = QoS::from_bits(first >> 1 & 3).unwrap_or_default();
        let packet_id = if qos == QoS::AtMostOnce { None } else { Some(packet_id(&mut body)?) };
        let properties = self.properties(within::PUBLISH, &mut body)?;
        if let Some(response) = properties.bytes(super::PropertyId::ResponseTopic)
            && !topic::is_name(response)
        {
            return Err(ProtocolError::protocol("the response topic is empty, or has a wildcard"));
        }
        let (dup, retain) = (first & 8 != 0, first & 1 != 0);
        Ok(Publish { dup, qos, retain, topic, packet_id, properties, payload: body.rest() })
    }

    /// Checks a topic name. An empty one is allowed where an alias may take its place.
    fn check_topic(&self, topic: &[u8]) -> Result<(), ProtocolError> {
        if topic.len() > self.limits.topic_bytes_max as usize {
            let max = self.limits.topic_bytes_max.into();
            let text = over_limit("a topic name", topic.len() as u64, "bytes", max, "topic_bytes_max");
            return Err(ProtocolError::new(ErrorKind::TopicName, text));
        }
        if !(topic::is_name(topic) || topic.is_empty() && self.version.is_v5()) {
            let text = "a topic name is empty, or has a wildcard";
            return Err(ProtocolError::new(ErrorKind::TopicName, text));
        }
        Ok(())
    }

    fn filter(&self, fields: &mut Fields, count: usize) -> Result<Bytes, ProtocolError> {
        if count >= self.limits.filters_max as usize {
            let max = self.limits.filters_max;
            let text = format!("a packet has more than {max} filters (filters_max)");
            return Err(ProtocolError::new(ErrorKind::Quota, text));
        }
        let filter = fields.text("a topic filter")?;
        if filter.len() > self.limits.topic_bytes_max as usize {
            let max = self.limits.topic_bytes_max.into();
            let text = over_limit("a filter", filter.len() as u64, "bytes", max, "topic_bytes_max");
            return Err(ProtocolError::new(ErrorKind::TopicFilter, text));
        }
        Ok(filter)
    }

    fn subscribe(&self, fields: &mut Fields) -> Result<Packet, ProtocolError> {
        let packet_id = packet_id(fields)?;
        let properties = self.properties(within::SUBSCRIBE, fields)?;
        let mut filters = Vec::new();
        while !fields.is_empty() {
            let filter = self.filter(fields, filters.len())?;
            let bits = fields.u8("the options of a filter")?;
            let Some(options) = FilterOptions::from_bits(bits, self.version) else {
                return Err(ProtocolError::malformed(format!("a filter has the options 0x{bits:02X}")));
            };
            if options.no_local && filter.starts_with(b"$share/") {
                return Err(ProtocolError::protocol("a shared subscription cannot have \"no local\""));
            }
            filters.push((filter, options));
        }
        if filters.is_empty() {
            return Err(ProtocolError::protocol("SUBSCRIBE has no filter"));
        }
        Ok(Packet::Subscribe(Subscribe { packet_id, properties, filters }))
    }

    fn suback(&self, is_unsubscribe: bool, fields: &mut Fields) -> Result<Packet, ProtocolError> {
        let packet_id = packet_id(fields)?;
        let packet = if is_unsubscribe { within::UNSUBACK } else { within::SUBACK };
        let properties = self.properties(packet, fields)?;
        let mut reasons = Vec::new();
        while !fields.is_empty() {
            reasons.push(Reason(fields.u8("a reason code")?));
        }
        Ok(Packet::SubAck(SubAck { is_unsubscribe, packet_id, properties, reasons }))
    }

    fn unsubscribe(&self, fields: &mut Fields) -> Result<Packet, ProtocolError> {
        let packet_id = packet_id(fields)?;
        let properties = self.properties(within::UNSUBSCRIBE, fields)?;
        let mut filters = Vec::new();
        while !fields.is_empty() {
            filters.push(self.filter(fields, filters.len())?);
        }
        if filters.is_empty() {
            return Err(ProtocolError::protocol("UNSUBSCRIBE has no filter"));
        }
        Ok(Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters }))
    }
}

fn packet_id(fields: &mut Fields) -> Result<NonZeroU16, ProtocolError> {
    let id = fields.u16("a packet identifier")?;
    NonZeroU16::new(id).ok_or_else(|| ProtocolError::malformed("the packet identifier is 0"))
}

/// Error in CONNECT, with the version for the response: `None` before it is known.
pub(super) type ConnectError = (ProtocolError, Option<Version>);

/// Reads CONNECT.
///
/// # Errors
/// The error, and the version in which the client expects its response.
pub(super) fn connect(mut body: Fields, limits: &Limits) -> Result<Connect, ConnectError> {
    let version = connect_version(&mut body)?;
    connect_fields(&mut body, version, limits).map_err(|error| (error, Some(version)))
}

fn connect_version(fields: &mut Fields) -> Result<Version, ConnectError> {
    let name = fields.binary("the name of the protocol").map_err(|error| (error, None))?;
    let is_v3_1 = match &name[..] {
        b"MQTT" => false,
        b"MQIsdp" => true,
        _ => {
            return Err((
                ProtocolError::new(ErrorKind::NotConnect, "CONNECT has another protocol's name"),
                None,
            ));
        }
    };
    let level = fields.u8("the level of the protocol").map_err(|error| (error, None))?;
    match (level, is_v3_1) {
        (3, true) => Ok(Version::V3_1),
        (4, false) => Ok(Version::V3_1_1),
        (5, false) => Ok(Version::V5),
        _ => {
            let text = format!("protocol level {level} is not supported; supported are 3, 4 and 5");
            let form = if level > 5 && !is_v3_1 { Version::V5 } else { Version::V3_1_1 };
            Err((ProtocolError::new(ErrorKind::UnsupportedVersion, text), Some(form)))
        }
    }
}

fn connect_fields(fields: &mut Fields, version: Version, limits: &Limits) -> Result<Connect, ProtocolError> {
    let flags = fields.u8("the flags of CONNECT")?;
    let (has_will, has_name, has_password) = (flags & 4 != 0, flags & 0x80 != 0, flags & 0x40 != 0);
    let will_qos = QoS::from_bits(flags >> 3 & 3);
    let is_valid =
        flags & 1 == 0 && (has_will || flags & 0x38 == 0) && (has_name || !has_password || version.is_v5());
    let (Some(qos), true) = (will_qos, is_valid) else {
        return Err(ProtocolError::malformed(format!("CONNECT has the flags 0x{flags:02X}")));
    };
    let keep_alive = fields.u16("the keep alive")?;
    let read = Reading { version, limits };
    let properties = read.properties(within::CONNECT, fields)?;
    let data = super::PropertyId::AuthenticationData;
    if properties.bytes(data).is_some() && properties.bytes(super::PropertyId::AuthenticationMethod).is_none()
    {
        return Err(ProtocolError::protocol("CONNECT has authentication data without a method"));
    }
    let client_id = fields.text("the client identifier")?;
    let clean_start = flags & 2 != 0;
    check_client_id(&client_id, clean_start, version, limits)?;
    let will = if has_will { Some(will(fields, qos, flags & 0x20 != 0, &read)?) } else { None };
    let user_name = has_name.then(|| fields.text("the user name")).transpose()?;
    let password = has_password.then(|| fields.binary("the password")).transpose()?;
    if !fields.is_empty() {
        return Err(ProtocolError::malformed("CONNECT is longer than its fields"));
    }
    Ok(Connect { version, clean_start, keep_alive, properties, client_id, will, user_name, password })
}

fn check_client_id(
    client_id: &[u8],
    clean_start: bool,
    version: Version,
    limits: &Limits,
) -> Result<(), ProtocolError> {
    if client_id.len() > limits.client_id_bytes_max as usize {
        let max = limits.client_id_bytes_max.into();
        let length = client_id.len() as u64;
        let text = over_limit("a client identifier", length, "bytes", max, "client_id_bytes_max");
        return Err(ProtocolError::new(ErrorKind::ClientId, text));
    }
    if client_id.is_empty() && !clean_start && !version.is_v5() {
        let text = "a client without an identifier needs a clean session";
        return Err(ProtocolError::new(ErrorKind::ClientId, text));
    }
    Ok(())
}

fn will(fields: &mut Fields, qos: QoS, retain: bool, read: &Reading<'_>) -> Result<Will, ProtocolError> {
    let properties = read.properties(within::WILL, fields)?;
    let topic = fields.text("the topic of the will")?;
    read.check_topic(&topic)?;
    if topic.is_empty() {
        return Err(ProtocolError::new(ErrorKind::TopicName, "the topic of the will is empty"));
    }
    let payload = fields.binary("the will")?;
    if payload.len() > read.limits.will_bytes_max as usize {
        let max = read.limits.will_bytes_max.into();
        let text = over_limit("the will", payload.len() as u64, "bytes", max, "will_bytes_max");
        return Err(ProtocolError::new(ErrorKind::Quota, text));
    }
    Ok(Will { qos, retain, properties, topic, payload })
}
