//! Limits on the input of a connection.

/// Limits on the input of a connection. Nothing is allocated by a length before its bytes have arrived, so a
/// connection keeps at most one packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Topic aliases of each direction. Default 16.
    pub aliases_max: u16,
    /// Longest client identifier, in bytes. Default 256.
    pub client_id_bytes_max: u32,
    /// Filters of one SUBSCRIBE or UNSUBSCRIBE. Default 100.
    pub filters_max: u32,
    /// Largest packet without its first byte and its length, in bytes. Default 256 KiB.
    pub packet_bytes_max: u32,
    /// Messages of QoS 1 and 2 of a client that are not acknowledged; at least 1. Default 100. Clients of version 5
    /// are held to it, and others have no such limit.
    pub receive_max: u16,
    /// Longest topic name or filter, in bytes. Default 1 KiB.
    pub topic_bytes_max: u32,
    /// User properties of one packet. Default 32.
    pub user_properties_max: u32,
    /// Largest user property, name and value, in bytes. Default 1 KiB.
    pub user_property_bytes_max: u32,
    /// Largest payload of a will, in bytes. Default 64 KiB.
    pub will_bytes_max: u32,
}

impl Limits {
    /// Returns the defaults of a client: those of a server, for packets of up to 16 MiB.
    pub fn client() -> Limits {
        Limits { packet_bytes_max: 16 << 20, ..Limits::server() }
    }

    /// Returns the defaults of a server.
    pub fn server() -> Limits {
        Limits {
            aliases_max: 16,
            client_id_bytes_max: 256,
            filters_max: 100,
            packet_bytes_max: 256 << 10,
            receive_max: 100,
            topic_bytes_max: 1 << 10,
            user_properties_max: 32,
            user_property_bytes_max: 1 << 10,
            will_bytes_max: 64 << 10,
        }
    }
}
