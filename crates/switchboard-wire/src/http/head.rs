//! Head of a request, gathered field by field.

use super::{
    dialect::grpc::{ContentType, Form},
    fields::{DecodedField, joined_values},
};
use crate::{Encoding, Encodings, Metadata, MethodId, metadata::Name};
use bytes::Bytes;
use std::time::Duration;

/// Fields that a request has at most once, as bits.
mod once {
    pub(super) const METHOD: u16 = 1;
    pub(super) const PATH: u16 = 1 << 1;
    pub(super) const SCHEME: u16 = 1 << 2;
    pub(super) const AUTHORITY: u16 = 1 << 3;
    pub(super) const CONTENT_LENGTH: u16 = 1 << 4;
    pub(super) const REQUIRED: u16 = METHOD | PATH | SCHEME;
}

/// Head of a request.
#[derive(Debug)]
pub struct RequestHead {
    /// Fields that were seen, of [`once`].
    seen: u16,
    /// A field that is not a pseudo-field was seen.
    has_regular: bool,
    malformed: Option<&'static str>,
    /// The method is POST.
    pub is_post: bool,
    /// The path, if it is one of a declared method.
    pub method: Option<MethodId>,
    /// Any other path.
    pub path: Bytes,
    /// The content type; `Other` if there is none.
    pub content_type: ContentType,
    /// Length of the body, if the request states it.
    pub content_length: Option<u64>,
    /// Time that is left for the call.
    pub timeout: Option<Duration>,
    /// A malformed timeout.
    pub bad_timeout: Option<Bytes>,
    /// Encoding of compressed messages.
    pub encoding: Encoding,
    /// Name of an unknown encoding.
    pub unknown_encoding: Option<Bytes>,
    /// Encodings of replies that the caller accepts.
    pub accepted: Encodings,
    /// Metadata of the caller, at most one entry more than the limit.
    pub metadata: Metadata,
    /// Name of binary metadata that is not base64.
    pub not_base64: Option<Name>,
    entries_max: usize,
}

/// Head of a call that has nothing unusual, for the cache of whole blocks.
#[derive(Clone, Copy, Debug)]
pub struct PlainHead {
    /// The method.
    pub method: MethodId,
    /// The content type.
    pub form: Form,
    /// Time that is left for the call.
    pub timeout: Option<Duration>,
    /// Encoding of compressed messages.
    pub encoding: Encoding,
    /// Encodings of replies that the caller accepts.
    pub accepted: Encodings,
}

impl RequestHead {
    /// Creates an empty head; more metadata than `entries_max` is not stored.
    pub fn new(entries_max: usize) -> RequestHead {
        RequestHead {
            seen: 0,
            has_regular: false,
            malformed: None,
            is_post: false,
            method: None,
            path: Bytes::new(),
            content_type: ContentType::Other,
            content_length: None,
            timeout: None,
            bad_timeout: None,
            encoding: Encoding::Identity,
            unknown_encoding: None,
            accepted: Encodings::NONE,
            metadata: Metadata::new(),
            not_base64: None,
            entries_max,
        }
    }

    /// Adds a field.
    pub fn add(&mut self, field: &DecodedField) {
        match field {
            DecodedField::Method(is_post) => {
                self.pseudo(once::METHOD);
                self.is_post = *is_post;
                return;
            }
            DecodedField::Path(method) => {
                self.pseudo(once::PATH);
                self.method = Some(*method);
                return;
            }
            DecodedField::OtherPath(path) => {
                self.pseudo(once::PATH);
                self.path = path.clone();
                return;
            }
            DecodedField::Scheme => return self.pseudo(once::SCHEME),
            DecodedField::Authority => return self.pseudo(once::AUTHORITY),
            DecodedField::ContentType(kind) => self.content_type = *kind,
            DecodedField::ContentLength(length) => {
                self.once(once::CONTENT_LENGTH);
                self.content_length = Some(*length);
            }
            DecodedField::Timeout(timeout) => self.timeout = Some(*timeout),
            DecodedField::BadTimeout(text) => self.bad_timeout = Some(text.clone()),
            DecodedField::Encoding(encoding) => self.encoding = *encoding,
            DecodedField::UnknownEncoding(name) => self.unknown_encoding = Some(name.clone()),
            DecodedField::AcceptEncoding(accepted) => self.accepted.0 |= accepted.0,
            DecodedField::Ignored => {}
            DecodedField::Metadata(name, value) => self.entry(name, value),
            DecodedField::JoinedMetadata(name, joined) => {
                let room = (self.entries_max + 1).saturating_sub(self.metadata.len());
                joined_values(joined).take(room).for_each(|value| self.entry(name, &value));
            }
            DecodedField::NotBase64(name) => self.not_base64 = Some(name.clone()),
            DecodedField::Malformed(reason) => {
                self.malformed.get_or_insert(reason);
            }
        }
        self.has_regular = true;
    }

    fn entry(&mut self, name: &Name, value: &Bytes) {
        if self.metadata.len() <= self.entries_max {
            self.metadata.append(name, value);
        }
    }

    fn pseudo(&mut self, field: u16) {
        if self.has_regular {
            self.malformed.get_or_insert("a pseudo-field behind other fields");
        }
        self.once(field);
    }

    fn once(&mut self, field: u16) {
        if self.seen & field != 0 {
            self.malformed.get_or_insert("a field that may occur once only occurs twice");
        }
        self.seen |= field;
    }

    /// Returns the reason why the head is malformed (RFC 9113, section 8.1.1), if it is.
    pub fn malformed(&self) -> Option<&'static str> {
        let is_complete = self.seen & once::REQUIRED == once::REQUIRED;
        self.malformed.or((!is_complete).then_some("a request without :method, :scheme or :path"))
    }

    /// Returns the reason why the fields are no valid trailers, if they are not.
    pub fn malformed_trailers(&self) -> Option<&'static str> {
        let has_pseudo = self.seen & (once::REQUIRED | once::AUTHORITY) != 0;
        self.malformed.or(has_pseudo.then_some("trailers with a pseudo-field"))
    }

    /// Returns true if there are more metadata entries than the limit.
    pub fn has_too_many_entries(&self) -> bool {
        self.metadata.len() > self.entries_max
    }

    /// Returns the head of a call of a declared method that has no metadata and nothing unusual.
    pub fn plain(&self) -> Option<PlainHead> {
        let is_plain = self.is_post
            && self.content_length.is_none()
            && self.bad_timeout.is_none()
            && self.unknown_encoding.is_none()
            && self.not_base64.is_none()
            && self.metadata.is_empty()
            && self.malformed().is_none();
        let (ContentType::Grpc(form), Some(method), true) = (self.content_type, self.method, is_plain) else {
            return None;
        };
        let (timeout, encoding, accepted) = (self.timeout, self.encoding, self.accepted);
        Some(PlainHead { method, form, timeout, encoding, accepted })
    }
}

impl PlainHead {
    /// Returns the head as the fields give it.
    pub fn into_head(self, entries_max: usize) -> RequestHead {
        RequestHead {
            seen: once::REQUIRED,
            has_regular: true,
            is_post: true,
            method: Some(self.method),
            content_type: ContentType::Grpc(self.form),
            timeout: self.timeout,
            encoding: self.encoding,
            accepted: self.accepted,
            ..RequestHead::new(entries_max)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MethodTable;

    fn head(fields: &[(&str, &str)]) -> RequestHead {
        let (mut head, table) = (RequestHead::new(2), MethodTable::default());
        for (name, value) in fields {
            head.add(&DecodedField::of_http2(name.as_bytes(), value.as_bytes(), &table));
        }
        head
    }

    const GOOD: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), ("te", "trailers")];

    #[test]
    fn requests_have_their_pseudo_fields_once_and_first() {
        assert_eq!(head(&GOOD).malformed(), None);
        for (at, field) in GOOD.into_iter().enumerate().take(3) {
            let mut twice = GOOD.to_vec();
            twice.insert(at, field);
            assert!(head(&twice).malformed().is_some(), "twice: {at}");
            let mut late = GOOD.to_vec();
            late.remove(at);
            assert!(head(&late).malformed().is_some(), "without {field:?}");
            late.push(field);
            assert!(head(&late).malformed().is_some(), "late: {field:?}");
        }
    }

    #[test]
    fn trailers_have_no_pseudo_fields() {
        assert_eq!(head(&[("x-a", "1")]).malformed_trailers(), None);
        assert!(head(&[(":path", "/")]).malformed_trailers().is_some());
        assert!(head(&[("Upper", "1")]).malformed_trailers().is_some());
    }

    #[test]
    fn metadata_is_stored_up_to_the_limit_and_no_further() {
        let mut fields = GOOD.to_vec();
        fields.extend([("a", "1"), ("b-bin", "AA,AA,AA,AA"), ("c", "2")]);
        let head = head(&fields);
        assert!(head.has_too_many_entries() && head.metadata.len() == 3);
    }
}
