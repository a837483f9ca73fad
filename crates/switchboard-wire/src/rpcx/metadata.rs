//! Conversion between the metadata of rpcx and [`Metadata`].

use crate::{
    Limits, Metadata, Status,
    foreign::{check_count, check_size, insert},
};
use bytes::{BufMut, BytesMut};
use std::{str, time::Duration};

/// Metadata key of rpcx for a credential in any form.
const AUTH: &str = "__AUTH";
/// Metadata key for the milliseconds that are left for a call.
const TIMEOUT: &str = "__ServerTimeout";
/// Scheme that is assumed for a credential without one.
const BEARER: &str = "Bearer ";
/// Metadata key of Switchboard for a credential.
const AUTHORIZATION: &str = "authorization";

/// The metadata block of a request.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) metadata: Metadata,
    pub(super) timeout: Option<Duration>,
}

/// Reason why a block cannot be used. A malformed block ends the connection, as the rest of the frame is unreliable;
/// one that exceeds a limit ends only its call.
#[derive(Debug)]
pub(super) enum Unreadable {
    Malformed,
    Refused(Status),
}

/// Reads the metadata of a request from names and values: the metadata for handlers, and the time that is left.
///
/// # Errors
/// `ResourceExhausted` if the metadata exceeds a limit.
pub fn pairs(pairs: &[(String, String)], limits: &Limits) -> Result<(Metadata, Option<Duration>), Status> {
    let mut block = Vec::new();
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        block.put_u32(text.len() as u32);
        block.put_slice(text.as_bytes());
    }
    match request(&block, limits) {
        Ok(request) => Ok((request.metadata, request.timeout)),
        Err(Unreadable::Refused(status)) => Err(status),
        Err(Unreadable::Malformed) => Err(Status::internal("metadata that was just written is malformed")),
    }
}

impl From<Status> for Unreadable {
    fn from(status: Status) -> Unreadable {
        Unreadable::Refused(status)
    }
}

/// Reads the block of a request.
pub(super) fn request(block: &[u8], limits: &Limits) -> Result<Request, Unreadable> {
    crate::work::add(block.len());
    let mut request = Request::default();
    let mut auth = None;
    for entry in Entries(block) {
        let (name, value) = entry?;
        if name == AUTH.as_bytes() {
            auth = Some(value);
        } else if name == TIMEOUT.as_bytes() {
            request.timeout = timeout_of(value);
        } else {
            insert(&mut request.metadata, name, value);
        }
        check_count(&request.metadata, limits)?;
    }
    if let Some(value) = auth.filter(|value| !value.is_empty()) {
        let scheme = if value.contains(&b' ') { "" } else { BEARER };
        let value = [scheme.as_bytes(), value].concat();
        request.metadata.remove(AUTHORIZATION);
        insert(&mut request.metadata, AUTHORIZATION.as_bytes(), &value);
        check_count(&request.metadata, limits)?;
    }
    check_size(&request.metadata, limits)?;
    Ok(request)
}

/// Reads the block of a response.
pub(super) fn response(block: &[u8], limits: &Limits) -> Result<Metadata, Unreadable> {
    let mut metadata = Metadata::new();
    for entry in Entries(block) {
        let (name, value) = entry?;
        insert(&mut metadata, name, value);
        check_count(&metadata, limits)?;
    }
    check_size(&metadata, limits)?;
    Ok(metadata)
}

/// Reads the timeout of a request whose block has nothing else: the most frequent kind of block.
#[inline]
pub(super) fn only_timeout(block: &[u8]) -> Option<Duration> {
    let mut entries = Entries(block);
    match entries.next()? {
        Ok((name, value)) if name == TIMEOUT.as_bytes() && entries.0.is_empty() => timeout_of(value),
        _ => None,
    }
}

/// Parses milliseconds; an expired timeout may be negative. A value that is not a number means no deadline, as in Go.
fn timeout_of(value: &[u8]) -> Option<Duration> {
    let milliseconds: i64 = str::from_utf8(value).ok()?.parse().ok()?;
    Some(Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0)))
}

/// Iterator over names and values of a block.
pub(super) struct Entries<'a>(pub(super) &'a [u8]);

impl<'a> Entries<'a> {
    fn text(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.0.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        self.0 = rest;
        Some(text)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let name = self.text();
        let entry = name.and_then(|name| Some((name, self.text()?)));
        if entry.is_none() {
            self.0 = &[];
        }
        Some(entry.ok_or(Unreadable::Malformed))
    }
}

/// A block to be written: its entries and its size in bytes.
#[derive(Default)]
pub(super) struct Block<'a> {
    own: Vec<(&'a str, &'a [u8])>,
    lists: [Option<&'a Metadata>; 2],
    timeout: Option<([u8; 20], usize)>,
    len: usize,
}

impl<'a> Block<'a> {
    /// Adds an entry that the protocol defines.
    pub(super) fn entry(&mut self, name: &'a str, value: &'a [u8]) {
        self.own.push((name, value));
        self.len += 8 + name.len() + value.len();
    }

    /// Adds a metadata list of the application; at most two.
    pub(super) fn list(&mut self, metadata: &'a Metadata) {
        if metadata.is_empty() {
            return;
        }
        if let Some(place) = self.lists.iter_mut().find(|list| list.is_none()) {
            *place = Some(metadata);
            self.len +=
                metadata.iter().map(|(name, value)| 8 + their_name(name).len() + value.len()).sum::<usize>();
        }
    }

    /// Adds the time that is left: whole milliseconds, rounded up.
    pub(super) fn timeout(&mut self, timeout: Duration) {
        let milliseconds = u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1);
        let mut digits = [0u8; 20];
        let (mut at, mut rest) = (digits.len(), milliseconds.min(i64::MAX as u64));
        while rest > 0 || at == digits.len() {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.len += 8 + TIMEOUT.len() + digits.len() - at;
        self.timeout = Some((digits, at));
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn put(&self, into: &mut BytesMut) {
        let mut put = |name: &str, value: &[u8]| {
            into.put_u32(name.len() as u32);
            into.put_slice(name.as_bytes());
            into.put_u32(value.len() as u32);
            into.put_slice(value);
        };
        if let Some((digits, at)) = &self.timeout {
            put(TIMEOUT, &digits[*at..]);
        }
        for (name, value) in &self.own {
            put(name, value);
        }
        for (name, value) in self.lists.iter().flatten().flat_map(|list| list.iter()) {
            put(their_name(name), value);
        }
    }
}

fn their_name(name: &str) -> &str {
    if name == AUTHORIZATION { AUTH } else { name }
}
