//! Limits on the input of a connection.

/// Limits on what a device may send to a [`Server`](super::Server). A connection keeps at most one packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest number of operations in the list of an authentication or of a packet. Default 1024.
    pub accepts_max: u32,
    /// Largest body of a packet in bytes. Default 4096, which goim has.
    pub body_bytes_max: u32,
    /// Longest key of a device in bytes. Default 256.
    pub key_bytes_max: u32,
    /// Longest name of a platform in bytes. Default 64.
    pub platform_bytes_max: u32,
    /// Longest key of a room, `type://id`, in bytes. Default 256.
    pub room_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            accepts_max: 1024,
            body_bytes_max: 4096,
            key_bytes_max: 256,
            platform_bytes_max: 64,
            room_bytes_max: 256,
        }
    }
}

/// Limits on what a server may send to a [`Client`](super::Client), and on its requests in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PushLimits {
    /// Largest body of a packet in bytes, a container included. Default 16 MiB.
    pub body_bytes_max: u32,
    /// Largest number of requests whose replies have not arrived. Default 1024.
    pub requests_max: u32,
}

impl Default for PushLimits {
    fn default() -> PushLimits {
        PushLimits { body_bytes_max: 16 << 20, requests_max: 1024 }
    }
}
