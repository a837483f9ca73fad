//! The form of subscriptions in messages: one frame with one of these bytes, then the prefix.

/// First byte of a subscription, and of its end, in the form of a message.
pub(super) const SUBSCRIBE: u8 = 1;
pub(super) const CANCEL: u8 = 0;
