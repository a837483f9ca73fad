//! Messages of RFC 12: their frames, read within limits.

use super::CloneLimits;
use bytes::Bytes;
use std::time::Duration;
use switchboard_socket::Message;

pub(super) const HUGZ: &str = "HUGZ";
const ICANHAZ: &[u8] = b"ICANHAZ?";
const KTHXBAI: &str = "KTHXBAI";

/// Rule that a message breaks.
pub(super) type Invalid = &'static str;

/// KVSYNC, KVPUB and KVSET.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Update {
    pub key: String,
    pub sequence: u64,
    /// 16 bytes, or none.
    pub id: Bytes,
    pub properties: Properties,
    /// Empty for a key that is deleted.
    pub value: Bytes,
}

/// Message of a server on the connection for snapshots.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum SnapshotMessage {
    Entry(Update),
    End(u64),
}

/// Message of a server on the connection for updates.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Published {
    Alive,
    Update(Update),
}

/// Lines of `name=value`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Properties(String);

impl Properties {
    pub(super) fn with_ttl(ttl: Option<Duration>) -> Properties {
        // Whole seconds, rounded up: a value must not end early.
        let seconds = |ttl: Duration| ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        Properties(ttl.map(|ttl| format!("ttl={}\n", seconds(ttl))).unwrap_or_default())
    }

    fn read(frame: &[u8], limits: &CloneLimits) -> Result<Properties, Invalid> {
        if frame.len() > limits.properties_bytes_max {
            return Err("the properties are larger than properties_bytes_max");
        }
        let text = std::str::from_utf8(frame).map_err(|_| "the properties are not UTF-8")?;
        let properties = Properties(text.to_owned());
        if properties.lines().any(|(name, value)| name == "ttl" && value.parse::<u32>().is_err()) {
            return Err("the property ttl is not a number of seconds");
        }
        Ok(properties)
    }

    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.split_once('='))
    }

    /// Returns the time to live; zero means none.
    pub(super) fn ttl(&self) -> Option<Duration> {
        let seconds = self.lines().find(|(name, _)| *name == "ttl")?.1.parse::<u32>().ok()?;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }
}

impl Update {
    /// Reads the five frames.
    pub(super) fn read(frames: &[Bytes], limits: &CloneLimits) -> Result<Update, Invalid> {
        let [key, sequence, id, properties, value] = frames else {
            return Err("the message does not have five frames");
        };
        check_key(key, limits)?;
        let key = std::str::from_utf8(key).map_err(|_| "the key is not UTF-8")?;
        let sequence = number(sequence)?;
        if !matches!(id.len(), 0 | 16) {
            return Err("the UUID has neither 16 bytes nor none");
        }
        if value.len() > limits.value_bytes_max {
            return Err("the value is larger than value_bytes_max");
        }
        let properties = Properties::read(properties, limits)?;
        // Copies: the frames share a read buffer.
        let [id, value] = [id, value].map(|bytes| Bytes::copy_from_slice(bytes));
        Ok(Update { key: key.to_owned(), sequence, id, properties, value })
    }

    pub(super) fn to_message(&self) -> Message {
        frames(
            &self.key,
            self.sequence,
            self.id.clone(),
            self.properties.0.clone().into(),
            self.value.clone(),
        )
    }
}

/// Checks the length and the name of a key.
pub(super) fn check_key(key: &[u8], limits: &CloneLimits) -> Result<(), Invalid> {
    match key {
        b"" => Err("the key is empty"),
        key if key.len() > limits.key_bytes_max => Err("the key is longer than key_bytes_max"),
        key if key == HUGZ.as_bytes() || key == KTHXBAI.as_bytes() || key == ICANHAZ => {
            Err("the key is a name of a message")
        }
        _ => Ok(()),
    }
}

/// Checks a subtree: empty, or segments between slashes, with one at each end.
pub(super) fn check_subtree(subtree: &str, limits: &CloneLimits) -> Result<(), Invalid> {
    if subtree.len() > limits.key_bytes_max {
        return Err("the subtree is longer than key_bytes_max");
    }
    if subtree.is_empty() || subtree.len() > 2 && subtree.starts_with('/') && subtree.ends_with('/') {
        return Ok(());
    }
    Err("the subtree is neither empty nor segments that begin and end with a slash, such as /prices/")
}

pub(super) fn request(subtree: &str) -> Message {
    Message::new([Bytes::from_static(ICANHAZ), Bytes::copy_from_slice(subtree.as_bytes())])
}

/// Reads the frames of ICANHAZ without the identity; returns the subtree.
pub(super) fn read_request(frames: &[Bytes], limits: &CloneLimits) -> Result<String, Invalid> {
    let [name, subtree] = frames else { return Err("the request does not have two frames") };
    if name != ICANHAZ {
        return Err("the request is not ICANHAZ?");
    }
    let subtree = std::str::from_utf8(subtree).map_err(|_| "the subtree is not UTF-8")?;
    check_subtree(subtree, limits)?;
    Ok(subtree.to_owned())
}

/// KVSYNC, behind the identity of its client.
pub(super) fn entry(identity: &Bytes, key: &str, sequence: u64, value: &Bytes) -> Message {
    behind(identity, frames(key, sequence, Bytes::new(), Bytes::new(), value.clone()))
}

/// KTHXBAI, behind the identity of its client.
pub(super) fn end(identity: &Bytes, sequence: u64, subtree: &str) -> Message {
    let subtree = Bytes::copy_from_slice(subtree.as_bytes());
    behind(identity, frames(KTHXBAI, sequence, Bytes::new(), Bytes::new(), subtree))
}

pub(super) fn hugz() -> Message {
    frames(HUGZ, 0, Bytes::new(), Bytes::new(), Bytes::new())
}

pub(super) fn read_snapshot(frames: &[Bytes], limits: &CloneLimits) -> Result<SnapshotMessage, Invalid> {
    match frames {
        [name, sequence, _, _, _] if name == KTHXBAI => number(sequence).map(SnapshotMessage::End),
        frames => Update::read(frames, limits).map(SnapshotMessage::Entry),
    }
}

pub(super) fn read_published(frames: &[Bytes], limits: &CloneLimits) -> Result<Published, Invalid> {
    match frames {
        // The sequence number has no meaning, and programs write it in two ways.
        [name, _, _, _, _] if name == HUGZ => Ok(Published::Alive),
        frames => Update::read(frames, limits).map(Published::Update),
    }
}

fn number(frame: &[u8]) -> Result<u64, Invalid> {
    frame.try_into().map(u64::from_be_bytes).map_err(|_| "the sequence number does not have 8 bytes")
}

fn frames(key: &str, sequence: u64, id: Bytes, properties: Bytes, value: Bytes) -> Message {
    let [key, sequence] = [key.as_bytes(), &sequence.to_be_bytes()].map(Bytes::copy_from_slice);
    Message::new([key, sequence, id, properties, value])
}

fn behind(identity: &Bytes, message: Message) -> Message {
    let mut frames = message.into_frames();
    frames.insert(0, identity.clone());
    Message::new(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> CloneLimits {
        CloneLimits { key_bytes_max: 10, value_bytes_max: 10, properties_bytes_max: 20, ..Default::default() }
    }

    fn update(key: &str, properties: &str, value: &str) -> Vec<Bytes> {
        let [key, properties, value] = [key, properties, value].map(|text| Bytes::from(text.to_owned()));
        vec![
            key,
            Bytes::from_static(&[0, 0, 0, 0, 0, 0, 1, 2]),
            Bytes::from_static(&[7; 16]),
            properties,
            value,
        ]
    }

    #[test]
    fn updates_are_read_as_they_are_written() {
        let read = Update::read(&update("/a/b", "ttl=30\nx=y\n", "v"), &limits()).unwrap();
        assert_eq!(
            (&*read.key, read.sequence, read.properties.ttl()),
            ("/a/b", 258, Some(Duration::from_secs(30)))
        );
        assert_eq!(Update::read(read.to_message().frames(), &limits()), Ok(read));
        for (ttl, text) in [(1500, "ttl=2\n"), (2000, "ttl=2\n")] {
            assert_eq!(Properties::with_ttl(Some(Duration::from_millis(ttl))).0, text);
        }
        assert_eq!(Properties::read(b"ttl=0\n", &limits()).unwrap().ttl(), None);
    }

    #[test]
    fn the_rule_that_a_message_breaks_is_named() {
        let rule = |frames: Vec<Bytes>| Update::read(&frames, &limits()).unwrap_err();
        assert!(rule(update("", "", "")).contains("empty"));
        assert!(rule(update("0123456789a", "", "")).contains("key_bytes_max"));
        assert!(rule(update("HUGZ", "", "")).contains("name of a message"));
        assert!(rule(update("k", "", "0123456789a")).contains("value_bytes_max"));
        assert!(rule(update("k", "0123456789012345678901", "")).contains("properties_bytes_max"));
        assert!(rule(update("k", "ttl=x\n", "")).contains("ttl"));
        assert!(rule(update("k", "", "")[..4].to_vec()).contains("five frames"));
        for (index, length, word) in [(1, 7, "8 bytes"), (2, 15, "UUID")] {
            let mut frames = update("k", "", "");
            frames[index] = vec![0; length].into();
            assert!(rule(frames).contains(word));
        }
        for subtree in ["x", "/", "//", "/a", "a/", "/0123456789/"] {
            assert!(check_subtree(subtree, &limits()).is_err(), "{subtree}");
        }
        assert!(check_subtree("", &limits()).is_ok() && check_subtree("/a/b/", &limits()).is_ok());
    }

    #[test]
    fn any_frames_are_read_without_a_panic_and_within_the_limits() {
        let mut random = fastrand::Rng::with_seed(5);
        let words: [&[u8]; 7] = [b"HUGZ", b"KTHXBAI", b"ICANHAZ?", b"", b"/a/", &[0; 8], b"ttl=9\n"];
        for _ in 0..20_000 {
            let frame = |random: &mut fastrand::Rng| match random.bool() {
                true => Bytes::from_static(words[random.usize(..words.len())]),
                false => (0..random.usize(..30)).map(|_| random.u8(..)).collect::<Vec<_>>().into(),
            };
            let frames: Vec<_> = (0..random.usize(..8)).map(|_| frame(&mut random)).collect();
            let limits = limits();
            let _ = (read_snapshot(&frames, &limits), read_request(&frames, &limits));
            if let Ok(Published::Update(update)) = read_published(&frames, &limits) {
                assert!(update.key.len() <= 10 && update.value.len() <= 10);
                assert_eq!(Update::read(update.to_message().frames(), &limits), Ok(update));
            }
        }
    }
}
