//! What a wire cannot express, and why: the only differences that the test allows.

use switchboard::Kind;

/// Something that is lost on some wires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lack {
    Deadline,
    /// Handlers of streams are not told how long their caller waits.
    DeadlineOfStreams,
    RequestMetadata,
    ReplyMetadata,
    /// Trailers come with the head.
    TrailersApart,
    /// Trailers of unary calls come with the head.
    TrailersOfUnaryApart,
    /// The head of a call that streams requests comes with the trailers.
    HeadWhileRequests,
    FailureMetadata,
    RequestStreams,
    ReplyStreams,
    StreamsBothWays,
    TrailersOfStreams,
    /// Unary calls are seen as another wire's.
    NameOfUnary,
    /// A message that is too large is refused with another code.
    CodeOfLarge,
    /// A failure is a text, and a number of brpc that stands for most codes.
    Code,
    /// A failure says no more than that it is one.
    Reason,
    /// Who does not know the method does not know whether it has streams.
    WordOfStreams,
    /// All wires have this.
    Nothing,
}

/// Wire, what it lacks, and the reason.
const LACKS: &[(&[&str], &[Lack], &str)] = &[
    (&["Connect on HTTP/1.1"], &[Lack::StreamsBothWays], "Connect asks for HTTP/2 there"),
    (&JSON_RPC, &[Lack::RequestStreams, Lack::StreamsBothWays], "a request has its parameters in one text"),
    (
        &["HTTP/JSON"],
        &[Lack::TrailersOfStreams],
        "HTTP/1.1 carries the trailers that the head has announced, and a stream's are not known yet",
    ),
    (&["HTTP/JSON"], &[Lack::NameOfUnary], "a unary call of Connect with JSON is the same request"),
    (&BAIDU_STD, &[Lack::TrailersOfUnaryApart], "a response is one frame"),
    (
        &BAIDU_STD,
        &[Lack::HeadWhileRequests],
        "the response that opens a stream goes out before its requests come, and before a server behind has answered",
    ),
    (
        &BAIDU_STD,
        &[Lack::DeadlineOfStreams],
        "the timeout of a call that opens a stream is that of its opening",
    ),
    (&BAIDU_STD, &[Lack::WordOfStreams], "a request that offers a stream is answered as its method is"),
    (&JSON_RPC, &[Lack::WordOfStreams], "a request has a name and parameters, and no more"),
    (&["HTTP/JSON"], &[Lack::WordOfStreams], "a body is a message, or its lines are, as the method has it"),
    (
        &ERPC,
        &[Lack::ReplyStreams, Lack::RequestStreams, Lack::StreamsBothWays],
        "a message is a whole call, or the whole answer to one",
    ),
    (&ERPC, &[Lack::TrailersApart], "a message has one list of metadata"),
    (
        &RPCX,
        &[Lack::ReplyStreams, Lack::RequestStreams, Lack::StreamsBothWays],
        "a frame is a whole call, or the whole answer to one",
    ),
    (&RPCX, &[Lack::TrailersApart], "a frame has one list of metadata"),
    (
        &KISS,
        &[Lack::ReplyStreams, Lack::RequestStreams, Lack::StreamsBothWays],
        "a frame is a whole call, or the whole answer to one",
    ),
    (&KISS, &[Lack::Deadline, Lack::RequestMetadata, Lack::ReplyMetadata], "a header has no place for them"),
    (&KISS, &[Lack::Reason], "of a failure there is one bit"),
    (
        &OLD_BRPC,
        &[Lack::ReplyStreams, Lack::RequestStreams, Lack::StreamsBothWays],
        "a frame is a whole call, or the whole answer to one",
    ),
    (&OLD_BRPC, &[Lack::Deadline, Lack::ReplyMetadata], "a meta has no fields for them"),
    (&OLD_BRPC, &[Lack::Code, Lack::CodeOfLarge], "of a failure there are a number of brpc and a text"),
    (&["sofa, compressed"], &[Lack::RequestMetadata], "a meta has no fields for it"),
    (&POSTS, &[Lack::ReplyStreams], "a request has one answer, and the body is a batch's"),
    (&POSTS, &[Lack::TrailersApart], "a browser reads no trailers; all are headers"),
    (
        &["JSON-RPC over WebSocket", "channel on JSON-RPC over WebSocket", "JSON-RPC over TCP"],
        &[Lack::Deadline, Lack::ReplyMetadata, Lack::FailureMetadata],
        "a text has no members for them",
    ),
    (
        &["JSON-RPC over TCP", "channel on JSON-RPC over WebSocket"],
        &[Lack::RequestMetadata],
        "a text has no place for it, and a connection that calls share none for that of one",
    ),
    (
        &["channel on JSON-RPC over WebSocket"],
        &[Lack::CodeOfLarge],
        "the connection is closed with a code of its own, and nobody knows for which of its calls",
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

pub(crate) fn lacks(wire: &str, lack: Lack) -> bool {
    LACKS.iter().any(|(wires, lacked, _)| wires.contains(&wire) && lacked.contains(&lack))
}

impl Lack {
    /// What a wire lacks that does not carry this kind of call.
    pub(crate) fn of_kind(kind: Kind) -> Lack {
        match kind {
            Kind::Unary => Lack::Nothing,
            Kind::ServerStream => Lack::ReplyStreams,
            Kind::ClientStream => Lack::RequestStreams,
            Kind::Bidi => Lack::StreamsBothWays,
        }
    }
}
