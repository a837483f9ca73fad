//! The table of calls and what is to come of each.

use crate::{
    asked::{Answer, Asked, Body, Failure, own},
    probe::{FAIL, FAIL_LATE, HEAD, TAIL, failure},
};
use std::time::Duration;
use switchboard::{Code, Kind};

/// How much of its time a call may lose on its way; only what is over by far would be a mistake.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(60);
/// No whole number of milliseconds.
pub(crate) const TIMEOUT: Duration = Duration::from_nanos(600_123_456_789);
/// The server's `message_bytes_max`.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 300_000;

const TOO_LARGE: &str = "a message that is too large";

/// One line of the table.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) asked: Asked,
    pub(crate) wanted: Wanted,
}

impl Case {
    pub(crate) fn is_too_large(&self) -> bool {
        self.name == TOO_LARGE
    }
}

/// What is to come of a call.
pub(crate) enum Wanted {
    /// A handler ran, and this is its answer.
    Answer(Answer),
    /// No handler took note; the text has these parts.
    Refused { code: Code, parts: &'static [&'static str] },
}

fn asked(method: &'static str, kind: Kind, texts: &[&str]) -> Asked {
    let messages = texts.iter().map(|text| Body::Text((*text).to_owned())).collect();
    Asked { method, kind, messages, metadata: Vec::new(), timeout: None }
}

fn say(text: &str) -> Asked {
    asked("Say", Kind::Unary, &[text])
}

fn answer(texts: &[&str]) -> Answer {
    let messages = texts.iter().map(|text| (*text).to_owned()).collect();
    Answer { messages, failure: None, head: own(&HEAD), trailers: own(&TAIL) }
}

fn said(name: &'static str, text: &str) -> Case {
    Case { name, asked: say(text), wanted: Wanted::Answer(answer(&[text])) }
}

/// The answer of a handler that failed after these messages.
fn failed(texts: &[&str]) -> Answer {
    let failure = Some(Failure::from(&failure()));
    Answer { failure, head: Vec::new(), trailers: Vec::new(), ..answer(texts) }
}

/// The answer of a handler that set head and trailers before it failed.
fn failed_late() -> Answer {
    Answer { failure: Some(Failure::from(&failure())), ..answer(&[]) }
}

pub(crate) fn all() -> Vec<Case> {
    let case = |name, asked, wanted| Case { name, asked, wanted: Wanted::Answer(wanted) };
    let refused = |name, asked, code, parts| Case { name, asked, wanted: Wanted::Refused { code, parts } };
    let large = "0123456789abcdef".repeat(200_000 / 16);
    let metadata = own(&[
        ("x-asked", b"one"),
        ("x-asked", b"two, with a comma"),
        ("x-asked-bin", b"\0\xff\x80"),
        ("authorization", b"Bearer abc=="),
        ("x.dots_and-dashes", b"~ !"),
    ]);
    let chat = |texts| asked("Chat", Kind::Bidi, texts);
    let join = |texts| asked("Join", Kind::ClientStream, texts);
    vec![
        said("unary", "hello"),
        said("an empty message", ""),
        said("a large message", &large),
        said("unicode", "\u{e9}\u{4e16}\u{1f980}\u{0}\u{7f}\"\\\n\u{2028}"),
        case("metadata", Asked { metadata: metadata.clone(), ..say("hello") }, answer(&["hello"])),
        case("a deadline", Asked { timeout: Some(TIMEOUT), ..say("hello") }, answer(&["hello"])),
        case("a failure", say(FAIL), failed(&[])),
        case("a failure after head and trailers", say(FAIL_LATE), failed_late()),
        case(
            "a server stream",
            Asked {
                timeout: Some(TIMEOUT),
                metadata: metadata.clone(),
                ..asked("Count", Kind::ServerStream, &["a"])
            },
            answer(&["1 a", "2 a", "3 a"]),
        ),
        case(
            "a server stream that fails",
            asked("Count", Kind::ServerStream, &[FAIL]),
            failed(&["1 fail", "2 fail", "3 fail"]),
        ),
        case(
            "a client stream",
            Asked { timeout: Some(TIMEOUT), metadata: metadata.clone(), ..join(&["a", "", "c"]) },
            answer(&["ac"]),
        ),
        case("an empty client stream", join(&[]), answer(&[""])),
        case("a client stream that fails", join(&["a", FAIL]), failed(&[])),
        case(
            "streams both ways",
            Asked { timeout: Some(TIMEOUT), metadata, ..chat(&["a", "", "c"]) },
            answer(&["<a>", "<>", "<c>"]),
        ),
        case("streams both ways that fail", chat(&["a", FAIL]), failed(&["<a>", "<fail>"])),
        case(
            "streams both ways that fail after head and trailers",
            chat(&["a", FAIL_LATE]),
            Answer { trailers: own(&TAIL), ..failed(&["<a>", "<fail late>"]) },
        ),
        case(
            "a client stream that fails after head and trailers",
            join(&["a", FAIL_LATE]),
            Answer { failure: Some(Failure::from(&failure())), ..answer(&[]) },
        ),
        refused(
            "an unknown method",
            Asked { method: "Missing", ..say("") },
            Code::Unimplemented,
            &["Missing"],
        ),
        refused(
            "a bad message",
            Asked { messages: vec![Body::Bad], ..say("") },
            Code::InvalidArgument,
            &["message is no "],
        ),
        refused(TOO_LARGE, say(&large.repeat(2)), Code::ResourceExhausted, &["300000", "message_bytes_max"]),
    ]
}
