//! What it costs to encode and decode the benchmark message, with every codec that Switchboard has.
//!
//! Allocations are not counted: an allocator that counts would be that of every other measurement too.

mod plain;

use crate::services::{benchmark_message, proto::bench::BenchmarkMessage};
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

/// Measures every codec and says so in the words of the contract.
///
/// # Errors
/// When a codec refuses the message.
pub(super) fn measure() -> Result<String, String> {
    let message = benchmark_message();
    let plain = plain::Message::new();
    let bytes = encoded(proto::encode(&message, Codec::Proto))?;
    let json = encoded(proto::encode(&message, Codec::Json))?;
    let postcard = encoded(serde_codec::encode(&plain, Codec::Postcard))?;
    let plain_json = encoded(serde_codec::encode(&plain, Codec::Json))?;
    let view = Encoded::<BenchmarkMessage>::from_bytes(bytes.clone());
    view.view().map_err(|status| status.to_string())?;

    let encode_proto = || black_box(proto::encode(black_box(&message), Codec::Proto)).is_ok();
    let decode = |codec, bytes: &Bytes| {
        black_box(proto::decode::<BenchmarkMessage>(codec, black_box(bytes.clone()))).is_ok()
    };
    let decode_plain = |codec, bytes: &Bytes| {
        black_box(serde_codec::decode::<plain::Message>(codec, black_box(bytes.clone()))).is_ok()
    };
    let costs = [
        cost("protobuf", &bytes, encode_proto, || decode(Codec::Proto, &bytes)),
        cost("protobuf, read in place", &bytes, encode_proto, || black_box(black_box(&view).view()).is_ok()),
        cost(
            "protobuf as JSON",
            &json,
            || black_box(proto::encode(black_box(&message), Codec::Json)).is_ok(),
            || decode(Codec::Json, &json),
        ),
        cost(
            "trait service, postcard",
            &postcard,
            || black_box(serde_codec::encode(black_box(&plain), Codec::Postcard)).is_ok(),
            || decode_plain(Codec::Postcard, &postcard),
        ),
        cost(
            "trait service, JSON",
            &plain_json,
            || black_box(serde_codec::encode(black_box(&plain), Codec::Json)).is_ok(),
            || decode_plain(Codec::Json, &plain_json),
        ),
    ];
    Ok(json!({ "codecs": costs.into_iter().collect::<Result<Vec<_>, _>>()? }).to_string())
}

fn encoded(bytes: ::switchboard::Result<Bytes>) -> Result<Bytes, String> {
    bytes.map_err(|status| status.to_string())
}

fn cost(
    name: &str,
    bytes: &Bytes,
    encode: impl Fn() -> bool,
    decode: impl Fn() -> bool,
) -> Result<serde_json::Value, String> {
    if !(encode() && decode()) {
        return Err(format!("{name}: the message is refused"));
    }
    Ok(json!({
        "name": name,
        "encode_ns": nanoseconds(&encode),
        "decode_ns": nanoseconds(&decode),
        "encode_allocs": null,
        "decode_allocs": null,
        "bytes": bytes.len(),
    }))
}

const BATCHES: usize = 31;
const BATCH: Duration = Duration::from_millis(5);

/// The median over batches of what one `run` takes.
fn nanoseconds(run: &impl Fn() -> bool) -> f64 {
    let mut count = 1_u32;
    // The first batches find how many runs fill one, and warm everything up.
    loop {
        let took = timed(run, count);
        if took >= BATCH {
            break;
        }
        let factor = BATCH.as_secs_f64() / took.as_secs_f64().max(1e-9);
        count = (f64::from(count) * factor.clamp(1.1, 10.0)).ceil() as u32;
    }
    let batches = (0..BATCHES).map(|_| timed(run, count).as_secs_f64() * 1e9 / f64::from(count));
    crate::bench::measure::median(batches)
}

fn timed(run: &impl Fn() -> bool, count: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        black_box(run());
    }
    start.elapsed()
}
