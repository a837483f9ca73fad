//! One side of a connection, which a test feeds with bytes.

use crate::{
    Codec, Encoding, Input, Metadata, Outbox,
    wire::{CallId, ClientEvent, ClientWire, Head, Open, ServerEvent, ServerWire},
};
use bytes::Bytes;

/// A state machine with its input and output.
pub(crate) struct Side<M> {
    pub(crate) machine: M,
    pub(crate) input: Input,
    pub(crate) out: Outbox,
}

impl<M> Side<M> {
    pub(crate) fn new(machine: M) -> Side<M> {
        Side { machine, input: Input::default(), out: Outbox::new() }
    }
}

impl<M: ServerWire> Side<M> {
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Option<ServerEvent> {
        self.input.extend(bytes);
        self.machine.recv(&mut self.input, &mut self.out).unwrap()
    }

    /// Returns the call that these bytes open.
    pub(crate) fn open(&mut self, bytes: &[u8]) -> (CallId, Head, Bytes) {
        match self.next(bytes) {
            Some(ServerEvent::Open { id, head, first, more: false, .. }) => (id, head, first.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the error that ends the connection, after any events before it.
    pub(crate) fn fatal(&mut self, bytes: &[u8]) -> String {
        self.input.extend(bytes);
        loop {
            match self.machine.recv(&mut self.input, &mut self.out) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{bytes:02x?} is waited on"),
                Err(fatal) => return fatal.0,
            }
        }
    }
}

impl<M: ClientWire> Side<M> {
    /// Returns all events for these bytes.
    pub(crate) fn events(&mut self, bytes: &[u8]) -> Vec<ClientEvent> {
        self.input.extend(bytes);
        std::iter::from_fn(|| self.machine.recv(&mut self.input, &mut self.out).unwrap()).collect()
    }
}

/// A unary call in JSON without metadata.
pub(crate) const OPEN: Open<'static> = Open {
    method: 0,
    codec: Codec::Json,
    timeout: None,
    metadata: &Metadata::new(),
    oneway: false,
    more: false,
    encoding: Encoding::Identity,
    compressed: false,
    rest: &[],
};

/// Parses hexadecimal digits; other characters are ignored.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}
