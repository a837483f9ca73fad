//! Properties of the compression of header fields.

use super::Choices;
use crate::http2::hpack::{Decoder, Encoder, Indexing, ListLimits};
use bytes::BytesMut;

const TABLE_BYTES: [usize; 4] = [0, 64, 300, 4096];

/// Checks that any blocks are decoded within the limits or refused, and that encoded fields are decoded as they were,
/// whatever table sizes both sides change to.
///
/// # Panics
/// If a property does not hold.
pub fn hpack(data: &[u8]) {
    let mut choices = Choices::new(data);
    if choices.one_in(2) { any_blocks(&mut choices) } else { encoded_blocks(&mut choices) }
}

fn any_blocks(choices: &mut Choices<'_>) {
    let size = TABLE_BYTES[usize::from(choices.byte() % 4)];
    let mut decoder = Decoder::new(size);
    let limits =
        ListLimits { bytes_max: usize::from(choices.short()), fields_max: usize::from(choices.byte()) };
    while !choices.is_over() {
        let block = choices.bytes(200);
        let (mut bytes, mut fields) = (0, 0);
        let outcome = decoder.decode(block, limits, |field| {
            bytes += field.size();
            fields += 1;
        });
        assert!(bytes <= limits.bytes_max && fields <= limits.fields_max && decoder.table_bytes() <= size);
        if outcome.is_err() {
            return;
        }
    }
}

fn encoded_blocks(choices: &mut Choices<'_>) {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    let limits = ListLimits { bytes_max: usize::MAX, fields_max: usize::MAX };
    while !choices.is_over() {
        if choices.one_in(4) {
            let size = TABLE_BYTES[usize::from(choices.byte() % 4)];
            encoder.limit(size);
            decoder.announce(size);
        }
        let mut block = BytesMut::new();
        encoder.begin(&mut block);
        let mut sent = Vec::new();
        for _ in 0..choices.byte() % 6 {
            let (name, value) = (choices.bytes(20).to_vec(), choices.bytes(100).to_vec());
            let indexing =
                [Indexing::Recurring, Indexing::Once, Indexing::Never][usize::from(choices.byte() % 3)];
            encoder.field(&name, &value, indexing, &mut block);
            sent.push((name, value));
        }
        let mut received = Vec::new();
        let outcome = decoder.decode(&block, limits, |field| {
            received.push((field.name.to_vec(), field.value.to_vec()));
        });
        assert!(outcome.is_ok() && received == sent, "{outcome:?}");
    }
}
