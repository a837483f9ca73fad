//! The messages to send: of the command line, or of standard input.

use super::args::MessageCodec;
use crate::call::Failure;
use bytes::Bytes;
use std::{
    io::{self, BufRead, Read},
    thread,
};
use tokio::sync::mpsc;

/// Lines that are read ahead.
const LINES_MAX: usize = 64;

/// The messages in their order: the text, or standard input as one or as lines. A thread reads standard input, so that
/// connections are served in the meantime.
pub(crate) fn messages(text: Option<&str>, has_lines: bool) -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    match text {
        Some(text) if text != "-" => {
            // The queue is empty.
            let _ = sender.try_send(Ok(Bytes::copy_from_slice(text.as_bytes())));
        }
        _ if has_lines => {
            thread::spawn(move || {
                let mut input = io::stdin().lock().split(b'\n');
                while let Some(line) = input.next()
                    && sender.blocking_send(line.map(Bytes::from)).is_ok()
                {}
            });
        }
        _ => {
            thread::spawn(move || {
                let mut message = Vec::new();
                let read = io::stdin().lock().read_to_end(&mut message);
                let _ = sender.blocking_send(read.map(|_| message.into()));
            });
        }
    }
    receiver
}

/// Checks a message that was read.
pub(crate) fn check(message: io::Result<Bytes>, codec: MessageCodec) -> Result<Bytes, Failure> {
    let message = message
        .map_err(|error| Failure::Usage(format!("cannot read the message from standard input: {error}")))?;
    if let MessageCodec::Json = codec {
        let checked = serde_json::from_slice::<serde::de::IgnoredAny>(&message);
        checked.map_err(|error| Failure::Usage(format!("the message is not JSON: {error}")))?;
    }
    Ok(message)
}
