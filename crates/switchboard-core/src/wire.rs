//! Wires: their descriptors, and the parts to write a new one.
//!
//! A wire is a [`WireSpec`] with two state machines, a [`ServerWire`] and a [`ClientWire`].
//! `Server::wire` and `ChannelBuilder::wire` use it.

pub use switchboard_wire::{
    Encoding, Encodings, Fatal, Found, Input, Limits, MethodId, MethodTable, Outbox, Outgoing, WireId,
    WireSet,
    spec::{
        Capabilities, ClientSetup, ClientSupport, PEEK_MAX, PostedMachine, ServerSetup, Streams, Verdict,
        WireSpec, starts,
    },
    wire::{
        CallId, CallIds, ClientCallId, ClientEvent, ClientWire, Head, MachineMemory, Open, Opened, Push,
        PushLimits, ServerEvent, ServerWire,
    },
    wires::WIRES,
};
