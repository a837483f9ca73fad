//! switchboard-wire
