//! W3C trace context: taken from the metadata of a call, seen by its handler, and handed on by its calls.
//!
//! `traceparent` and `tracestate` (<https://www.w3.org/TR/trace-context/>) are metadata like any other, so every wire
//! that carries metadata carries them. A call without them costs a look at a list that is empty as a rule. Spans of
//! `tracing` are made, one for each call, when a subscriber takes the target `switchboard::call` at the level `info`;
//! the calls that a handler makes then name this span as their parent. Nobody else records spans here, and context is
//! then handed on as it came, which is what the specification asks of those who take no part.

use crate::{Metadata, Peer};
use bytes::Bytes;
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};
use switchboard_wire::{MethodInfo, ServiceInfo};
use tracing::{Level, Span};

/// Metadata of this name has the ids of the trace and of the calling span.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// What the systems that trace add to it.
pub(crate) const TRACESTATE: &str = "tracestate";

/// The sampled flag.
const SAMPLED: u8 = 1;

/// The trace that a call is part of.
#[derive(Clone, Debug)]
pub struct Trace {
    id: [u8; 16],
    /// The span that called; zero if this call begins the trace.
    parent: [u8; 8],
    /// The span of this call; its caller's where nobody records one here.
    span: [u8; 8],
    flags: u8,
    state: Option<Bytes>,
    /// Entered while the handler runs.
    recorded: Span,
}

/// The trace of a call that came with this metadata, if it is part of one or if a subscriber wants its span.
#[inline]
pub(crate) fn begin(
    metadata: &Metadata,
    peer: &Peer,
    service: &ServiceInfo,
    method: &MethodInfo,
) -> Option<Arc<Trace>> {
    let is_wanted = tracing::span_enabled!(target: "switchboard::call", Level::INFO);
    if metadata.is_empty() && !is_wanted {
        return None;
    }
    begin_slowly(metadata, peer, service, method, is_wanted)
}

fn begin_slowly(
    metadata: &Metadata,
    peer: &Peer,
    service: &ServiceInfo,
    method: &MethodInfo,
    is_wanted: bool,
) -> Option<Arc<Trace>> {
    let carried = Trace::of(metadata);
    if !is_wanted {
        return carried.map(Arc::new);
    }
    let mut trace = carried.unwrap_or_else(|| {
        let [high, low] = [random().to_be_bytes(), random().to_be_bytes()];
        let mut id = [0; 16];
        id[..8].copy_from_slice(&high);
        id[8..].copy_from_slice(&low);
        Trace { id, parent: [0; 8], span: [0; 8], flags: SAMPLED, state: None, recorded: Span::none() }
    });
    trace.span = random().to_be_bytes();
    trace.recorded = tracing::info_span!(
        target: "switchboard::call",
        "call",
        rpc.service = service.name,
        rpc.method = method.name,
        wire = peer.wire,
        peer = peer.address,
        trace_id = %trace.id(),
        span_id = %Hex(&trace.span),
        parent_id = %Hex(&trace.parent),
    );
    Some(Arc::new(trace))
}

/// Not zero, and not to be guessed from earlier ones.
fn random() -> u64 {
    RandomState::new().hash_one(0).max(1)
}

impl Trace {
    /// What the metadata says; none where it says nothing that the specification knows.
    pub(crate) fn of(metadata: &Metadata) -> Option<Trace> {
        let (id, parent, flags) = parse(metadata.value(TRACEPARENT)?)?;
        let state = metadata.value(TRACESTATE).cloned();
        Some(Trace { id, parent, span: parent, flags, state, recorded: Span::none() })
    }

    /// A span of our own in this trace, or in a new one; none where it is not to be recorded. Of new ones `share` are.
    #[cfg(feature = "otlp")]
    pub(crate) fn recorded_here(before: Option<&Trace>, share: f64) -> Option<Trace> {
        let Some(before) = before else {
            let part = random() as f64 / u64::MAX as f64;
            return (part < share || share >= 1.0).then(|| Trace::anew(SAMPLED));
        };
        let span = random().to_be_bytes();
        before.is_sampled().then(|| Trace { parent: before.span, span, ..before.clone() })
    }

    /// A trace that begins here.
    #[cfg(feature = "otlp")]
    fn anew(flags: u8) -> Trace {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random().to_be_bytes());
        id[8..].copy_from_slice(&random().to_be_bytes());
        let span = random().to_be_bytes();
        Trace { id, parent: [0; 8], span, flags, state: None, recorded: Span::none() }
    }

    /// The id of the trace: 32 lower-case hexadecimal digits.
    pub fn id(&self) -> String {
        Hex(&self.id).to_string()
    }

    /// The id of the span that called, 16 such digits; none where the trace begins with this call.
    pub fn parent_id(&self) -> Option<String> {
        (self.parent != [0; 8]).then(|| Hex(&self.parent).to_string())
    }

    /// The id of the span of this call: that of its caller, where nobody records spans here.
    pub fn span_id(&self) -> String {
        Hex(&self.span).to_string()
    }

    /// Whether the caller may have recorded it.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// What the systems that trace have added, as it came.
    pub fn state(&self) -> Option<&str> {
        self.state.as_ref().and_then(|state| std::str::from_utf8(state).ok())
    }

    /// The `traceparent` of calls that this one makes.
    pub fn traceparent(&self) -> String {
        // Other flags than that of version 0 are not ours to hand on.
        format!("00-{}-{}-{:02x}", Hex(&self.id), Hex(&self.span), self.flags & SAMPLED)
    }

    /// Adds it to the metadata of a call, unless its caller has chosen a trace.
    pub(crate) fn add_to(&self, metadata: &mut Metadata) {
        if metadata.value(TRACEPARENT).is_some() {
            return;
        }
        // Digits are fine as a value, and the state came as one.
        let _ = metadata.insert(TRACEPARENT, self.traceparent());
        if let Some(state) = &self.state {
            let _ = metadata.insert(TRACESTATE, state.clone());
        }
    }

    /// The span in which the handler runs.
    pub(crate) fn recorded(&self) -> &Span {
        &self.recorded
    }
}

/// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`; versions to come may have more at the end.
fn parse(text: &[u8]) -> Option<([u8; 16], [u8; 8], u8)> {
    let [version] = hex(text.get(..2)?)?;
    let id = hex(text.get(3..35)?)?;
    let parent = hex(text.get(36..52)?)?;
    let [flags] = hex(text.get(53..55)?)?;
    let dashes = [2, 35, 52].into_iter().all(|at| text[at] == b'-');
    let end = match text.get(55) {
        None => true,
        Some(next) => version > 0 && *next == b'-',
    };
    (version != 0xFF && dashes && end && id != [0; 16] && parent != [0; 8]).then_some((id, parent, flags))
}

/// Lower-case digits only, as the specification has it.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(text: &str) -> Option<Trace> {
        let mut metadata = Metadata::new();
        metadata.insert(TRACEPARENT, text.to_owned()).unwrap();
        Trace::of(&metadata)
    }

    #[test]
    fn context_is_read_and_handed_on() {
        let trace = of(EXAMPLE).unwrap();
        assert_eq!(trace.id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(trace.parent_id().as_deref(), Some("b7ad6b7169203331"));
        assert!(trace.is_sampled());
        assert_eq!(trace.traceparent(), EXAMPLE);
        // A later version is read as far as it is known, and handed on as version 0.
        let later = of(&format!("{}-more", EXAMPLE.replacen("00", "cc", 1))).unwrap();
        assert_eq!(later.traceparent(), EXAMPLE);
    }

    #[test]
    fn what_is_no_context_is_none() {
        for bad in [
            "",
            "00",
            &EXAMPLE[..54],
            &format!("{EXAMPLE}-more"),
            &EXAMPLE.to_uppercase(),
            &EXAMPLE.replacen("00", "ff", 1),
            &EXAMPLE.replace('-', "_"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        ] {
            assert!(of(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn own_choice_of_the_caller_stays() {
        let mut metadata = Metadata::new();
        metadata.insert(TRACEPARENT, "mine").unwrap();
        of(EXAMPLE).unwrap().add_to(&mut metadata);
        assert_eq!((metadata.text(TRACEPARENT), metadata.len()), (Some("mine"), 1));
    }
}
