//! The thread that converts records to lines.

use super::{
    Rules,
    record::{Messages, Record, Seen},
    redact::{REDACTED, Redact},
};
use crate::{
    call::metadata,
    proxy::{
        rewrite::{self, Side},
        schema,
    },
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io::{self, BufWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::Receiver,
    },
    time::UNIX_EPOCH,
};
use switchboard::{Codec, Metadata};

/// An event for the writer thread.
pub(super) enum Event {
    Record(Box<Record>),
    /// The proxy ends.
    End,
}

/// The output, and the state for formatting lines.
pub(super) struct Writer {
    pub(super) into: Box<dyn Write + Send>,
    pub(super) methods: Arc<HashMap<String, schema::Method>>,
    pub(super) dropped: Arc<AtomicU64>,
}

impl Writer {
    /// Writes until the proxy ends.
    ///
    /// # Errors
    /// A failed write, after which nothing is written.
    pub(super) fn run(mut self, events: &Receiver<Event>) -> io::Result<()> {
        let mut out = BufWriter::new(std::mem::replace(&mut self.into, Box::new(io::sink())));
        // Records that arrived meanwhile are written together.
        while let Ok(first) = events.recv() {
            for event in std::iter::once(first).chain(events.try_iter()) {
                let Event::Record(record) = event else {
                    self.report_dropped(&mut out)?;
                    return out.flush();
                };
                self.report_dropped(&mut out)?;
                writeln!(out, "{}", self.line(&record))?;
            }
            out.flush()?;
        }
        Ok(())
    }

    /// Writes how many calls were dropped since the last report.
    fn report_dropped(&self, out: &mut impl Write) -> io::Result<()> {
        match self.dropped.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            dropped => writeln!(out, "{}", json!({ "dropped": dropped })),
        }
    }

    /// Formats the record as one JSON object, with the most important fields first.
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
            message(&record.rules, seen, Side::Request, record.codec, method)
        });
        if !record.reply_metadata.is_empty() {
            parts.push(("reply_metadata", metadata_shown(&record.rules.redact, &record.reply_metadata)));
        }
        let replies = &record.replies;
        let names = ["response", "responses", "responses_left_out"];
        Self::messages(&mut parts, names, replies, |seen| {
            message(&record.rules, seen, Side::Reply, record.codec, method)
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

/// Converts the message to JSON. For one that cannot be decoded, only its size is written, unless its bytes are wanted:
/// they cannot be redacted.
fn message(rules: &Rules, seen: &Seen, side: Side, codec: Codec, method: Option<&schema::Method>) -> Value {
    let bytes = match seen {
        Seen::Large(bytes) => return json!({ "bytes": bytes }),
        Seen::Whole(bytes, _) => bytes,
    };
    match rewrite::shown(method, side, bytes, codec) {
        Ok(mut message) => {
            rules.redact.message(&mut message);
            message
        }
        Err(_) if rules.shows_undecoded => {
            json!({ "base64": metadata::base64(bytes), "bytes": bytes.len() })
        }
        Err(_) => json!({ "bytes": bytes.len(), "withheld": "not decoded" }),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{HELD_BYTES_MAX, filter::Filter, record::Charge},
        *,
    };
    use bytes::Bytes;
    use std::{
        sync::{Mutex, PoisonError, atomic::AtomicUsize, mpsc::sync_channel},
        time::{Duration, SystemTime},
    };
    use switchboard::Status;

    /// Collects lines for a test.
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

    fn record(shows_undecoded: bool, held: &Arc<AtomicUsize>) -> Record {
        let mut metadata = Metadata::new();
        metadata.insert("authorization", "Bearer x").unwrap();
        metadata.insert("x-tenant", "acme").unwrap();
        let charge = || Charge::new(held, 5).unwrap();
        let kept = vec![Seen::Whole(Bytes::from_static(b"\x0a\x03Ada"), charge()), Seen::Large(1 << 20)];
        let rules = Rules { filter: Filter::new(&[]), redact: Redact::new(&[]), shows_undecoded };
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
            charge: charge(),
        }
    }

    fn written(shows_undecoded: bool, dropped: u64) -> String {
        let page = Page::default();
        let (queue, events) = sync_channel(2);
        let held = Arc::new(AtomicUsize::new(0));
        queue.send(Event::Record(Box::new(record(shows_undecoded, &held)))).unwrap();
        queue.send(Event::End).unwrap();
        let writer = Writer {
            into: Box::new(page.clone()),
            methods: Arc::default(),
            dropped: Arc::new(AtomicU64::new(dropped)),
        };
        assert_eq!(held.load(Ordering::Relaxed), 10);
        writer.run(&events).unwrap();
        assert_eq!(held.load(Ordering::Relaxed), 0);
        let written = page.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn a_call_is_one_line_and_dropped_calls_are_another() {
        let wanted = "{\"dropped\":7}\n{\"unix_ms\":1500,\"wire\":\"grpc\",\"peer\":\"tcp://127.0.0.1:4444\",\
            \"method\":\"a.B/C\",\"codec\":\"proto\",\
            \"metadata\":{\"authorization\":\"[redacted]\",\"x-tenant\":[\"acme\"]},\
            \"requests\":[{\"base64\":\"CgNBZGE=\",\"bytes\":5},{\"bytes\":1048576}],\"requests_left_out\":3,\
            \"status\":\"not_found\",\"message\":\"nothing\",\"details\":[\"a.Detail\"],\"micros\":42}\n";
        assert_eq!(written(true, 7), wanted);
    }

    #[test]
    fn bytes_over_the_limit_are_not_held() {
        let held = Arc::new(AtomicUsize::new(0));
        let charges: Vec<_> = (0..1000).filter_map(|_| Charge::new(&held, HELD_BYTES_MAX / 100)).collect();
        assert_eq!((charges.len(), held.load(Ordering::Relaxed)), (100, HELD_BYTES_MAX / 100 * 100));
        drop(charges);
        assert_eq!(held.load(Ordering::Relaxed), 0);
        let large = Charge::new(&held, usize::MAX / 2);
        assert!(large.is_none() && held.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn messages_that_cannot_be_decoded_are_withheld() {
        let line = written(false, 0);
        let wanted = "\"requests\":[{\"bytes\":5,\"withheld\":\"not decoded\"},";
        assert!(line.contains(wanted) && !line.contains("base64"), "{line}");
    }
}
