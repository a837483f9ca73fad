//! The table of calls with their expected outcomes.

use crate::{
    probe::{FAIL, FAIL_LATE, HEAD, TAIL, failure},
    spec::{Body, CallSpec, Failure, Outcome, own},
};
use std::time::Duration;
use switchboard::{Code, Kind};

/// Time that a call may lose in transit; generous, so that only a wrong deadline exceeds it.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(60);
/// Not a whole number of milliseconds.
pub(crate) const TIMEOUT: Duration = Duration::from_nanos(600_123_456_789);
/// The server's `message_bytes_max`.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 300_000;

const TOO_LARGE: &str = "a message that is too large";

/// One line of the table.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) spec: CallSpec,
    pub(crate) wanted: Wanted,
}

impl Case {
    pub(crate) fn is_too_large(&self) -> bool {
        self.name == TOO_LARGE
    }
}

/// The expected outcome of a call.
pub(crate) enum Wanted {
    /// A handler ran, with this outcome.
    Outcome(Outcome),
    /// No handler ran; the text of the failure has these parts.
    Refused { code: Code, parts: &'static [&'static str] },
}

fn spec(method: &'static str, kind: Kind, texts: &[&str]) -> CallSpec {
    let messages = texts.iter().map(|text| Body::Text((*text).to_owned())).collect();
    CallSpec { method, kind, messages, metadata: Vec::new(), timeout: None }
}

fn say(text: &str) -> CallSpec {
    spec("Say", Kind::Unary, &[text])
}

fn answer(texts: &[&str]) -> Outcome {
    let messages = texts.iter().map(|text| (*text).to_owned()).collect();
    Outcome { messages, failure: None, head: own(&HEAD), trailers: own(&TAIL) }
}

fn said(name: &'static str, text: &str) -> Case {
    Case { name, spec: say(text), wanted: Wanted::Outcome(answer(&[text])) }
}

/// The outcome of a handler that failed after these messages.
fn failed(texts: &[&str]) -> Outcome {
    let failure = Some(Failure::from(&failure()));
    Outcome { failure, head: Vec::new(), trailers: Vec::new(), ..answer(texts) }
}

/// The outcome of a handler that set head and trailers before it failed.
fn failed_late() -> Outcome {
    Outcome { failure: Some(Failure::from(&failure())), ..answer(&[]) }
}

pub(crate) fn all() -> Vec<Case> {
    let case = |name, spec, wanted| Case { name, spec, wanted: Wanted::Outcome(wanted) };
    let refused = |name, spec, code, parts| Case { name, spec, wanted: Wanted::Refused { code, parts } };
    let large = "0123456789abcdef".repeat(200_000 / 16);
    let metadata = own(&[
        ("x-spec", b"one"),
        ("x-spec", b"two, with a comma"),
        ("x-spec-bin", b"\0\xff\x80"),
        ("authorization", b"Bearer abc=="),
        ("x.dots_and-dashes", b"~ !"),
    ]);
    let chat = |texts| spec("Chat", Kind::Bidi, texts);
    let join = |texts| spec("Join", Kind::ClientStream, texts);
    vec![
        said("unary", "hello"),
        said("an empty message", ""),
        said("a large message", &large),
        said("unicode", "\u{e9}\u{4e16}\u{1f980}\u{0}\u{7f}\"\\\n\u{2028}"),
        case("metadata", CallSpec { metadata: metadata.clone(), ..say("hello") }, answer(&["hello"])),
        case("a deadline", CallSpec { timeout: Some(TIMEOUT), ..say("hello") }, answer(&["hello"])),
        case("a failure", say(FAIL), failed(&[])),
        case("a failure after head and trailers", say(FAIL_LATE), failed_late()),
        case(
            "a server stream",
            CallSpec {
                timeout: Some(TIMEOUT),
                metadata: metadata.clone(),
                ..spec("Count", Kind::ServerStream, &["a"])
            },
            answer(&["1 a", "2 a", "3 a"]),
        ),
        case(
            "a server stream that fails",
            spec("Count", Kind::ServerStream, &[FAIL]),
            failed(&["1 fail", "2 fail", "3 fail"]),
        ),
        case(
            "a client stream",
            CallSpec { timeout: Some(TIMEOUT), metadata: metadata.clone(), ..join(&["a", "", "c"]) },
            answer(&["ac"]),
        ),
        case("an empty client stream", join(&[]), answer(&[""])),
        case("a client stream that fails", join(&["a", FAIL]), failed(&[])),
        case(
            "streams both ways",
            CallSpec { timeout: Some(TIMEOUT), metadata, ..chat(&["a", "", "c"]) },
            answer(&["<a>", "<>", "<c>"]),
        ),
        case("streams both ways that fail", chat(&["a", FAIL]), failed(&["<a>", "<fail>"])),
        case(
            "streams both ways that fail after head and trailers",
            chat(&["a", FAIL_LATE]),
            Outcome { trailers: own(&TAIL), ..failed(&["<a>", "<fail late>"]) },
        ),
        case(
            "a client stream that fails after head and trailers",
            join(&["a", FAIL_LATE]),
            Outcome { failure: Some(Failure::from(&failure())), ..answer(&[]) },
        ),
        refused(
            "an unknown method",
            CallSpec { method: "Missing", ..say("") },
            Code::Unimplemented,
            &["Missing"],
        ),
        refused(
            "a bad message",
            CallSpec { messages: vec![Body::Bad], ..say("") },
            Code::InvalidArgument,
            &["message is no "],
        ),
        refused(TOO_LARGE, say(&large.repeat(2)), Code::ResourceExhausted, &["300000", "message_bytes_max"]),
    ]
}
