//! Storage of a metadata list, which a thread reuses: nearly every production call carries a token or a trace, and a
//! few allocations for each would cost as much as the call.

use bytes::Bytes;
use std::{borrow::Cow, cell::RefCell};

/// Entries and attachment of a list that is not empty.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) entries: Vec<Entry>,
    pub(super) attachment: Option<Bytes>,
    pub(super) undeclared_name: Option<crate::UndeclaredName>,
}

pub(super) type Entry = (Cow<'static, str>, Bytes);

/// Number of unused lists that a thread keeps, and the largest entry capacity of such a list.
const KEPT_MAX: usize = 64;
const ENTRIES_MAX: usize = 16;

// Of the thread, because metadata is made and dropped where no connection is at hand: by callers, handlers and
// machines.
thread_local! {
    #[expect(clippy::vec_box, reason = "what a list holds is the box")]
    static KEPT: RefCell<Vec<Box<Parts>>> = const { RefCell::new(Vec::new()) };
}

impl Parts {
    /// Returns an empty list, from the thread's unused ones if possible.
    #[inline]
    pub(super) fn fresh() -> Box<Parts> {
        KEPT.try_with(|kept| kept.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }

    /// Copies the list.
    pub(super) fn copied(&self) -> Box<Parts> {
        let mut copy = Parts::fresh();
        copy.entries.extend_from_slice(&self.entries);
        copy.attachment = self.attachment.clone();
        copy.undeclared_name = self.undeclared_name.clone();
        copy
    }

    /// Clears the list and keeps its memory for reuse.
    pub(super) fn recycle(mut self: Box<Self>) {
        self.entries.clear();
        self.attachment = None;
        self.undeclared_name = None;
        if self.entries.capacity() > ENTRIES_MAX {
            return;
        }
        // A thread that is ending keeps no lists.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(self);
            }
        });
    }
}

/// Returns an owned entry name. Frequent names need no allocation.
#[inline]
pub(super) fn named(name: Cow<'_, str>) -> Cow<'static, str> {
    known(&name).map_or_else(|| Cow::Owned(name.into_owned()), Cow::Borrowed)
}

fn known(name: &str) -> Option<&'static str> {
    Some(match name {
        "accept-language" => "accept-language",
        "authorization" => "authorization",
        "baggage" => "baggage",
        "cookie" => "cookie",
        "grpc-status-details-bin" => "grpc-status-details-bin",
        "idempotency-key" => "idempotency-key",
        "switchboard-priority" => "switchboard-priority",
        "switchboard-strict-fields" => "switchboard-strict-fields",
        "tenant" => "tenant",
        "traceparent" => "traceparent",
        "tracestate" => "tracestate",
        "user-agent" => "user-agent",
        "x-api-key" => "x-api-key",
        "x-forwarded-for" => "x-forwarded-for",
        "x-request-id" => "x-request-id",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_bounded() {
        let mut parts = Parts::fresh();
        parts.entries.push((named("authorization".into()), Bytes::from_static(b"secret")));
        parts.attachment = Some(Bytes::from_static(b"x"));
        let (copy, at) = (parts.copied(), &raw const *parts);
        parts.recycle();
        let again = Parts::fresh();
        assert_eq!(&raw const *again, at);
        assert!(again.entries.is_empty() && again.attachment.is_none(), "nothing of the list before");
        assert_eq!(copy.entries.len(), 1);
        let many: Vec<_> = (0..2 * KEPT_MAX).map(|_| Parts::fresh()).collect();
        many.into_iter().for_each(Parts::recycle);
        assert_eq!(KEPT.with_borrow(Vec::len), KEPT_MAX);
        let mut large = Parts::fresh();
        large.entries.resize(ENTRIES_MAX + 1, (named("a".into()), Bytes::new()));
        large.recycle();
        assert_eq!(KEPT.with_borrow(Vec::len), KEPT_MAX - 1);
    }

    #[test]
    fn names_are_unchanged() {
        for (name, is_known) in [("traceparent", true), ("x-request-id", true), ("x-request-ie", false)] {
            assert_eq!(named(name.into()), name);
            assert_eq!(matches!(named(name.into()), Cow::Borrowed(_)), is_known, "{name}");
        }
    }
}
