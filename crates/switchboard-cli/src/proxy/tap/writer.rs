//! The thread that turns records into lines.

use super::{
    record::{Messages, Record, Seen},
    redact::{REDACTED, Redact},
};
use crate::{
    call::metadata,
    proxy::{
        known,
        rewrite::{self, Side},
    },
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io::{self, BufWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::Receiver,
    },
    time::UNIX_EPOCH,
};
use switchboard::{Codec, Metadata};

/// What the thread is sent.
pub(super) enum Event {
    Record(Box<Record>),
    /// The proxy ends.
    End,
}

/// Where lines go, and what is needed to make them.
pub(super) struct Writer {
    pub(super) into: Box<dyn Write + Send>,
    pub(super) methods: Arc<HashMap<String, known::Method>>,
    pub(super) held: Arc<AtomicUsize>,
    pub(super) dropped: Arc<AtomicU64>,
}

impl Writer {
    /// Writes until the proxy ends.
    ///
    /// # Errors
    /// What cannot be written, after which nothing is.
    pub(super) fn run(mut self, events: &Receiver<Event>) -> io::Result<()> {
        let mut out = BufWriter::new(std::mem::replace(&mut self.into, Box::new(io::sink())));
        // What came meanwhile is written with it.
        while let Ok(first) = events.recv() {
            for event in std::iter::once(first).chain(events.try_iter()) {
                let Event::Record(record) = event else {
                    self.tell_dropped(&mut out)?;
                    return out.flush();
                };
                self.held.fetch_sub(record.bytes(), Ordering::Relaxed);
                self.tell_dropped(&mut out)?;
                writeln!(out, "{}", self.line(&record))?;
            }
            out.flush()?;
        }
        Ok(())
    }

    /// Says how many calls were left out since this was asked before.
    fn tell_dropped(&self, out: &mut impl Write) -> io::Result<()> {
        match self.dropped.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            dropped => writeln!(out, "{}", json!({ "dropped": dropped })),
        }
    }

    /// The record as one JSON object, what is asked for first in front.
    fn line(&self, record: &Record) -> String {
        let method = self.methods.get(&record.method);
        let since_1970 = record.began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut parts: Vec<(&str, Value)> = vec![
            ("unix_ms", (since_1970.as_millis() as u64).into()),
            ("wire", record.wire.into()),
            ("peer", record.peer.as_str().into()),
            ("method", record.method.as_str().into()),
            ("codec", record.codec.name().into()),
            ("metadata", metadata_shown(&record.rules.redact, &record.metadata)),
        ];
        let requests = &record.requests;
        let names = ["request", "requests", "requests_left_out"];
        Self::messages(&mut parts, names, requests, |seen| {
            message(&record.rules.redact, seen, Side::Request, record.codec, method)
        });
        if !record.reply_metadata.is_empty() {
            parts.push(("reply_metadata", metadata_shown(&record.rules.redact, &record.reply_metadata)));
        }
        let replies = &record.replies;
        let names = ["response", "responses", "responses_left_out"];
        Self::messages(&mut parts, names, replies, |seen| {
            message(&record.rules.redact, seen, Side::Reply, record.codec, method)
        });
        if !record.trailers.is_empty() {
            parts.push(("trailers", metadata_shown(&record.rules.redact, &record.trailers)));
        }
        parts.push(("status", record.code().name().into()));
        if let Some(status) = &record.failure {
            parts.push(("message", status.message().into()));
            let details: Vec<_> = status.details().iter().map(|detail| detail.type_name.as_str()).collect();
            if !details.is_empty() {
                parts.push(("details", details.into()));
            }
        }
        parts.push(("micros", (record.took.as_micros() as u64).into()));
        let parts: Vec<_> = parts.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", parts.join(","))
    }

    fn messages(
        parts: &mut Vec<(&'static str, Value)>,
        [one, many, left_out]: [&'static str; 3],
        messages: &Messages,
        shown: impl Fn(&Seen) -> Value,
    ) {
        let mut shown = messages.kept.iter().map(shown);
        if messages.is_stream {
            parts.push((many, shown.collect()));
        } else if let Some(message) = shown.next() {
            parts.push((one, message));
        }
        if messages.left_out > 0 {
            parts.push((left_out, messages.left_out.into()));
        }
    }
}

fn metadata_shown(redact: &Redact, entries: &Metadata) -> Value {
    let mut shown = metadata::json(entries);
    for (name, values) in shown.as_object_mut().into_iter().flatten() {
        if redact.has(name) {
            *values = REDACTED.into();
        }
    }
    shown
}

/// The message as JSON if that can be, else its bytes.
fn message(redact: &Redact, seen: &Seen, side: Side, codec: Codec, method: Option<&known::Method>) -> Value {
    let bytes = match seen {
        Seen::Large(bytes) => return json!({ "bytes": bytes }),
        Seen::Whole(bytes) => bytes,
    };
    match rewrite::shown(method, side, bytes, codec) {
        Ok(mut message) => {
            redact.message(&mut message);
            message
        }
        // Fields that are not to be seen may be among them.
        Err(_) if redact.is_asked_for() => json!({ "bytes": bytes.len() }),
        Err(_) => json!({ "base64": metadata::base64(bytes), "bytes": bytes.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Rules, filter::Filter},
        *,
    };
    use bytes::Bytes;
    use std::{
        sync::{Mutex, PoisonError, mpsc::sync_channel},
        time::{Duration, SystemTime},
    };
    use switchboard::Status;

    /// Lines where a test finds them.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record(redact: &[String]) -> Record {
        let mut metadata = Metadata::new();
        metadata.insert("authorization", "Bearer x").unwrap();
        metadata.insert("x-tenant", "acme").unwrap();
        let kept = vec![Seen::Whole(Bytes::from_static(b"\x0a\x03Ada")), Seen::Large(1 << 20)];
        let rules = Rules { filter: Filter::new(&[]), redact: Redact::new(redact) };
        Record {
            rules: Arc::new(rules),
            began: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
            took: Duration::from_micros(42),
            wire: "grpc",
            peer: "tcp://127.0.0.1:4444".to_owned(),
            method: "a.B/C".to_owned(),
            codec: Codec::Proto,
            metadata,
            requests: Messages { is_stream: true, kept, left_out: 3 },
            reply_metadata: Metadata::new(),
            replies: Messages::default(),
            trailers: Metadata::new(),
            failure: Some(Status::not_found("nothing").with_detail("a.Detail", &b""[..])),
        }
    }

    fn written(redact: &[String], dropped: u64) -> String {
        let page = Page::default();
        let (queue, events) = sync_channel(2);
        queue.send(Event::Record(Box::new(record(redact)))).unwrap();
        queue.send(Event::End).unwrap();
        let writer = Writer {
            into: Box::new(page.clone()),
            methods: Arc::default(),
            held: Arc::new(AtomicUsize::new(record(redact).bytes())),
            dropped: Arc::new(AtomicU64::new(dropped)),
        };
        let held = writer.held.clone();
        writer.run(&events).unwrap();
        assert_eq!(held.load(Ordering::Relaxed), 0);
        let written = page.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn a_call_is_a_line_and_what_was_left_out_another() {
        let wanted = "{\"dropped\":7}\n{\"unix_ms\":1500,\"wire\":\"grpc\",\"peer\":\"tcp://127.0.0.1:4444\",\
            \"method\":\"a.B/C\",\"codec\":\"proto\",\
            \"metadata\":{\"authorization\":\"[redacted]\",\"x-tenant\":[\"acme\"]},\
            \"requests\":[{\"base64\":\"CgNBZGE=\",\"bytes\":5},{\"bytes\":1048576}],\"requests_left_out\":3,\
            \"status\":\"not_found\",\"message\":\"nothing\",\"details\":[\"a.Detail\"],\"micros\":42}\n";
        assert_eq!(written(&[], 7), wanted);
    }

    #[test]
    fn bytes_that_may_hold_what_is_redacted_are_not_shown() {
        let line = written(&["name".to_owned()], 0);
        assert!(line.contains("\"requests\":[{\"bytes\":5},"), "{line}");
    }
}
