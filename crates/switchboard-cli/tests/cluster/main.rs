//! Several processes of the program: servers that register themselves, a registry, callers that find them, and what
//! happens when any of them dies.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod faults;
mod load;
mod process;
mod registration;

use bytes::Bytes;
use switchboard::{ClientMethod, Codec, Idempotency, Kind, Result};

/// The service that callers of these tests look up in registries.
const GREETER: &str = "demo.v1.Greeter";

fn method(name: &str, kind: Kind) -> &'static ClientMethod {
    ClientMethod::intern(&format!("{GREETER}/{name}"), kind, Idempotency::Unknown).unwrap()
}

/// Messages are sent and read as they are.
fn bytes(bytes: &Bytes, _: Codec) -> Result<Bytes> {
    Ok(bytes.clone())
}

/// A message with this text in its first field, as those of the greeter have it.
fn text(text: &str) -> Bytes {
    let mut message = vec![0x0A, u8::try_from(text.len()).unwrap()];
    message.extend_from_slice(text.as_bytes());
    message.into()
}
