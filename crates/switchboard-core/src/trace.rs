//! W3C trace context: read from the metadata of a call, available to its handler, and propagated to the calls
//! it makes.
//!
//! `traceparent` and `tracestate` (<https://www.w3.org/TR/trace-context/>) are ordinary metadata, so every
//! wire with metadata carries them. A call without them costs a lookup in a list that is usually empty. If a
//! subscriber enables the target `switchboard::call` at the level `info`, each call gets a `tracing` span,
//! and the calls that its handler makes name this span as their parent. Otherwise no spans are recorded here,
//! and the context is propagated unchanged, as the specification requires of non-participants.

use bytes::Bytes;
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};
use switchboard_wire::{Metadata, MethodInfo, ServiceInfo};
use tracing::{Level, Span};

/// Metadata with the ids of the trace and of the calling span.
pub const TRACEPARENT: &str = "traceparent";
/// Metadata with vendor-specific state of the trace.
pub const TRACESTATE: &str = "tracestate";

/// The sampled flag.
const SAMPLED: u8 = 1;

/// The trace that a call is part of.
#[derive(Clone, Debug)]
pub struct Trace {
    id: [u8; 16],
    /// Span of the caller; zero if the trace starts with this call.
    parent: [u8; 8],
    /// Span of this call; the caller's span if spans are not recorded here.
    span: [u8; 8],
    flags: u8,
    state: Option<Bytes>,
    /// Entered while the handler runs.
    recorded: Span,
}

/// Returns the trace of a call with this metadata, if it belongs to one or if a subscriber enables its span.
#[inline]
pub(crate) fn begin(
    metadata: &Metadata,
    (wire, peer): (&str, &str),
    service: &ServiceInfo,
    method: &MethodInfo,
) -> Option<Arc<Trace>> {
    let is_wanted = tracing::span_enabled!(target: "switchboard::call", Level::INFO);
    if metadata.is_empty() && !is_wanted {
        return None;
    }
    begin_slowly(metadata, (wire, peer), service, method, is_wanted)
}

fn begin_slowly(
    metadata: &Metadata,
    (wire, peer): (&str, &str),
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
        wire,
        peer,
        trace_id = %trace.id(),
        span_id = %Hex(&trace.span),
        parent_id = %Hex(&trace.parent),
    );
    Some(Arc::new(trace))
}

/// Returns a random number that is not zero and cannot be predicted from earlier ones.
fn random() -> u64 {
    RandomState::new().hash_one(0).max(1)
}

impl Trace {
    /// Parses the metadata; returns `None` if it does not follow the specification.
    pub(crate) fn of(metadata: &Metadata) -> Option<Trace> {
        let (id, parent, flags) = parse(metadata.value(TRACEPARENT)?)?;
        let state = metadata.value(TRACESTATE).cloned();
        Some(Trace { id, parent, span: parent, flags, state, recorded: Span::none() })
    }

    /// Creates a span in this trace or in a new one; returns `None` if it is not sampled. Of new traces, the
    /// fraction `share` is sampled.
    #[cfg(feature = "otlp")]
    #[doc(hidden)]
    pub fn recorded_here(before: Option<&Trace>, share: f64) -> Option<Trace> {
        let Some(before) = before else {
            let part = random() as f64 / u64::MAX as f64;
            return (part < share || share >= 1.0).then(|| Trace::new_root(SAMPLED));
        };
        let span = random().to_be_bytes();
        before.is_sampled().then(|| Trace { parent: before.span, span, ..before.clone() })
    }

    /// Starts a new trace.
    #[cfg(feature = "otlp")]
    fn new_root(flags: u8) -> Trace {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random().to_be_bytes());
        id[8..].copy_from_slice(&random().to_be_bytes());
        let span = random().to_be_bytes();
        Trace { id, parent: [0; 8], span, flags, state: None, recorded: Span::none() }
    }

    /// Returns the id of the trace: 32 lower-case hexadecimal digits.
    pub fn id(&self) -> String {
        Hex(&self.id).to_string()
    }

    /// Returns the id of the calling span, 16 lower-case hexadecimal digits; `None` if the trace starts with
    /// this call.
    pub fn parent_id(&self) -> Option<String> {
        (self.parent != [0; 8]).then(|| Hex(&self.parent).to_string())
    }

    /// Returns the id of this call's span, or its caller's if spans are not recorded here.
    pub fn span_id(&self) -> String {
        Hex(&self.span).to_string()
    }

    /// Returns the sampled flag: the caller may have recorded the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the value of `tracestate`, unchanged.
    pub fn state(&self) -> Option<&str> {
        self.state.as_ref().and_then(|state| std::str::from_utf8(state).ok())
    }

    /// Returns the `traceparent` for calls that this one makes.
    pub fn traceparent(&self) -> String {
        // Only the flags of version 0 are propagated.
        format!("00-{}-{}-{:02x}", Hex(&self.id), Hex(&self.span), self.flags & SAMPLED)
    }

    /// Adds the trace to the metadata of a call, unless the caller has set one.
    #[doc(hidden)]
    pub fn add_to(&self, metadata: &mut Metadata) {
        if metadata.value(TRACEPARENT).is_some() {
            return;
        }
        // The values are valid: digits, and a state that was received as metadata.
        let _ = metadata.insert(TRACEPARENT, self.traceparent());
        if let Some(state) = &self.state {
            let _ = metadata.insert(TRACESTATE, state.clone());
        }
    }

    /// Returns the span in which the handler runs.
    pub(crate) fn recorded(&self) -> &Span {
        &self.recorded
    }
}

/// Parses `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`; later versions may have a suffix.
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

/// Parses hexadecimal digits; the specification allows only lower-case ones.
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
    fn context_is_read_and_forwarded() {
        let trace = of(EXAMPLE).unwrap();
        assert_eq!(trace.id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(trace.parent_id().as_deref(), Some("b7ad6b7169203331"));
        assert!(trace.is_sampled());
        assert_eq!(trace.traceparent(), EXAMPLE);
        // Of a later version the known part is read; it is propagated as version 0.
        let later = of(&format!("{}-more", EXAMPLE.replacen("00", "cc", 1))).unwrap();
        assert_eq!(later.traceparent(), EXAMPLE);
    }

    #[test]
    fn invalid_context_is_none() {
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
