//! Limits on the input of a connection.

/// Limits on what a client may send to a [`Server`](super::Server). Nothing is allocated by a length or a count before
/// its bytes have arrived, so a connection keeps at most one request and its subscriptions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest number of arguments of a request, the command included. Default 1024.
    pub arguments_max: u32,
    /// Largest argument in bytes. Default 16 MiB.
    pub bulk_bytes_max: u32,
    /// Longest name of a channel in bytes. Default 256.
    pub channel_bytes_max: u32,
    /// Longest name that a client gives its connection, in bytes. Default 256.
    pub client_name_bytes_max: u32,
    /// Largest number of patterns of a `CONFIG GET`. Default 16.
    pub config_patterns_max: u32,
    /// Longest inline command in bytes, where inline commands are enabled. Default 8 KiB.
    pub inline_bytes_max: u32,
    /// Largest number of metadata entries of a `CALL`. Default 64.
    pub metadata_entries_max: u32,
    /// Longest pattern of channels in bytes. Default 256.
    pub pattern_bytes_max: u32,
    /// Largest request in bytes, with the lengths of its arguments. Default 17 MiB.
    pub request_bytes_max: u32,
    /// Largest number of channels, shard channels and patterns of a connection, together. Default 1024.
    pub subscriptions_max: u32,
    /// Replaces `arguments_max`, if it is less, before the client is authenticated. Default 10.
    pub unauthenticated_arguments_max: u32,
    /// Replaces `bulk_bytes_max`, if it is less, before the client is authenticated. Default 16 KiB.
    pub unauthenticated_bulk_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            arguments_max: 1024,
            bulk_bytes_max: 16 << 20,
            channel_bytes_max: 256,
            client_name_bytes_max: 256,
            config_patterns_max: 16,
            inline_bytes_max: 8 << 10,
            metadata_entries_max: 64,
            pattern_bytes_max: 256,
            request_bytes_max: 17 << 20,
            subscriptions_max: 1024,
            unauthenticated_arguments_max: 10,
            unauthenticated_bulk_bytes_max: 16 << 10,
        }
    }
}

/// Limits on what a server may send to a [`Client`](super::Client), and on its commands in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplyLimits {
    /// Largest bulk string, bulk error or verbatim string in bytes. Default 64 MiB.
    pub bulk_bytes_max: u32,
    /// Largest number of commands whose replies have not arrived. Default 10 000.
    pub commands_max: u32,
    /// Deepest nesting of aggregates: an array of integers has 1. Default 16.
    pub depth_max: u8,
    /// Largest number of values in a reply, aggregates included. Default 1 048 576.
    pub elements_max: u32,
    /// Longest simple string, error, double or big number in bytes. Default 64 KiB.
    pub line_bytes_max: u32,
    /// Largest reply or push in bytes, with all of its elements. Default 64 MiB.
    pub reply_bytes_max: u32,
}

impl Default for ReplyLimits {
    fn default() -> ReplyLimits {
        ReplyLimits {
            bulk_bytes_max: 64 << 20,
            commands_max: 10_000,
            depth_max: 16,
            elements_max: 1 << 20,
            line_bytes_max: 64 << 10,
            reply_bytes_max: 64 << 20,
        }
    }
}
