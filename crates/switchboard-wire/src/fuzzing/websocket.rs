//! The WebSocket machine against arbitrary bytes and against itself.

use super::{Choices, feed::pieces};
use crate::{
    Input, Outbox,
    websocket::{Deflate, Event, Kind, Limits, Role, WebSocket},
};
use bytes::BytesMut;
use flate2::{Compress, Compression, FlushCompress};

/// Longest control frame, its header included.
const CONTROL_FRAME_MAX: usize = 2 + 4 + 125;

/// Feeds either role with any bytes. Checks that it does not panic, that messages do not depend on the split, that it
/// respects the limits, and that it writes no more control frames than it receives.
///
/// # Panics
/// If the property does not hold.
pub fn websocket_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let role = if choices.one_in(2) { Role::Client { seed: 1 } } else { Role::Server };
    let limits = Limits {
        frame_bytes_max: u64::from(choices.short()),
        message_bytes_max: u64::from(choices.short()) * 2,
    };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let deflate = deflate(&mut choices);
    let bytes = frames(role, deflate.is_some(), &mut choices);
    let machine = || WebSocket::new(role, limits).with_deflate(deflate);
    let (whole, split) = (run(machine(), limits, &bytes, &[]), run(machine(), limits, &bytes, &steps));
    // Compressed bytes may have several faults (DEFLATE, UTF-8, size), and the split selects the one found first.
    let failed = |outcome: &Outcome| outcome.3.starts_with("websocket: ");
    if deflate.is_some() && failed(&whole) {
        assert_eq!(whole.0, split.0);
        assert!(failed(&split), "{} and {}", whole.3, split.3);
    } else {
        assert_eq!(whole, split);
    }
}

/// Checks that each role receives what the other sends, for any split of the bytes.
///
/// # Panics
/// If the property does not hold.
pub fn websocket_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits { frame_bytes_max: 1 << 20, message_bytes_max: 1 << 20 };
    let (server, client) = (Role::Server, Role::Client { seed: u64::from(choices.long()) });
    let (from, to) = if choices.one_in(2) { (server, client) } else { (client, server) };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let deflate = deflate(&mut choices);
    let (mut sender, receiver) = (WebSocket::new(from, limits), WebSocket::new(to, limits));
    sender = sender.with_deflate(deflate);
    let (mut out, mut said) = (Outbox::new(), Vec::new());
    while !choices.is_over() {
        let message = choices.message();
        let text: String = message.iter().map(|byte| char::from(*byte)).collect();
        let (kind, payload) =
            if choices.one_in(2) { (Kind::Text, text.as_bytes()) } else { (Kind::Binary, &message[..]) };
        let (first, second) = payload.split_at(payload.len() / 2);
        sender.send(kind, &[first, second], &mut out);
        said.push((kind, payload.to_vec()));
        if choices.one_in(4) {
            sender.ping(&mut out);
        }
    }
    sender.close(1000, "", &mut out);
    let (received, open, _, ending) = run(receiver.with_deflate(deflate), limits, &out.take_all(), &steps);
    assert_eq!(received, said);
    assert!(open.is_empty() && ending.starts_with("Closed"), "{ending}");
}

type Outcome = (Vec<(Kind, Vec<u8>)>, Vec<u8>, usize, String);

/// Returns complete messages, the beginning of an incomplete one, the bytes written, and the outcome.
fn run(mut machine: WebSocket, limits: Limits, bytes: &[u8], steps: &[u8]) -> Outcome {
    let (mut input, mut payload, mut out) = (Input::default(), BytesMut::new(), Outbox::new());
    let (mut messages, mut read, mut written) = (Vec::new(), 0, 0);
    for piece in pieces(bytes, steps) {
        input.extend(piece);
        read += piece.len();
        loop {
            let received = machine.recv(&mut input, &mut payload, &mut out);
            assert!(payload.len() as u64 <= limits.message_bytes_max, "{} bytes", payload.len());
            written += out.take_all().len();
            match received {
                Ok(Some(Event::Data { kind, last: true })) => messages.push((kind, payload.split().to_vec())),
                Ok(Some(Event::Data { .. } | Event::Pong)) => {}
                Ok(Some(event @ Event::Closed(_))) => {
                    return (messages, payload.to_vec(), written, format!("{event:?}"));
                }
                // The delivered part of a text that is not UTF-8 depends on the split.
                Err(fatal) => return (messages, Vec::new(), written, fatal.0),
                Ok(None) => break,
            }
        }
        // The response of a client has a mask of four bytes, which the PING lacks.
        assert!(written <= 3 * read + CONTROL_FRAME_MAX, "{written} bytes out for {read}");
        assert!(input.len() < CONTROL_FRAME_MAX, "{} bytes are kept", input.len());
    }
    (messages, payload.to_vec(), written, String::new())
}

/// Compresses the payload as another implementation might, sometimes truncated or many times as large.
fn compress(payload: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
    let repeated = payload.repeat(if choices.one_in(4) { 1 + usize::from(choices.byte()) } else { 1 });
    let (level, mut into) = (Compression::new(u32::from(choices.byte() % 10)), Vec::new());
    let flush = if choices.one_in(4) { FlushCompress::Finish } else { FlushCompress::Sync };
    into.reserve(2 * repeated.len() + 100);
    // The vector has capacity for the whole output.
    let _ = Compress::new(level, false).compress_vec(&repeated, &mut into, flush);
    let cut =
        if flush == FlushCompress::Sync && into.len() >= 4 { 4 } else { usize::from(choices.byte() % 3) };
    into.truncate(into.len().saturating_sub(cut));
    into
}

/// `None` half of the time, otherwise compression with one of the window sizes.
fn deflate(choices: &mut Choices<'_>) -> Option<Deflate> {
    let bits = 8 + choices.byte() % 16;
    let offer = format!("permessage-deflate; server_max_window_bits={bits}");
    Deflate::answer([&offer[..]].into_iter()).map(|(agreed, _)| agreed)
}

/// Mostly well-formed frames, sometimes only noise; some are marked as compressed, and many of these are.
fn frames(role: Role, compresses: bool, choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        let opcode = [0, 1, 2, 2, 8, 9, 10, 0][usize::from(choices.byte() % 8)];
        let fin = if choices.one_in(3) { 0 } else { 0x80 };
        // The compression bit, or any bits.
        let noise =
            if choices.one_in(64) { choices.byte() & if choices.one_in(2) { 0x40 } else { 0xFF } } else { 0 };
        let compressed = compresses && matches!(opcode, 1 | 2) && choices.one_in(2);
        bytes.push((fin | opcode | if compressed { 0x40 } else { 0 }) ^ noise);
        let payload = match opcode {
            1 => String::from_utf8_lossy(choices.bytes(40)).into_owned().into_bytes(),
            8 => [&[3, 0xE8 + choices.byte() % 20], choices.bytes(10)].concat(),
            _ => {
                let most = if choices.one_in(4) { 255 } else { 60 };
                choices.bytes(most).to_vec()
            }
        };
        let payload = if compressed && !choices.one_in(4) { compress(&payload, choices) } else { payload };
        let masked = if (role == Role::Server) != choices.one_in(64) { 0x80 } else { 0 };
        match payload.len() {
            len @ 0..=125 => bytes.push(masked | len as u8),
            len => {
                bytes.push(masked | 126);
                bytes.extend_from_slice(&(len as u16).to_be_bytes());
            }
        }
        let mask = if masked == 0 { [0; 4] } else { [choices.byte(), choices.byte(), 1, 2] };
        if masked != 0 {
            bytes.extend_from_slice(&mask);
        }
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    }
    bytes
}
