//! Features that a wire cannot express, with the reasons: the only differences that the test allows.

use crate::wires::CHANNELS;
use switchboard::{
    Kind,
    wire::{Streams, WIRES},
};

/// A feature that some wires cannot express.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Capability {
    Deadline,
    /// Handlers of streams get the deadline of their caller.
    DeadlineOfStreams,
    RequestMetadata,
    ReplyMetadata,
    /// Trailers are separate from the head.
    TrailersApart,
    /// Trailers of unary calls are separate from the head.
    TrailersOfUnaryApart,
    /// The head of a call that streams requests is sent before the trailers.
    HeadWhileRequests,
    FailureMetadata,
    RequestStreams,
    ReplyStreams,
    StreamsBothWays,
    TrailersOfStreams,
    /// Unary calls have the name of this wire, not that of another one.
    NameOfUnary,
    /// A message that is too large is refused with `ResourceExhausted`.
    CodeOfLarge,
    /// The exact code of a failure; without it, a failure has a text and a number of brpc for most codes.
    Code,
    /// The text and the details of a failure; without it, a failure is one bit.
    Reason,
    /// The kind of a call, for a server that does not know the method.
    KindOfCall,
    /// All wires have this.
    Nothing,
}

/// Wires, the features that they cannot express, and the reason.
const MATRIX: &[(&[&str], &[Capability], &str)] = &[
    (&["Connect on HTTP/1.1"], &[Capability::StreamsBothWays], "Connect requires HTTP/2 for them"),
    (
        &JSON_RPC,
        &[Capability::RequestStreams, Capability::StreamsBothWays],
        "a request has its parameters in one text",
    ),
    (
        &["HTTP/JSON"],
        &[Capability::TrailersOfStreams],
        "HTTP/1.1 carries only trailers that the head has announced, and a stream's are not known yet",
    ),
    (&["HTTP/JSON"], &[Capability::NameOfUnary], "a unary call of Connect with JSON is the same request"),
    (&BAIDU_STD, &[Capability::TrailersOfUnaryApart], "a response is one frame"),
    (
        &BAIDU_STD,
        &[Capability::HeadWhileRequests],
        "the response that opens a stream goes out before its requests come, and before a server behind has answered",
    ),
    (
        &BAIDU_STD,
        &[Capability::DeadlineOfStreams],
        "the timeout of a call that opens a stream is that of its opening",
    ),
    (&BAIDU_STD, &[Capability::KindOfCall], "a request that offers a stream is answered as its method is"),
    (&JSON_RPC, &[Capability::KindOfCall], "a request has a name and parameters, and no more"),
    (
        &["HTTP/JSON"],
        &[Capability::KindOfCall],
        "a body is a message, or its lines are, as the method has it",
    ),
    (
        &ERPC,
        &[Capability::ReplyStreams, Capability::RequestStreams, Capability::StreamsBothWays],
        "a message is a whole call, or the whole answer to one",
    ),
    (&ERPC, &[Capability::TrailersApart], "a message has one list of metadata"),
    (
        &RPCX,
        &[Capability::ReplyStreams, Capability::RequestStreams, Capability::StreamsBothWays],
        "a frame is a whole call, or the whole answer to one",
    ),
    (&RPCX, &[Capability::TrailersApart], "a frame has one list of metadata"),
    (
        &KISS,
        &[Capability::ReplyStreams, Capability::RequestStreams, Capability::StreamsBothWays],
        "a frame is a whole call, or the whole answer to one",
    ),
    (
        &KISS,
        &[Capability::Deadline, Capability::RequestMetadata, Capability::ReplyMetadata],
        "a header has no field for them",
    ),
    (&KISS, &[Capability::Reason], "of a failure there is one bit"),
    (
        &OLD_BRPC,
        &[Capability::ReplyStreams, Capability::RequestStreams, Capability::StreamsBothWays],
        "a frame is a whole call, or the whole answer to one",
    ),
    (&OLD_BRPC, &[Capability::Deadline, Capability::ReplyMetadata], "a meta has no fields for them"),
    (
        &OLD_BRPC,
        &[Capability::Code, Capability::CodeOfLarge],
        "of a failure there are a number of brpc and a text",
    ),
    (&["sofa, compressed"], &[Capability::RequestMetadata], "a meta has no fields for it"),
    (&POSTS, &[Capability::ReplyStreams], "a request has one answer, and the body is a batch's"),
    (&POSTS, &[Capability::TrailersApart], "a browser reads no trailers; all are headers"),
    (
        &["JSON-RPC over WebSocket", "channel on JSON-RPC over WebSocket", "JSON-RPC over TCP"],
        &[Capability::Deadline, Capability::ReplyMetadata, Capability::FailureMetadata],
        "a text has no members for them",
    ),
    (
        &["JSON-RPC over TCP", "channel on JSON-RPC over WebSocket"],
        &[Capability::RequestMetadata],
        "a text has no member for it, and metadata of a connection that calls share is not that of one call",
    ),
    (
        &["channel on JSON-RPC over WebSocket"],
        &[Capability::CodeOfLarge],
        "the connection is closed with a code of its own, which does not name the call",
    ),
];

const BAIDU_STD: [&str; 2] = ["baidu_std", "baidu_std with JSON"];
const ERPC: [&str; 3] = ["erpc", "erpc with JSON", "erpc with protobuf, filtered"];
const KISS: [&str; 1] = ["kiss-rpc, compressed"];
const OLD_BRPC: [&str; 2] = ["hulu", "sofa, compressed"];
const RPCX: [&str; 5] = [
    "rpcx",
    "rpcx with JSON",
    "rpcx over WebSocket",
    "rpcx over WebSocket, compressed",
    "rpcx over http, compressed",
];

const POSTS: [&str; 3] =
    ["JSON-RPC over POST", "channel on JSON-RPC over POST", "channel on JSON-RPC over POST on HTTP/2"];

const JSON_RPC: [&str; 6] = [
    POSTS[0],
    POSTS[1],
    POSTS[2],
    "JSON-RPC over WebSocket",
    "channel on JSON-RPC over WebSocket",
    "JSON-RPC over TCP",
];

pub(crate) fn lacks(wire: &str, capability: Capability) -> bool {
    MATRIX.iter().any(|(wires, lacked, _)| wires.contains(&wire) && lacked.contains(&capability))
}

impl Capability {
    /// Returns the capability that calls of this kind need.
    pub(crate) fn of_kind(kind: Kind) -> Capability {
        match kind {
            Kind::Unary => Capability::Nothing,
            Kind::ServerStream => Capability::ReplyStreams,
            Kind::ClientStream => Capability::RequestStreams,
            Kind::Bidi => Capability::StreamsBothWays,
        }
    }
}

#[test]
fn the_capabilities_of_a_wire_are_those_of_its_channels() {
    for spec in WIRES {
        let channels: Vec<_> = CHANNELS.iter().filter(|(_, wire, _)| *wire == spec.name).collect();
        if channels.is_empty() {
            // Thrift has messages of its own, which its tests compare; the others have no channels.
            assert!(!spec.is_callable() || spec.name == "thrift", "{} has no channel here", spec.name);
            continue;
        }
        let some_has = |capability| channels.iter().any(|(name, ..)| !lacks(name, capability));
        let capabilities = &spec.capabilities;
        for (has, capability) in [
            (capabilities.metadata, Capability::RequestMetadata),
            (capabilities.deadlines, Capability::Deadline),
            (capabilities.streams != Streams::None, Capability::ReplyStreams),
            (capabilities.streams == Streams::All, Capability::RequestStreams),
        ] {
            assert_eq!(some_has(capability), has, "{}: {capability:?}", spec.name);
        }
    }
}
