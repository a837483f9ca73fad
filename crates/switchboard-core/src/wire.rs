//! Wires: their descriptors, and the parts to write a new one.
//!
//! A wire is a [`WireSpec`] with two state machines, a [`ServerWire`] and a [`ClientWire`].
//! `Server::wire` and `ChannelBuilder::wire` use it.
//!
//! The descriptors of the built-in wires select the wire of a channel in code, as `wire=` does in a URL:
//!
//! ```
//! use switchboard::{Channel, wire};
//! # #[cfg(feature = "rpcx")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> switchboard::Result<()> {
//! let channel = Channel::builder("tcp://127.0.0.1:8972").wire(&wire::RPCX).lazy()?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "rpcx"))]
//! # fn main() {}
//! ```

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

pub use switchboard_wire::wires::built_in::*;
