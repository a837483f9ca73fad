//! Measures the cost to encode and decode the message of 581 bytes.

use crate::allocation;
use serde::Serialize;
use std::time::Instant;

const BATCHES: usize = 201;
const IN_A_BATCH: u32 = 1_000;

/// The costs of a codec.
#[derive(Debug, Serialize)]
pub struct Cost {
    name: &'static str,
    encode_ns: f64,
    decode_ns: f64,
    encode_allocs: u64,
    decode_allocs: u64,
    bytes: usize,
}

impl Cost {
    /// Measures `encode` (into a buffer that is emptied, not freed, as a connection keeps it) and `decode` (and the end
    /// of what it made): medians of batches.
    pub fn measure(
        name: &'static str,
        mut encode: impl FnMut(&mut Vec<u8>),
        mut decode: impl FnMut(&[u8]),
    ) -> Self {
        let mut buffer = Vec::with_capacity(4096);
        let mut encode = |buffer: &mut Vec<u8>| {
            buffer.clear();
            encode(buffer);
        };
        let encode_ns = median(|| encode(&mut buffer));
        let encode_allocs = allocation::of(|| encode(&mut buffer));
        let decode_ns = median(|| decode(&buffer));
        let decode_allocs = allocation::of(|| decode(&buffer));
        Self { name, encode_ns, decode_ns, encode_allocs, decode_allocs, bytes: buffer.len() }
    }
}

/// One JSON object.
pub(crate) fn report(costs: &[Cost]) -> String {
    serde_json::json!({ "codecs": costs }).to_string()
}

fn median(mut work: impl FnMut()) -> f64 {
    let mut nanos: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let from = Instant::now();
            (0..IN_A_BATCH).for_each(|_| work());
            from.elapsed().as_nanos() as f64 / f64::from(IN_A_BATCH)
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    nanos[BATCHES / 2]
}
