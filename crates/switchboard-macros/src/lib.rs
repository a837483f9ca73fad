//! switchboard-macros
