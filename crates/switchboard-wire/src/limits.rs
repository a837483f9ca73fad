//! Limits on the memory that a peer can use.

/// Limits of one connection's wire. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Largest accepted message. Default 4 MiB.
    pub message_bytes_max: u32,
    /// Largest metadata block of a call, reply or end. Default 16 KiB.
    pub metadata_bytes_max: u32,
    /// Largest number of entries in a metadata block. Default 64.
    pub metadata_entries_max: u32,
    /// Largest number of methods that a client may name on one connection. Default 1024.
    pub methods_max: u16,
    /// Largest number of calls in flight on one connection; further calls are rejected. Default 10000.
    pub calls_max: u32,
    /// Bytes of one stream that a sender may send ahead of the reader. Default 256 KiB.
    pub stream_window_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            message_bytes_max: 4 << 20,
            metadata_bytes_max: 16 << 10,
            metadata_entries_max: 64,
            methods_max: 1024,
            calls_max: 10_000,
            stream_window_bytes: 256 << 10,
        }
    }
}
