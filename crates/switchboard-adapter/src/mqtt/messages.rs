//! Messages of MQTT as entries of a bus, and back.
//!
//! What no other protocol knows is in one value of the metadata: QoS, RETAIN, and the properties. User properties are
//! metadata as well, for other protocols, and metadata of others are user properties. The content type is the codec,
//! the response topic the topic for replies, and the message expiry that of the entry.

use crate::reserved::{self, MQTT_BLOCK as BLOCK, MQTT_ORIGIN as ORIGIN};
use bytes::{BufMut, Bytes, BytesMut};
use std::{borrow::Cow, time::Duration};
use switchboard_core::{Result, clock};
use switchboard_message::{Bus, Entry, Message, Publication, Topic, names};
use switchboard_wire::{
    Codec, Metadata, Status,
    mqtt::{Limits, OutgoingPublish, Properties, PropertyId, QoS, Value},
};

/// RETAIN in the first byte of the block.
const RETAIN: u8 = 4;

/// Why a name of MQTT is not the name of a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NotTopic {
    Invalid,
    /// It begins with `$`.
    Reserved,
}

/// Returns the topic of a name.
pub(super) fn topic(name: &[u8]) -> Result<Topic, NotTopic> {
    Topic::new(&canonical(name)?).map_err(|_| NotTopic::Invalid)
}

/// Returns the pattern of a filter that follows the rules of MQTT.
pub(super) fn pattern(filter: &[u8]) -> Result<Cow<'_, str>, NotTopic> {
    canonical(filter)
}

/// Returns a name or filter in the form of the bus: `%` is encoded, and so are the levels `*` and `>`, which are
/// wildcards there and names here.
fn canonical(name: &[u8]) -> Result<Cow<'_, str>, NotTopic> {
    if name.first() == Some(&b'$') {
        return Err(NotTopic::Reserved);
    }
    let name = std::str::from_utf8(name).map_err(|_| NotTopic::Invalid)?;
    if !name.contains(['%', '*', '>']) {
        return Ok(Cow::Borrowed(name));
    }
    let levels = name.split('/').map(|level| match level {
        "*" => Cow::Borrowed("%2A"),
        ">" => Cow::Borrowed("%3E"),
        level if level.contains('%') => Cow::Owned(level.replace('%', "%25")),
        level => Cow::Borrowed(level),
    });
    Ok(Cow::Owned(levels.collect::<Vec<_>>().join("/")))
}

/// Returns the topic name of MQTT for a topic of the bus; `None` if no packet can carry it.
pub(super) fn name(topic: &str) -> Option<Cow<'_, str>> {
    if !topic.contains('%') {
        return Some(Cow::Borrowed(topic)).filter(|name| !name.contains(['+', '#']));
    }
    let levels = topic.split('/').map(|level| match level {
        "%2A" => Cow::Borrowed("*"),
        "%3E" => Cow::Borrowed(">"),
        level => Cow::Owned(names::to_separated(level, "/")),
    });
    let name = levels.collect::<Vec<_>>().join("/");
    (!name.contains(['+', '#'])).then_some(Cow::Owned(name))
}

/// A message that is to be published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<'a> {
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) properties: &'a Properties,
    pub(super) payload: &'a Bytes,
    /// Number of the session, if it does not want the message back.
    pub(super) origin: Option<u64>,
}

/// Makes a publication.
///
/// # Errors
/// `InvalidArgument` for properties that do not fit into metadata.
pub(super) fn publication(incoming: &Incoming<'_>) -> Result<Publication> {
    let Incoming { qos, retain, properties, payload, origin } = *incoming;
    let codec = properties.bytes(PropertyId::ContentType).and_then(|kind| codec(kind));
    let mut publication = Publication::new(codec.unwrap_or(Codec::Raw), payload.clone());
    let reply = properties.bytes(PropertyId::ResponseTopic);
    publication.reply_to = reply.and_then(|name| topic(name).ok());
    let expiry = properties.number(PropertyId::MessageExpiry);
    publication.expires_in = expiry.map(|seconds| Duration::from_secs(seconds.into()));
    let mut block = BytesMut::new();
    block.put_u8(qos.bits() | if retain { RETAIN } else { 0 });
    if !properties.is_empty() {
        for (name, value) in properties.user() {
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if !reserved::is_reserved(name) {
                // Names that metadata does not know are in the block alone.
                let _ = publication.headers.insert(name, value.clone());
            }
        }
        let mut forwarded = properties.clone();
        forwarded.retain(is_forwarded);
        forwarded.encode(&mut block);
    }
    publication.headers.insert(BLOCK, block.freeze()).map_err(invalid)?;
    if let Some(origin) = origin {
        publication.headers.insert(ORIGIN, origin.to_string()).map_err(invalid)?;
    }
    Ok(publication)
}

/// The expiry is that of the entry, and the delay of a will has passed.
fn is_forwarded(id: PropertyId) -> bool {
    !matches!(id, PropertyId::MessageExpiry | PropertyId::WillDelay | PropertyId::SubscriptionId)
}

fn invalid(why: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("properties of a message: {why}"))
}

fn codec(kind: &[u8]) -> Option<Codec> {
    let kind = std::str::from_utf8(kind).ok()?.split(';').next()?.trim();
    match kind.to_ascii_lowercase().as_str() {
        "application/json" => Some(Codec::Json),
        "application/proto" | "application/protobuf" | "application/x-protobuf" => Some(Codec::Proto),
        _ => None,
    }
}

/// An entry that is delivered, with what MQTT adds to it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) topic: Topic,
    pub(super) entry: Entry,
    /// Time on the clock of the process after which it is not delivered.
    pub(super) expires_at: Option<u64>,
}

impl Stored {
    pub(super) fn new(bus: &Bus, message: &Message<Bytes>) -> Stored {
        let entry = message.entry().clone();
        let left = bus.expires_in(&entry);
        let expires_at = left.map(|left| clock::now_ns().saturating_add(nanoseconds(left)));
        Stored { topic: message.topic().clone(), entry, expires_at }
    }

    /// Returns the QoS that it was published with. Entries of other protocols have the highest.
    pub(super) fn qos(&self) -> QoS {
        block(&self.entry).map_or(QoS::ExactlyOnce, |block| {
            block.first().and_then(|flags| QoS::from_bits(flags & 3)).unwrap_or_default()
        })
    }

    /// Returns whether it was published with RETAIN.
    pub(super) fn retain(&self) -> bool {
        block(&self.entry).and_then(|block| block.first()).is_some_and(|flags| flags & RETAIN != 0)
    }

    /// Returns whether a session published it and does not want it back.
    pub(super) fn is_from(&self, session: u64) -> bool {
        self.entry.headers().text(ORIGIN).and_then(|text| text.parse().ok()) == Some(session)
    }

    pub(super) fn is_expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= clock::now_ns())
    }

    /// Returns the properties for clients of version 5.
    pub(super) fn properties(&self, limits: &Limits) -> Properties {
        let block = block(&self.entry);
        let mut properties = match block.filter(|block| block.len() > 1) {
            Some(block) => Properties::decode_message(block.slice(1..), limits).unwrap_or_default(),
            None if block.is_some() => Properties::default(),
            None => foreign_properties(&self.entry, limits),
        };
        if let Some(at) = self.expires_at {
            let left = Duration::from_nanos(at.saturating_sub(clock::now_ns()));
            let seconds = u32::try_from(left.as_secs().saturating_add(1)).unwrap_or(u32::MAX);
            properties.push(PropertyId::MessageExpiry, Value::Number(seconds));
        }
        properties
    }

    /// Returns the message in the form that is sent.
    pub(super) fn outgoing<'a>(&'a self, name: &'a str, properties: &'a Properties) -> OutgoingPublish<'a> {
        OutgoingPublish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: name.as_bytes(),
            properties,
            subscription_id: None,
            payload: self.entry.bytes().into(),
        }
    }
}

fn nanoseconds(period: Duration) -> u64 {
    u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
}

fn block(entry: &Entry) -> Option<&Bytes> {
    entry.headers().value(BLOCK)
}

/// Returns the properties of an entry of another protocol: its metadata as user properties, and its codec.
fn foreign_properties(entry: &Entry, limits: &Limits) -> Properties {
    let mut properties = Properties::default();
    let kind = match entry.codec() {
        Codec::Json => Some("application/json"),
        Codec::Proto => Some("application/protobuf"),
        _ => None,
    };
    if let Some(kind) = kind {
        properties.push(PropertyId::ContentType, Value::Bytes(Bytes::from_static(kind.as_bytes())));
    }
    let headers: &Metadata = entry.headers();
    let is_text = |value: &Bytes| !value.contains(&0) && std::str::from_utf8(value).is_ok();
    let texts = headers.iter().filter(|(name, value)| !name.ends_with("-bin") && is_text(value));
    let max = limits.user_property_bytes_max as usize;
    for (name, value) in texts.filter(|(name, value)| name.len() + value.len() <= max) {
        if !reserved::is_reserved(name) {
            let name = Bytes::copy_from_slice(name.as_bytes());
            properties.push(PropertyId::UserProperty, Value::Pair(name, value.clone()));
        }
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_topics_in_both_directions() {
        for (name, canonical) in [
            ("a/b", "a/b"),
            ("/a//b/", "/a//b/"),
            ("50%/x", "50%25/x"),
            ("%2F", "%252F"),
            ("*/>", "%2A/%3E"),
            ("a*b", "a*b"),
            ("größe", "größe"),
        ] {
            let topic = topic(name.as_bytes()).unwrap();
            assert_eq!(topic.name(), canonical);
            assert_eq!(super::name(canonical).as_deref(), Some(name));
        }
        assert_eq!(topic(b"$SYS/x").unwrap_err(), NotTopic::Reserved);
        assert_eq!(topic("x".repeat(257).as_bytes()).unwrap_err(), NotTopic::Invalid);
        assert_eq!(topic("x/".repeat(16).as_bytes()).unwrap_err(), NotTopic::Invalid);
        assert_eq!(pattern(b"a/+/#").unwrap(), "a/+/#");
        assert_eq!(pattern(b"*/#").unwrap(), "%2A/#");
        assert_eq!(name("a+b"), None, "no topic name of MQTT");
    }

    #[test]
    fn properties_survive_the_entry() {
        let properties = Properties::default()
            .with_bytes(PropertyId::ContentType, &b"application/json"[..])
            .with_bytes(PropertyId::ResponseTopic, &b"replies/7"[..])
            .with_bytes(PropertyId::CorrelationData, &b"\x00\x01"[..])
            .with_user(&b"Tenant"[..], &b"acme"[..])
            .with_user(&b"Tenant"[..], &b"other"[..]);
        let payload = Bytes::from_static(b"{}");
        let incoming = Incoming {
            qos: QoS::AtLeastOnce,
            retain: true,
            properties: &properties,
            payload: &payload,
            origin: Some(7),
        };
        let publication = publication(&incoming).unwrap();
        assert_eq!(publication.codec, Codec::Json);
        assert_eq!(publication.reply_to.as_ref().map(Topic::name), Some("replies/7"));
        assert_eq!(publication.headers.text("tenant"), Some("acme"));
        let bus = Bus::new();
        let mut all = crate::feed::begin(bus.subscribe_encoded("t")).unwrap();
        bus.publish_encoded("t", publication).now().unwrap();
        let stored = taken(&bus, &mut all);
        assert_eq!((stored.qos(), stored.retain()), (QoS::AtLeastOnce, true));
        assert!(stored.is_from(7) && !stored.is_from(8));
        assert_eq!(stored.properties(&Limits::server()), properties);
    }

    #[test]
    fn metadata_of_other_protocols_is_not_taken_from_user_properties() {
        let properties = Properties::default()
            .with_user(&b"Nats-Headers-Bin"[..], &b"NATS/1.0 503\r\n\r\n"[..])
            .with_user(&b"nats-origin"[..], &b"1"[..])
            .with_user(&b"mqtt-origin"[..], &b"1"[..]);
        let payload = Bytes::new();
        let (qos, retain) = (QoS::AtMostOnce, false);
        let incoming = Incoming { qos, retain, properties: &properties, payload: &payload, origin: None };
        let names: Vec<_> =
            publication(&incoming).unwrap().headers.iter().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(names, [BLOCK]);
    }

    #[test]
    fn entries_of_other_protocols_have_the_highest_qos() {
        let bus = Bus::new();
        let mut all = crate::feed::begin(bus.subscribe_encoded("t")).unwrap();
        let mut publication = Publication::new(Codec::Proto, "x");
        publication.headers.insert("tenant", "acme").unwrap();
        publication.expires_in = Some(Duration::from_secs(60));
        bus.publish_encoded("t", publication).now().unwrap();
        let stored = taken(&bus, &mut all);
        assert_eq!((stored.qos(), stored.retain()), (QoS::ExactlyOnce, false));
        let properties = stored.properties(&Limits::server());
        assert_eq!(
            properties.bytes(PropertyId::ContentType).map(|kind| &kind[..]),
            Some(&b"application/protobuf"[..])
        );
        assert_eq!(
            properties.user().next(),
            Some((&Bytes::from_static(b"tenant"), &Bytes::from_static(b"acme")))
        );
        let left = properties.number(PropertyId::MessageExpiry).unwrap();
        assert!((1..=60).contains(&left), "{left}");
    }

    fn taken(bus: &Bus, subscription: &mut switchboard_message::Subscription<Bytes>) -> Stored {
        use futures_core::Stream;
        use std::{
            pin::Pin,
            task::{Context, Poll, Waker},
        };
        let polled = Pin::new(subscription).poll_next(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(Some(Ok(switchboard_message::Delivery::Entry(message)))) => {
                Stored::new(bus, &message)
            }
            polled => panic!("{polled:?}"),
        }
    }
}
