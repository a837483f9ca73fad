//! switchboard-build
