//! Limits on the input of a connection.

/// Limits on the input of a connection. Nothing is allocated by a length before its bytes have arrived, so a
/// connection keeps at most one control line and one payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Longest control line without its line end, in bytes. Default 4 KiB.
    pub control_line_bytes_max: u32,
    /// Largest block of headers, in bytes. Default 64 KiB.
    pub headers_bytes_max: u32,
    /// Largest number of headers in a block. Default 256.
    pub headers_max: u32,
    /// Longest INFO line of a server, in bytes: it may list the addresses of a cluster. Default 32 KiB.
    pub info_bytes_max: u32,
    /// Largest payload with its headers, in bytes. Default 1 MiB for servers, 64 MiB for clients.
    pub payload_bytes_max: u32,
    /// Longest id of a subscription (`sid`), in bytes. Default 256.
    pub sid_bytes_max: u32,
    /// Longest subject, reply subject or name of a queue group that a client may send, in bytes. Default 1 KiB: a
    /// MSG of such a subject and reply with its sid is within the control line.
    pub subject_bytes_max: u32,
}

impl Limits {
    /// Returns the defaults of a client. 64 MiB is the largest payload that a server of NATS can be configured with.
    pub fn client() -> Limits {
        Limits { payload_bytes_max: 64 << 20, ..Limits::server() }
    }

    /// Returns the defaults of a server.
    pub fn server() -> Limits {
        Limits {
            control_line_bytes_max: 4 << 10,
            headers_bytes_max: 64 << 10,
            headers_max: 256,
            info_bytes_max: 32 << 10,
            payload_bytes_max: 1 << 20,
            sid_bytes_max: 256,
            subject_bytes_max: 1 << 10,
        }
    }
}
