//! Limits on the input of a connection.

/// Limits on what a peer may send. A connection keeps at most one command or reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Longest name of a channel in bytes. Default 256.
    pub channel_bytes_max: u32,
    /// Largest command or reply in bytes. Default 64 KiB.
    pub command_bytes_max: u32,
    /// Largest number of commands in flight. Default 64.
    pub commands_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { channel_bytes_max: 256, command_bytes_max: 64 << 10, commands_max: 64 }
    }
}
