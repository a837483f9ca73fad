//! Messages of NATS as entries of a bus, and back.
//!
//! Headers are the entry's metadata, whose names are in lower case. Headers that metadata cannot represent as they are,
//! for instance names with capital letters, are kept as a block as well, for other clients of NATS.

use crate::reserved::{self, NATS_BLOCK as BLOCK, NATS_ORIGIN as ORIGIN};
use bytes::Bytes;
use switchboard_core::Result;
use switchboard_message::{Entry, Publication, Topic};
use switchboard_wire::{
    Codec, Metadata, Status,
    nats::{Headers, Limits, Message, subject},
};

/// Why a subject is not the name of a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NotTopic {
    Invalid,
    /// It begins with `$`.
    Reserved,
}

/// Returns the topic of a subject.
pub(super) fn topic(subject: &[u8]) -> Result<Topic, NotTopic> {
    if subject.first() == Some(&b'$') {
        return Err(NotTopic::Reserved);
    }
    let name = subject::topic_of(subject).map_err(|_| NotTopic::Invalid)?;
    Topic::new(&name).map_err(|_| NotTopic::Invalid)
}

/// Returns the pattern of topics for a subject with wildcards.
pub(super) fn pattern(subject: &[u8]) -> Result<String, NotTopic> {
    if subject.first() == Some(&b'$') {
        return Err(NotTopic::Reserved);
    }
    let name = subject::topics_of(subject).map_err(|_| NotTopic::Invalid)?;
    // Wildcards of other protocols in the patterns of topics, and ordinary tokens of NATS.
    match name.split('/').any(|level| matches!(level, "+" | "#")) {
        true => Err(NotTopic::Invalid),
        false => Ok(name),
    }
}

/// Makes a publication of a message. `origin` is the number of a connection that does not want it back.
///
/// # Errors
/// `InvalidArgument` for headers that do not fit into metadata.
pub(super) fn publication(
    message: Message,
    reply: Option<Topic>,
    origin: Option<u64>,
) -> Result<Publication> {
    let codec = message.headers.as_ref().map_or(Codec::Raw, |headers| codec(headers).unwrap_or(Codec::Raw));
    let mut publication = Publication::new(codec, message.payload);
    publication.reply_to = reply;
    if let Some(headers) = &message.headers {
        set_headers(headers, &mut publication.headers)?;
    }
    if let Some(origin) = origin {
        publication.headers.insert(ORIGIN, origin.to_string()).map_err(invalid)?;
    }
    Ok(publication)
}

/// Adds headers to metadata.
///
/// # Errors
/// `InvalidArgument` for a block that is too large.
pub(super) fn set_headers(headers: &Headers, metadata: &mut Metadata) -> Result<()> {
    let mut is_whole = headers.status().is_none();
    for (name, value) in headers.iter() {
        let inserted =
            !reserved::is_reserved(name) && metadata.insert(name, Bytes::copy_from_slice(value)).is_ok();
        is_whole &= inserted && !name.bytes().any(|byte| byte.is_ascii_uppercase());
    }
    if !is_whole {
        metadata.insert(BLOCK, headers.block().clone()).map_err(invalid)?;
    }
    Ok(())
}

fn invalid(why: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("headers of a message: {why}"))
}

/// Returns the headers of an entry for clients.
pub(super) fn headers(entry: &Entry, limits: &Limits) -> Option<Headers> {
    let metadata = entry.headers();
    if let Some(block) = metadata.value(BLOCK) {
        return Headers::parse(block.clone(), limits).ok();
    }
    let is_text = |value: &Bytes| value.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let entries = metadata.iter().filter(|(name, value)| !reserved::is_reserved(name) && is_text(value));
    let mut entries = entries.map(|(name, value)| (name, &value[..])).peekable();
    entries.peek()?;
    Headers::new(entries).ok()
}

/// Returns the number of the connection that does not want an entry back.
pub(super) fn origin(entry: &Entry) -> Option<u64> {
    entry.headers().text(ORIGIN)?.parse().ok()
}

/// Returns the codec that the header `Content-Type` names.
pub(super) fn codec(headers: &Headers) -> Option<Codec> {
    let (_, value) = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"))?;
    let value = std::str::from_utf8(value).ok()?.split(';').next()?.trim();
    match value.to_ascii_lowercase().as_str() {
        "application/json" => Some(Codec::Json),
        "application/proto" | "application/protobuf" | "application/x-protobuf" => Some(Codec::Proto),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_message::{Bus, Delivery};

    /// Publishes headers on a bus; returns the metadata of the entry, and the headers for clients.
    async fn passed(block: &'static [u8]) -> (Vec<(String, Vec<u8>)>, Option<Headers>) {
        let limits = Limits::server();
        let headers = Headers::parse(Bytes::from_static(block), &limits).unwrap();
        let message = Message {
            subject: Bytes::from_static(b"a"),
            reply: None,
            headers: Some(headers),
            payload: Bytes::new(),
        };
        let bus = Bus::new();
        let mut subscription = bus.subscribe_encoded("a").await.unwrap();
        bus.publish_encoded("a", publication(message, None, Some(7)).unwrap()).await.unwrap();
        let Ok(Some(Delivery::Entry(entry))) = subscription.next().await else { panic!("an entry") };
        assert_eq!(origin(entry.entry()), Some(7));
        let metadata = entry.headers().iter().map(|(name, value)| (name.to_owned(), value.to_vec()));
        (metadata.collect(), super::headers(entry.entry(), &limits))
    }

    #[tokio::test]
    async fn clients_get_the_headers_that_were_sent() {
        for block in [
            &b"NATS/1.0\r\na: 1\r\nb: x y\r\na: 2\r\n\r\n"[..],
            b"NATS/1.0\r\nTrace-Id: 1\r\n\r\n",
            b"NATS/1.0 503\r\n\r\n",
            b"NATS/1.0 404 No Messages\r\nA: \xff\r\n\r\n",
            b"NATS/1.0\r\na@b: 1\r\n\r\n",
        ] {
            let (_, headers) = passed(block).await;
            assert_eq!(headers.unwrap().block(), block, "{}", block.escape_ascii());
        }
        let (metadata, _) = passed(b"NATS/1.0\r\nTrace-Id: 1\r\nb: 2\r\n\r\n").await;
        assert_eq!(metadata[..2], [("trace-id".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())]);
    }

    #[tokio::test]
    async fn clients_cannot_set_the_metadata_of_the_plugin() {
        let block = b"NATS/1.0\r\nNats-Origin: 8\r\nnats-headers-bin: NATS/1.0\r\n\r\n";
        let (_, headers) = passed(block).await;
        assert_eq!(headers.unwrap().block(), &block[..]);
    }

    #[test]
    fn subjects_that_are_no_topics() {
        assert_eq!(topic(b"a.b").unwrap().name(), "a/b");
        let long = "x.".repeat(16) + "x";
        for subject in [&b"a..b"[..], b"a.*", b"a.+", b"#", long.as_bytes(), &[b'x'; 300]] {
            assert_eq!(topic(subject), Err(NotTopic::Invalid), "{}", subject.escape_ascii());
        }
        for subject in [&b"$SYS.a"[..], b"$JS.API.INFO", b"$"] {
            assert_eq!(topic(subject), Err(NotTopic::Reserved));
            assert_eq!(pattern(subject), Err(NotTopic::Reserved));
        }
        assert_eq!(pattern(b"a.*.>").as_deref(), Ok("a/*/>"));
        for subject in [&b"a.+"[..], b"#", b"a.>.b", b""] {
            assert_eq!(pattern(subject), Err(NotTopic::Invalid), "{}", subject.escape_ascii());
        }
    }

    #[test]
    fn content_types_name_codecs() {
        for (value, expected) in [
            ("application/json", Some(Codec::Json)),
            ("Application/JSON; charset=utf-8", Some(Codec::Json)),
            ("application/protobuf", Some(Codec::Proto)),
            ("text/plain", None),
        ] {
            let headers = Headers::new([("Content-Type", value.as_bytes())]).unwrap();
            assert_eq!(codec(&headers), expected, "{value}");
        }
    }
}
