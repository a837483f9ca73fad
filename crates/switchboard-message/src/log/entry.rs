//! Publications, and the entries that logs keep of them.

use super::{GapReason, Topic};
use crate::clock;
use bytes::Bytes;
use std::{fmt, ops::Range, sync::Arc, time::Duration};
use switchboard_core::Result;
use switchboard_wire::{Codec, Metadata, Status};

/// A message to be published, encoded.
///
/// ```
/// # use switchboard_message::Publication;
/// # use switchboard_wire::Codec;
/// let mut publication = Publication::new(Codec::Raw, "12.5");
/// publication.key = "acme".into();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Publication {
    /// Codec of the bytes.
    pub codec: Codec,
    /// The encoded message.
    pub bytes: Bytes,
    /// Names and values that accompany it.
    pub headers: Metadata,
    /// Key for conflation: a log may keep only the newest entry of a key. Empty: none.
    pub key: Bytes,
    /// Identifier: a second publication with it within the window is not appended. Empty: none.
    pub id: Bytes,
    /// Period after which the entry is not delivered. `None`: no limit.
    pub expires_in: Option<Duration>,
    /// Topic for replies: the message is a request.
    pub reply_to: Option<Topic>,
}

impl Publication {
    /// Creates a publication without key, id, expiry and headers.
    pub fn new(codec: Codec, bytes: impl Into<Bytes>) -> Publication {
        Publication {
            codec,
            bytes: bytes.into(),
            headers: Metadata::new(),
            key: Bytes::new(),
            id: Bytes::new(),
            expires_in: None,
            reply_to: None,
        }
    }

    /// Returns the bytes that count in the limits of entries: the message, its key, its id and its headers.
    pub fn encoded_len(&self) -> usize {
        let parts = self.bytes.len().saturating_add(self.key.len()).saturating_add(self.id.len());
        parts.saturating_add(self.headers.encoded_len())
    }

    /// Converts the publication to an entry.
    ///
    /// # Errors
    /// `ResourceExhausted` if it is larger than `bytes_max`, or its key or id larger than `key_bytes_max`.
    pub(crate) fn into_entry(
        self,
        now: impl FnOnce() -> u64,
        bytes_max: usize,
        key_bytes_max: usize,
    ) -> Result<Entry> {
        self.check(bytes_max, key_bytes_max)?;
        let Publication { codec, bytes, headers, key, id, expires_in, reply_to } = self;
        let is_plain = key.is_empty() && id.is_empty() && headers.is_empty();
        let extra = match is_plain && expires_in.is_none() && reply_to.is_none() {
            true => None,
            false => Some(Box::new(Extra {
                headers,
                key,
                id,
                expires_at: expires_in.map_or(u64::MAX, |period| clock::after(now(), period)),
                reply_to,
                missing: None,
            })),
        };
        Ok(Entry(Arc::new(Content { codec, bytes, extra })))
    }

    /// Checks the limits of entries.
    ///
    /// # Errors
    /// `ResourceExhausted` that names the limit.
    pub(crate) fn check(&self, bytes_max: usize, key_bytes_max: usize) -> Result<()> {
        let length = self.encoded_len();
        if length > bytes_max {
            let text = format!("the entry has {length} bytes; the limit is entry_bytes_max={bytes_max}");
            return Err(Status::resource_exhausted(text));
        }
        let keys = [&self.key, &self.id];
        if let Some(longest) = keys.into_iter().find(|field| field.len() > key_bytes_max) {
            let length = longest.len();
            let text = format!(
                "a key or id of the entry has {length} bytes; the limit is key_bytes_max={key_bytes_max}"
            );
            return Err(Status::resource_exhausted(text));
        }
        Ok(())
    }
}

/// Fields of an entry that a file keeps.
#[derive(Debug)]
pub(crate) struct EntryParts {
    pub(crate) codec: Codec,
    pub(crate) bytes: Bytes,
    pub(crate) headers: Metadata,
    pub(crate) key: Bytes,
    pub(crate) id: Bytes,
    /// In nanoseconds of the bus's clock; the maximum: never.
    pub(crate) expires_at: u64,
}

impl From<EntryParts> for Entry {
    fn from(parts: EntryParts) -> Entry {
        let EntryParts { codec, bytes, headers, key, id, expires_at } = parts;
        let is_plain = key.is_empty() && id.is_empty() && headers.is_empty() && expires_at == u64::MAX;
        let extra = Extra { headers, key, id, expires_at, reply_to: None, missing: None };
        Entry(Arc::new(Content { codec, bytes, extra: (!is_plain).then(|| Box::new(extra)) }))
    }
}

/// An entry of a log; immutable, and shared by all cursors.
#[derive(Clone)]
pub struct Entry(Arc<Content>);

struct Content {
    codec: Codec,
    bytes: Bytes,
    /// Fields that most entries do not have.
    extra: Option<Box<Extra>>,
}

struct Extra {
    headers: Metadata,
    key: Bytes,
    id: Bytes,
    /// In nanoseconds of the bus's clock.
    expires_at: u64,
    reply_to: Option<Topic>,
    /// The entry represents others that an engine no longer has.
    missing: Option<Missing>,
}

/// Entries that an engine does not have any more.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub(crate) range: Range<u64>,
    /// Number of the entries; `None`: not known.
    pub(crate) entries: Option<u64>,
    pub(crate) reason: GapReason,
}

static NO_HEADERS: Metadata = Metadata::new();

/// Memory of an entry beside its bytes: reference counts, fields, and its slot in the log.
const ENTRY_BYTES: usize = 128;

impl Entry {
    /// Returns the codec of the bytes.
    pub fn codec(&self) -> Codec {
        self.0.codec
    }

    /// Returns the encoded message.
    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    /// Returns the names and values that accompany the message.
    pub fn headers(&self) -> &Metadata {
        self.0.extra.as_ref().map_or(&NO_HEADERS, |extra| &extra.headers)
    }

    /// Returns the key for conflation.
    pub fn key(&self) -> Option<&Bytes> {
        self.0.extra.as_ref().map(|extra| &extra.key).filter(|key| !key.is_empty())
    }

    /// Returns the identifier of the publication.
    pub fn id(&self) -> Option<&Bytes> {
        self.0.extra.as_ref().map(|extra| &extra.id).filter(|id| !id.is_empty())
    }

    pub(crate) fn reply_to(&self) -> Option<&Topic> {
        self.0.extra.as_ref().and_then(|extra| extra.reply_to.as_ref())
    }

    /// Returns the time after which the entry is not delivered; the maximum if there is none.
    pub(crate) fn expires_at(&self) -> u64 {
        self.0.extra.as_ref().map_or(u64::MAX, |extra| extra.expires_at)
    }

    /// Creates an entry that is delivered as a gap.
    pub(super) fn missing(missing: Missing) -> Entry {
        let extra = Extra {
            headers: Metadata::new(),
            key: Bytes::new(),
            id: Bytes::new(),
            expires_at: u64::MAX,
            reply_to: None,
            missing: Some(missing),
        };
        Entry(Arc::new(Content { codec: Codec::Raw, bytes: Bytes::new(), extra: Some(Box::new(extra)) }))
    }

    /// Returns the entries that this one represents.
    pub(super) fn as_missing(&self) -> Option<&Missing> {
        self.0.extra.as_ref().and_then(|extra| extra.missing.as_ref())
    }

    /// Returns a publication with the content of the entry.
    pub(crate) fn publication(&self, now: u64) -> Publication {
        let expires_at = self.expires_at();
        let left = Duration::from_nanos(expires_at.saturating_sub(now));
        Publication {
            codec: self.codec(),
            bytes: self.bytes().clone(),
            headers: self.headers().clone(),
            key: self.key().cloned().unwrap_or_default(),
            id: self.id().cloned().unwrap_or_default(),
            expires_in: (expires_at != u64::MAX).then_some(left),
            reply_to: self.reply_to().cloned(),
        }
    }

    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.0.extra.as_ref().is_some_and(|extra| extra.expires_at <= now)
    }

    /// Returns the memory that a log charges for the entry.
    pub(crate) fn charged_bytes(&self) -> usize {
        let extra = |extra: &Extra| extra.headers.encoded_len() + extra.key.len() + extra.id.len();
        ENTRY_BYTES + self.0.bytes.len() + self.0.extra.as_deref().map_or(0, extra)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("codec", &self.codec())
            .field("bytes", &self.bytes().len())
            .field("key", &self.key())
            .field("id", &self.id())
            .finish()
    }
}
