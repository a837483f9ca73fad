//! The client of the contract: generates the load of its command line and prints one line of JSON.

use super::{Call, Engine, Mode, codecs, floor, per_call::PerCall, reply::ClientReport, stream, threads};
use clap::{Args, value_parser};
use std::{sync::Arc, time::Duration};
use switchboard_cli::bench::{
    engine::{self, Shape, Until},
    load::Load,
    measure::Measured,
    options::MESSAGE_BYTES,
    subject, switchboard, thrift,
    wire::Wire,
    worker,
};

#[derive(Debug, Args)]
pub(super) struct ClientArgs {
    #[arg(long, value_enum)]
    call: Call,
    /// The addresses of one or two servers.
    #[arg(long, default_value = "", required_if_eq_any([("call", "echo"), ("call", "message")]))]
    pub(super) address: String,
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=100_000))]
    pub(super) callers: u32,
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(..=64_000_000))]
    pub(super) bytes: u32,
    /// Connections in total; 0 selects the best number.
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(..=25_000))]
    pub(super) connections: u32,
    #[arg(long, default_value_t = 0.5)]
    pub(super) warm_up: f64,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[arg(long, conflicts_with = "seconds")]
    requests: Option<u64>,
    #[arg(long, value_enum, default_value_t = Mode::Unary)]
    mode: Mode,
    /// The wire of the calls of `pinned`.
    #[arg(long, value_enum, default_value_t = Wire::NATIVE)]
    wire: Wire,
}

/// Makes the calls and prints the result.
///
/// # Errors
/// When the server cannot be reached, or this combination is not offered.
pub(super) fn run(engine: Engine, args: &ClientArgs) -> Result<(), String> {
    if args.call == Call::Codecs {
        println!("{}", codecs::measure()?);
        return Ok(());
    }
    let measured = match engine {
        Engine::Floor => on_floor(args),
        Engine::Pinned => on_workers(args),
        Engine::Tokio => on_threads(args),
    }?;
    let answer = ClientReport::of(measured);
    println!("{}", serde_json::to_string(&answer).expect("a report has no maps"));
    Ok(())
}

impl ClientArgs {
    /// The payload of echo calls.
    pub(super) fn payload(&self) -> bytes::Bytes {
        subject::payload(self.bytes as usize)
    }

    /// The servers as one address of a Switchboard channel, which balances over them.
    pub(super) fn url(&self) -> String {
        self.wire.url(&format!("tcp://{}", self.address))
    }

    pub(super) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up.clamp(0.0, 3600.0))
    }

    pub(super) fn until(&self) -> Until {
        match self.requests {
            Some(requests) => Until::Calls(requests),
            None => Until::Elapsed(Duration::from_secs_f64(self.seconds.clamp(0.0, 3600.0))),
        }
    }

    /// The measured time.
    ///
    /// # Errors
    /// When a number of requests ends the measurement instead of a time.
    pub(super) fn time(&self) -> Result<Duration, String> {
        match self.until() {
            Until::Elapsed(time) => Ok(time),
            Until::Calls(_) => Err("--requests is not offered here: use --seconds".to_owned()),
        }
    }

    fn shape(&self) -> Shape {
        Shape {
            callers: self.callers as usize,
            connections: (self.connections > 0).then_some(self.connections as usize),
            until: self.until(),
            rate: None,
            warm_up: self.warm_up(),
        }
    }

    fn measure(&self, load: &impl Load) -> Result<Measured, String> {
        engine::measure(load, self.shape(), None, &Arc::default())
    }
}

fn on_floor(args: &ClientArgs) -> Result<Measured, String> {
    // Its server echoes: for the message, the client sends as many bytes.
    let payload = match args.call {
        Call::Message => subject::payload(MESSAGE_BYTES),
        Call::Echo | Call::Codecs => args.payload(),
    };
    match args.mode {
        Mode::PerCall => args.measure(&floor::PerCall::new(&args.address, payload)),
        Mode::Unary => args.measure(&floor::Shared::new(&args.address, payload)),
        // The frames of a stream would be the same: one connection with as many outstanding requests.
        Mode::Stream => {
            let load = floor::Shared::new(&args.address, payload);
            engine::measure(&load, Shape { connections: Some(1), ..args.shape() }, None, &Arc::default())
        }
    }
}

fn on_workers(args: &ClientArgs) -> Result<Measured, String> {
    match (args.mode, args.call, args.wire) {
        (Mode::Unary, Call::Message, Wire::THRIFT) => args.measure(&thrift::message(&args.url())),
        (Mode::Unary, _, Wire::THRIFT) => args.measure(&thrift::echo(&args.url(), args.payload())),
        (_, _, Wire::JSON_RPC) => {
            Err("JSON-RPC is not offered here: `switchboard bench` measures it".to_owned())
        }
        (Mode::Unary, Call::Message, _) => args.measure(&switchboard::message(&args.url())),
        (Mode::Unary, _, _) => args.measure(&switchboard::echo(&args.url(), args.payload())),
        (Mode::PerCall, ..) => args.measure(&PerCall(switchboard::echo(&args.url(), args.payload()))),
        (Mode::Stream, ..) => {
            let stream = stream::Stream::of(args)?;
            worker::start("stream", move || stream.run())?.join().flatten()
        }
    }
}

fn on_threads(args: &ClientArgs) -> Result<Measured, String> {
    match (args.mode, args.call) {
        (Mode::Unary, Call::Message) => threads::measure(&switchboard::message(&args.url()), args),
        (Mode::Unary, _) => threads::measure(&switchboard::echo(&args.url(), args.payload()), args),
        (Mode::PerCall, _) => {
            threads::measure(&PerCall(switchboard::echo(&args.url(), args.payload())), args)
        }
        (Mode::Stream, _) => threads::stream(stream::Stream::of(args)?),
    }
}
