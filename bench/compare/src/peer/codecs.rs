//! The cost of encoding and decoding the benchmark message, with every codec of Switchboard.
//!
//! A counting allocator would also slow all other measurements. The number of allocations depends only on the message,
//! so the numbers are constants here, and the test of this module checks them.

mod plain;

use ::switchboard::{
    Codec, Encoded,
    codec::{proto, serde as serde_codec},
};
use bytes::Bytes;
use serde_json::json;
use std::{
    hint::black_box,
    time::{Duration, Instant},
};
use switchboard_cli::services::{benchmark_message, proto::bench::BenchmarkMessage};

/// Measures every codec and returns the results in the form of the contract.
///
/// # Errors
/// When a codec fails on the message.
pub(super) fn measure() -> Result<String, String> {
    let samples = Samples::new()?;
    let costs = samples.costs().map(|cost| {
        json!({
            "name": cost.name,
            "encode_ns": nanoseconds(&cost.encode),
            "decode_ns": nanoseconds(&cost.decode),
            "encode_allocs": cost.encode_allocs,
            "decode_allocs": cost.decode_allocs,
            "bytes": cost.bytes,
        })
    });
    Ok(json!({ "codecs": costs }).to_string())
}

/// The message in every form.
struct Samples {
    message: BenchmarkMessage,
    plain: plain::Message,
    bytes: Bytes,
    json: Bytes,
    postcard: Bytes,
    plain_json: Bytes,
    view: Encoded<BenchmarkMessage>,
}

/// A codec: its functions, and the number of their allocations. Protobuf is encoded into a block of the thread, which
/// is reused if no message in it is kept.
struct Cost<'a> {
    name: &'static str,
    bytes: usize,
    encode: Box<dyn Fn() -> bool + 'a>,
    encode_allocs: u64,
    decode: Box<dyn Fn() -> bool + 'a>,
    decode_allocs: u64,
}

impl Samples {
    fn new() -> Result<Self, String> {
        let message = benchmark_message();
        let plain = plain::Message::new();
        let bytes = encoded(proto::encode(&message, Codec::Proto))?;
        let samples = Self {
            json: encoded(proto::encode(&message, Codec::Json))?,
            postcard: encoded(serde_codec::encode(&plain, Codec::Postcard))?,
            plain_json: encoded(serde_codec::encode(&plain, Codec::Json))?,
            view: Encoded::from_bytes(bytes.clone()),
            message,
            plain,
            bytes,
        };
        let refused =
            samples.costs().iter().find(|cost| !(cost.encode)() || !(cost.decode)()).map(|cost| cost.name);
        refused.map_or(Ok(samples), |name| Err(format!("{name}: the message is refused")))
    }

    fn costs(&self) -> [Cost<'_>; 5] {
        [
            Cost {
                name: "protobuf",
                bytes: self.bytes.len(),
                encode: self.encode(Codec::Proto),
                encode_allocs: 0,
                decode: decode(Codec::Proto, &self.bytes),
                decode_allocs: 9,
            },
            Cost {
                name: "protobuf, read in place",
                bytes: self.bytes.len(),
                encode: self.encode(Codec::Proto),
                encode_allocs: 0,
                decode: Box::new(|| black_box(black_box(&self.view).view()).is_ok()),
                decode_allocs: 1,
            },
            Cost {
                name: "protobuf as JSON",
                bytes: self.json.len(),
                encode: self.encode(Codec::Json),
                encode_allocs: 8,
                decode: decode(Codec::Json, &self.json),
                decode_allocs: 9,
            },
            Cost {
                name: "trait service, postcard",
                bytes: self.postcard.len(),
                encode: self.encode_plain(Codec::Postcard),
                encode_allocs: 1,
                decode: decode_plain(Codec::Postcard, &self.postcard),
                decode_allocs: 9,
            },
            Cost {
                name: "trait service, JSON",
                bytes: self.plain_json.len(),
                encode: self.encode_plain(Codec::Json),
                encode_allocs: 1,
                decode: decode_plain(Codec::Json, &self.plain_json),
                decode_allocs: 9,
            },
        ]
    }

    fn encode(&self, codec: Codec) -> Box<dyn Fn() -> bool + '_> {
        Box::new(move || black_box(proto::encode(black_box(&self.message), codec)).is_ok())
    }

    fn encode_plain(&self, codec: Codec) -> Box<dyn Fn() -> bool + '_> {
        Box::new(move || black_box(serde_codec::encode(black_box(&self.plain), codec)).is_ok())
    }
}

fn decode(codec: Codec, bytes: &Bytes) -> Box<dyn Fn() -> bool + '_> {
    Box::new(move || black_box(proto::decode::<BenchmarkMessage>(codec, black_box(bytes.clone()))).is_ok())
}

fn decode_plain(codec: Codec, bytes: &Bytes) -> Box<dyn Fn() -> bool + '_> {
    Box::new(move || {
        black_box(serde_codec::decode::<plain::Message>(codec, black_box(bytes.clone()))).is_ok()
    })
}

fn encoded(bytes: ::switchboard::Result<Bytes>) -> Result<Bytes, String> {
    bytes.map_err(|status| status.to_string())
}

const BATCHES: usize = 31;
const BATCH: Duration = Duration::from_millis(5);

/// Returns the median over batches of the duration of one `run`.
fn nanoseconds(run: &impl Fn() -> bool) -> f64 {
    let mut count = 1_u32;
    // The first batches determine how many runs fill one, and warm up caches.
    loop {
        let took = timed(run, count);
        if took >= BATCH {
            break;
        }
        let factor = BATCH.as_secs_f64() / took.as_secs_f64().max(1e-9);
        count = (f64::from(count) * factor.clamp(1.1, 10.0)).ceil() as u32;
    }
    let batches = (0..BATCHES).map(|_| timed(run, count).as_secs_f64() * 1e9 / f64::from(count));
    switchboard_cli::bench::measure::median(batches)
}

fn timed(run: &impl Fn() -> bool, count: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        black_box(run());
    }
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting;

    /// Returns the allocations of one `run`: the least of many averages, since new blocks for small messages are
    /// allocated occasionally.
    fn allocations(run: &impl Fn() -> bool) -> f64 {
        let average = || {
            let before = counting::allocations();
            (0..16).for_each(|_| assert!(run()));
            (counting::allocations() - before) as f64 / 16.0
        };
        (0..16).map(|_| average()).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn codecs_allocate_as_often_as_the_report_says() {
        let samples = Samples::new().unwrap();
        let costs = samples.costs();
        let counted =
            costs.each_ref().map(|cost| (cost.name, allocations(&cost.encode), allocations(&cost.decode)));
        let written = costs.each_ref().map(|cost| (cost.name, cost.encode_allocs, cost.decode_allocs));
        assert_eq!(counted, written.map(|(name, encode, decode)| (name, encode as f64, decode as f64)));
    }
}
