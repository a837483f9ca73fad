//! switchboard
