//! Limits on the input of a connection.

/// Limits on the input of a connection. Nothing is allocated by a length before its bytes have arrived, so a
/// connection keeps at most the largest frame or command that these limits allow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest command, its name included, in bytes. Default 16 KiB.
    pub command_bytes_max: u32,
    /// Largest frame of a message, in bytes. Default 64 MiB.
    pub frame_bytes_max: u64,
    /// Largest message, all of its frames together, in bytes. Default 64 MiB.
    pub message_bytes_max: u64,
    /// Largest number of frames in a message. Default 1024.
    pub message_frames_max: u32,
    /// Largest metadata in READY and INITIATE, in bytes. Default 8 KiB.
    pub metadata_bytes_max: u32,
    /// Largest number of properties in the metadata. Default 64.
    pub properties_max: u32,
    /// Longest topic of a subscription, in bytes. Default 4 KiB.
    pub topic_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            command_bytes_max: 16 << 10,
            frame_bytes_max: 64 << 20,
            message_bytes_max: 64 << 20,
            message_frames_max: 1024,
            metadata_bytes_max: 8 << 10,
            properties_max: 64,
            topic_bytes_max: 4 << 10,
        }
    }
}
