//! The wires that callers of a run may use, with their limitations. WebSockets and TLS cannot run over in-memory pipes.

use switchboard_wire::{Code, Codec, Status};

/// A wire, as options of an address.
pub(super) struct Wire {
    /// Options of the address.
    pub(super) options: &'static str,
    pub(super) codec: Codec,
    /// Kinds of streaming calls that the wire carries.
    pub(super) streams: Streams,
    /// Maximum size of the filler of a message in bytes.
    pub(super) bytes_max: u32,
    /// True when servers get the metadata of a call, by which they recognize a retry.
    pub(super) metadata: bool,
    /// True when messages are compressed on request of a channel or a call.
    pub(super) compresses: bool,
    pub(super) error_detail: ErrorDetail,
}

/// Kinds of calls that a wire carries beside unary ones.
#[derive(Clone, Copy)]
pub(super) struct Streams {
    pub(super) replies: bool,
    pub(super) requests: bool,
    pub(super) both: bool,
}

/// Details of a failure that a wire carries.
pub(super) enum ErrorDetail {
    /// Code, text and retry advice.
    Full,
    /// An error number of brpc, and a text.
    BrpcNumber,
    /// No details.
    Nothing,
}

const ALL: Streams = Streams { replies: true, requests: true, both: true };
const NONE: Streams = Streams { replies: false, requests: false, both: false };
#[cfg(feature = "http")]
const NO_BIDI: Streams = Streams { both: false, ..ALL };

/// A wire that carries everything.
const fn full(options: &'static str) -> Wire {
    Wire {
        options,
        codec: Codec::Proto,
        streams: ALL,
        bytes_max: 100_000,
        metadata: true,
        compresses: true,
        error_detail: ErrorDetail::Full,
    }
}

/// A wire for unary calls.
const fn unary(options: &'static str) -> Wire {
    Wire { streams: NONE, ..full(options) }
}

#[cfg(feature = "http")]
const fn json_rpc(options: &'static str) -> Wire {
    // Fillers are encoded as lists of numbers there.
    Wire { codec: Codec::Json, bytes_max: 5000, compresses: false, ..unary(options) }
}

const fn thrift(options: &'static str) -> Wire {
    Wire { codec: Codec::Thrift, metadata: false, compresses: false, ..unary(options) }
}

/// All wires of the simulation.
pub(super) const WIRES: &[Wire] = &[
    Wire { codec: Codec::Postcard, ..full("") },
    full("wire=baidu_std&checksum=crc32c"),
    #[cfg(feature = "http")]
    full("wire=connect"),
    #[cfg(feature = "http")]
    Wire { streams: NO_BIDI, ..full("wire=connect&http=1") },
    unary("wire=erpc"),
    unary("wire=erpc&framing=proto&filter=gzip"),
    #[cfg(feature = "http")]
    full("wire=grpc"),
    #[cfg(feature = "http")]
    full("wire=grpc-web"),
    #[cfg(feature = "http")]
    Wire { streams: NO_BIDI, ..full("wire=grpc-web&http=1") },
    #[cfg(feature = "http")]
    full("wire=grpc-web-text"),
    Wire {
        error_detail: ErrorDetail::BrpcNumber,
        ..unary("wire=hulu&index=sim.Work/Read:0&index=sim.Work/Write:1&index=sim.Work/Post:5")
    },
    #[cfg(feature = "http")]
    json_rpc("wire=jsonrpc"),
    #[cfg(feature = "http")]
    json_rpc("wire=jsonrpc&http=2"),
    Wire {
        // A frame has at most 64 KiB.
        bytes_max: 60_000,
        metadata: false,
        error_detail: ErrorDetail::Nothing,
        ..unary(
            "wire=kiss&heartbeats=true&function=sim.Work/Read:1&function=sim.Work/Write:2&function=sim.Work/Post:6",
        )
    },
    unary("wire=rpcx"),
    unary("wire=rpcx&network=http"),
    Wire { metadata: false, error_detail: ErrorDetail::BrpcNumber, ..unary("wire=sofa") },
    thrift("wire=thrift"),
    thrift("wire=thrift&framed=false"),
    #[cfg(feature = "http")]
    Wire { metadata: true, ..thrift("wire=thrift&path=/thrift") },
    thrift("wire=thrift&protocol=compact"),
    Wire { metadata: true, ..thrift("wire=thrift&protocol=header") },
    // Last: `wire` selects it in place of every other one of gRPC, so that the seeds of the others stay theirs.
    #[cfg(feature = "http")]
    full(OWN_GRPC),
];

const GRPC: &str = "wire=grpc";
const OWN_GRPC: &str = "wire=grpc&engine=own";

/// Returns the wire of a number.
pub(super) fn wire(number: usize) -> &'static Wire {
    let all = WIRES.len() - usize::from(cfg!(feature = "http"));
    let wire = &WIRES[number % all];
    if wire.options == GRPC && (number / all) % 2 == 1 { &WIRES[all] } else { wire }
}

/// Aliases for methods that wires call by number: alias and name.
pub(super) const ALIASES: [(&str, &str); 3] =
    [("kiss/1", "sim.Work/Read"), ("kiss/2", "sim.Work/Write"), ("kiss/6", "sim.Work/Post")];

impl Wire {
    /// Name for messages.
    pub(super) fn name(&self) -> &'static str {
        // The numbers of methods are left out.
        let numbers = ["&index=", "&function="];
        let end = numbers.iter().find_map(|numbers| self.options.find(numbers)).unwrap_or(self.options.len());
        let name = &self.options[..end];
        if name.is_empty() { "native" } else { name }
    }

    /// Returns the address with the options of this wire.
    pub(super) fn at(&self, address: &str) -> String {
        let join = if self.options.is_empty() { "" } else { "?" };
        format!("{address}{join}{}", self.options)
    }

    /// Returns true when the wire may have turned a failure with another code into this status.
    pub(super) fn loses_code(&self, status: &Status) -> bool {
        let text = status.message();
        match self.error_detail {
            ErrorDetail::Full => false,
            ErrorDetail::BrpcNumber => {
                status.code() == Code::Internal
                    && ["halfway", "nothing there", "going away"].iter().any(|why| text.contains(why))
            }
            ErrorDetail::Nothing => status.code() == Code::Unknown && text.contains("carries no reason"),
        }
    }
}

mod tests {
    use super::*;
    use switchboard_wire::WireId;

    #[test]
    fn every_wire_of_channels_is_simulated() {
        let of = |wire: &Wire| {
            let name = wire.options.strip_prefix("wire=").unwrap_or("native");
            WireId::named(name.split('&').next().unwrap_or(name)).unwrap()
        };
        for id in WireId::built_in_all().filter(|id| id.spec().is_callable()) {
            let is_in_this_build =
                cfg!(feature = "http") || id.spec().server.is_some() && id != WireId::JSON_RPC;
            assert!(!is_in_this_build || WIRES.iter().any(|wire| of(wire) == id), "{id} is not simulated");
        }
        for wire in WIRES {
            let (capabilities, name) = (&of(wire).spec().capabilities, wire.name());
            assert!(capabilities.codecs.contains(&wire.codec), "{name}: {}", wire.codec);
            assert!(!wire.metadata || capabilities.metadata, "{name}: metadata");
            let has_all = capabilities.streams == switchboard_wire::spec::Streams::All;
            assert!(!wire.streams.requests || has_all, "{name}: streams");
            let most = capabilities.message_bytes_max;
            assert!(most.is_none_or(|most| wire.bytes_max <= most), "{name}: messages");
        }
    }
}
