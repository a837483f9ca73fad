//! The wires that callers of a run may speak, and what each cannot carry. WebSockets and TLS have no pipes in memory.

use crate::{Code, Codec, Status};

/// A wire, as a channel is told to speak it.
pub(super) struct Wire {
    /// Options of addresses.
    pub(super) options: &'static str,
    pub(super) codec: Codec,
    /// Whether calls have replies, requests, or both of them in streams.
    pub(super) streams: Streams,
    /// The largest filler of a message.
    pub(super) bytes_max: u32,
    /// Whether servers see the metadata of a call, by which they know it again.
    pub(super) metadata: bool,
    /// Whether messages may be compressed when a channel or a call asks for it.
    pub(super) compresses: bool,
    pub(super) failures: Failures,
}

/// Which calls are carried that are not unary.
#[derive(Clone, Copy)]
pub(super) struct Streams {
    pub(super) replies: bool,
    pub(super) requests: bool,
    pub(super) both: bool,
}

/// What is told of a failure.
pub(super) enum Failures {
    /// Its code, a text, and what it says of another try.
    Whole,
    /// A number of brpc, and a text.
    Numbered,
    /// That it is one.
    Bare,
}

const ALL: Streams = Streams { replies: true, requests: true, both: true };
const NONE: Streams = Streams { replies: false, requests: false, both: false };
#[cfg(feature = "http")]
const NO_CHAT: Streams = Streams { both: false, ..ALL };

/// One that carries everything.
const fn whole(options: &'static str) -> Wire {
    Wire {
        options,
        codec: Codec::Proto,
        streams: ALL,
        bytes_max: 100_000,
        metadata: true,
        compresses: true,
        failures: Failures::Whole,
    }
}

/// One for unary calls.
const fn unary(options: &'static str) -> Wire {
    Wire { streams: NONE, ..whole(options) }
}

#[cfg(feature = "http")]
const fn json_rpc(options: &'static str) -> Wire {
    // Fillers are lists of numbers there.
    Wire { codec: Codec::Json, bytes_max: 5000, compresses: false, ..unary(options) }
}

const fn thrift(options: &'static str) -> Wire {
    Wire { codec: Codec::Thrift, metadata: false, compresses: false, ..unary(options) }
}

/// The one list.
pub(super) const WIRES: &[Wire] = &[
    Wire { codec: Codec::Postcard, ..whole("") },
    whole("wire=baidu_std&checksum=crc32c"),
    #[cfg(feature = "http")]
    whole("wire=connect"),
    #[cfg(feature = "http")]
    Wire { streams: NO_CHAT, ..whole("wire=connect&http=1") },
    unary("wire=erpc"),
    unary("wire=erpc&framing=proto&filter=gzip"),
    #[cfg(feature = "http")]
    whole("wire=grpc"),
    #[cfg(feature = "http")]
    whole("wire=grpc-web"),
    #[cfg(feature = "http")]
    Wire { streams: NO_CHAT, ..whole("wire=grpc-web&http=1") },
    #[cfg(feature = "http")]
    whole("wire=grpc-web-text"),
    Wire {
        failures: Failures::Numbered,
        ..unary("wire=hulu&index=sim.Work/Read:0&index=sim.Work/Write:1&index=sim.Work/Tell:5")
    },
    #[cfg(feature = "http")]
    json_rpc("wire=jsonrpc"),
    #[cfg(feature = "http")]
    json_rpc("wire=jsonrpc&http=2"),
    Wire {
        // A frame has 64 KiB.
        bytes_max: 60_000,
        metadata: false,
        failures: Failures::Bare,
        ..unary(
            "wire=kiss&heartbeats=true&function=sim.Work/Read:1&function=sim.Work/Write:2&function=sim.Work/Tell:6",
        )
    },
    unary("wire=rpcx"),
    unary("wire=rpcx&network=http"),
    Wire { metadata: false, failures: Failures::Numbered, ..unary("wire=sofa") },
    thrift("wire=thrift"),
    thrift("wire=thrift&framed=false"),
    #[cfg(feature = "http")]
    Wire { metadata: true, ..thrift("wire=thrift&path=/thrift") },
    thrift("wire=thrift&protocol=compact"),
    Wire { metadata: true, ..thrift("wire=thrift&protocol=header") },
];

/// Where servers have what is called by number there: alias and name.
pub(super) const ALIASES: [(&str, &str); 3] =
    [("kiss/1", "sim.Work/Read"), ("kiss/2", "sim.Work/Write"), ("kiss/6", "sim.Work/Tell")];

impl Wire {
    /// For people.
    pub(super) fn name(&self) -> &'static str {
        // Which methods have which numbers is no part of it.
        let numbers = ["&index=", "&function="];
        let end = numbers.iter().find_map(|numbers| self.options.find(numbers)).unwrap_or(self.options.len());
        let name = &self.options[..end];
        if name.is_empty() { "native" } else { name }
    }

    /// An address that is called so.
    pub(super) fn at(&self, address: &str) -> String {
        let join = if self.options.is_empty() { "" } else { "?" };
        format!("{address}{join}{}", self.options)
    }

    /// Whether this is what becomes of a failure that callers of other wires know by its code.
    pub(super) fn blurs(&self, status: &Status) -> bool {
        let text = status.message();
        match self.failures {
            Failures::Whole => false,
            Failures::Numbered => {
                status.code() == Code::Internal
                    && ["half way", "nothing there", "going away"].iter().any(|why| text.contains(why))
            }
            Failures::Bare => status.code() == Code::Unknown && text.contains("carries no reason"),
        }
    }
}
