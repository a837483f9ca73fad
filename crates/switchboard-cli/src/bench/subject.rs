//! The measured subjects: Switchboard, or the floor.

use super::{
    engine, floor::FloorEcho, idle, json_rpc, load::Load, measure::Measured, options::Call, options::Run,
    process::Server, record::CHAINED, switchboard, thrift, wire::Wire,
};
use bytes::Bytes;
use std::sync::{Arc, atomic::AtomicU64};

/// One side of a comparison.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Subject {
    /// Switchboard with the default chain.
    Chained,
    Switchboard,
    Floor,
}

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Self::Chained => CHAINED,
            Self::Switchboard => "switchboard",
            Self::Floor => "floor",
        }
    }

    /// Starts a separate server.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(self) -> Result<Server, String> {
        match self {
            Self::Chained => Server::start_silent(&["bench-server", "--chain"]),
            Self::Switchboard => Server::start(&["bench-server"]),
            Self::Floor => Server::start(&["bench-floor-server"]),
        }
    }

    /// Measures `run` once against the server at `address`; `server` is that server if it is our own process.
    ///
    /// # Errors
    /// When the server cannot be reached. Calls that fail are counted in the result.
    pub fn measure(
        self,
        address: &str,
        server: Option<&Server>,
        run: &Run,
        done: &Arc<AtomicU64>,
    ) -> Result<Measured, String> {
        let payload = payload(run.call.bytes());
        match (self, run.call) {
            (Self::Floor, _) => go(&FloorEcho { address: address.to_owned(), payload }, server, run, done),
            (Self::Chained | Self::Switchboard, call) => {
                let url = run.wire.url(address);
                match (call, run.wire) {
                    (Call::Message, Wire::JSON_RPC) => go(&json_rpc::message(&url), server, run, done),
                    (_, Wire::JSON_RPC) => go(&json_rpc::echo(&url, payload), server, run, done),
                    (Call::Message, Wire::THRIFT) => go(&thrift::message(&url), server, run, done),
                    (_, Wire::THRIFT) => go(&thrift::echo(&url, payload), server, run, done),
                    (Call::Message, _) => {
                        go(&switchboard::message(&url).with_token(run.token), server, run, done)
                    }
                    (Call::Echo(_) | Call::Idle(_), _) => {
                        go(&switchboard::echo(&url, payload).with_token(run.token), server, run, done)
                    }
                }
            }
        }
    }
}

fn go<L: Load>(
    load: &L,
    server: Option<&Server>,
    run: &Run,
    done: &Arc<AtomicU64>,
) -> Result<Measured, String> {
    match run.call {
        Call::Idle(_) => idle::measure(load, run.shape.connections(), server, done),
        Call::Echo(_) | Call::Message => engine::measure(load, run.shape, server, done),
    }
}

/// Returns bytes that differ from their neighbours, so that a wrongly assembled reply is detected.
pub fn payload(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}
