//! The client and server machines of the native wire against each other: each receives what the other sends.

use super::{Choices, machines};
use crate::{
    Input, Limits, Metadata, MethodId, Origin, Outbox, Outgoing, Retry, SchemaId, Status,
    native::{Client, DEFAULT_WINDOW, Server},
    wire::{ClientEvent, ClientWire, Codec, Encoding, Encodings, Head, Open, ServerEvent, ServerWire},
};
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

const NAMES: [&str; 3] = ["calc.Calc/Add", "calc.Calc/Sum", "calc.Calc/Nope"];

/// Checks that any order of commands on both sides, with the bytes delivered in any pieces, produces the corresponding
/// events, in order.
///
/// # Panics
/// If the property does not hold.
pub fn conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = machines::limits(&mut choices);
    let mut pair = Pair::new(limits, machines::encodings(&mut choices));
    while !choices.is_over() {
        match choices.byte() % 16 {
            0..=7 => pair.client_sends(&mut choices),
            8..=11 => pair.server_sends(&mut choices),
            12 | 13 => pair.deliver_to_server(usize::from(choices.short())),
            _ => pair.deliver_to_client(usize::from(choices.short())),
        }
    }
    // The last bytes may cause responses, which are delivered in another round.
    for _ in 0..3 {
        pair.deliver_to_server(usize::MAX);
        pair.deliver_to_client(usize::MAX);
    }
    assert!(pair.at_server.is_empty(), "never arrived at the server: {:?}", pair.at_server);
    assert!(pair.at_client.is_empty(), "never arrived at the client: {:?}", pair.at_client);
}

struct Pair {
    limits: Limits,
    /// Encodings that the server accepts.
    encodings: Encodings,
    client: Client,
    server: Server,
    to_server: Wire,
    to_client: Wire,
    at_server: VecDeque<Expected>,
    at_client: VecDeque<String>,
    /// By method number: the method, if the server has it, and the schema that the client declared.
    methods: HashMap<u16, Option<(MethodId, Option<SchemaId>)>>,
    drained: bool,
}

/// An event that the server must receive.
#[derive(Debug)]
enum Expected {
    Event(String),
    /// A call that is refused if the server is draining when it arrives.
    Open(u32, String),
    Refused(u32),
}

/// Bytes in flight.
#[derive(Default)]
struct Wire {
    out: Outbox,
    flying: VecDeque<u8>,
    input: Input,
}

impl Wire {
    fn fly(&mut self, bytes: usize) {
        self.flying.extend(self.out.take_all());
        let arrived: Vec<u8> = self.flying.drain(..bytes.min(self.flying.len())).collect();
        self.input.extend(&arrived);
    }
}

impl Pair {
    fn new(limits: Limits, encodings: Encodings) -> Pair {
        let mut pair = Pair {
            limits,
            encodings,
            client: Client::new(limits),
            server: Server::new(limits, machines::table()).with_encodings(encodings),
            to_server: Wire::default(),
            to_client: Wire::default(),
            at_server: VecDeque::new(),
            at_client: VecDeque::new(),
            methods: HashMap::new(),
            drained: false,
        };
        pair.client.greet(&mut pair.to_server.out);
        // The first poll makes the server write its preface.
        pair.deliver_to_server(0);
        let window_growth = limits.stream_window_bytes.saturating_sub(DEFAULT_WINDOW);
        pair.at_client.push_back(format!("{:?}", ClientEvent::Settings { window_growth }));
        pair
    }

    fn client_sends(&mut self, choices: &mut Choices<'_>) {
        let id = u32::from(choices.byte() % 4);
        let out = &mut self.to_server.out;
        let expected = match choices.byte() % 10 {
            0 | 1 => {
                let (number, name) = (u16::from(choices.byte() % 4), usize::from(choices.byte() % 3));
                let schema = SchemaId::new([0, machines::SCHEMA, 1][usize::from(choices.byte() % 3)]);
                self.client.method(number, NAMES[name], schema, out);
                let method = machines::table().find(NAMES[name]);
                self.methods.insert(number, method.map(|method| (method, schema)));
                return;
            }
            2..=4 => return self.open(id, choices),
            5 => {
                let (item, compressed) = (choices.message(), choices.one_in(4));
                if self.client.item(id.into(), &item, compressed, out).is_err() {
                    return;
                }
                if item.len() > self.limits.message_bytes_max as usize {
                    self.at_server.push_back(Expected::Refused(id));
                    return;
                }
                ServerEvent::Item { id, item, compressed }
            }
            6 => {
                self.client.half_close(id.into(), out);
                ServerEvent::HalfClose { id }
            }
            7 => {
                self.client.cancel(id.into(), out);
                ServerEvent::Cancel { id }
            }
            8 => {
                let bytes = choices.long();
                self.client.credit(id.into(), bytes, out);
                ServerEvent::Credit { id, bytes }
            }
            _ => return self.client.ping(out),
        };
        self.at_server.push_back(Expected::Event(format!("{expected:?}")));
    }

    fn open(&mut self, id: u32, choices: &mut Choices<'_>) {
        let metadata = choices.metadata(5);
        let timeout_ms = u64::from(choices.short());
        let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
        let codec = Codec::ALL[usize::from(choices.byte()) % 3];
        let first = choices.one_in(2).then(|| choices.message());
        let method = u16::from(choices.byte() % 5);
        let (oneway, more) = (choices.one_in(4), choices.one_in(2));
        let encoding = Encoding::from_number(choices.byte() % 6).expect("there are six");
        let compressed = choices.one_in(4);
        // Often in two parts, which the receiver must not notice.
        let mut rest = Vec::new();
        let start = first.clone().map(|mut start| {
            if choices.one_in(2) {
                rest.push(start.split_off(start.len() / 2));
            }
            start
        });
        let (metadata_sent, rest) = (&metadata, &rest[..]);
        let open = Open {
            method,
            codec,
            timeout,
            metadata: metadata_sent,
            oneway,
            more,
            encoding,
            compressed,
            rest,
        };
        if self
            .client
            .open(id.into(), open, start.as_ref().map(Outgoing::from), &mut self.to_server.out)
            .is_err()
        {
            return;
        }
        let fits = first.as_ref().map_or(0, bytes::Bytes::len) <= self.limits.message_bytes_max as usize
            && metadata.len() <= self.limits.metadata_entries_max as usize
            && self.encodings.has(encoding);
        let compressed = compressed && first.is_some();
        let fits = fits && !(compressed && encoding == Encoding::Identity);
        self.at_server.push_back(match self.methods.get(&method) {
            Some(Some((method, theirs))) if fits && agree(*method, codec, *theirs) => {
                let head = Head {
                    method: *method,
                    undeclared_name: None,
                    codec,
                    encoding,
                    replies: encoding,
                    timeout,
                    metadata,
                    oneway,
                };
                Expected::Open(id, format!("{:?}", ServerEvent::Open { id, head, first, compressed, more }))
            }
            _ => Expected::Refused(id),
        });
    }

    fn server_sends(&mut self, choices: &mut Choices<'_>) {
        let id = u32::from(choices.byte() % 4);
        let out = &mut self.to_client.out;
        let expected = match choices.byte() % 8 {
            0 => {
                let metadata = small(choices, &self.limits);
                self.server.head(id, &metadata, out);
                ClientEvent::Head { id: id.into(), metadata }
            }
            1 | 2 => {
                let (item, compressed) = (choices.message(), choices.one_in(4));
                match compressed {
                    true => self.server.reply_with(id, (&item).into(), true, &Metadata::new(), out),
                    false if choices.one_in(2) => {
                        let parts = [item.slice(..item.len() / 3), item.slice(item.len() / 3..)];
                        self.server.reply_parts(id, &parts, out);
                    }
                    false => self.server.reply(id, (&item).into(), out),
                }
                self.reply_or_refusal(
                    id,
                    item.len(),
                    &ClientEvent::Reply { id: id.into(), item, compressed },
                );
                return;
            }
            3 => {
                let (item, compressed) = (choices.message(), choices.one_in(4));
                self.server.item(id, &item, compressed, out);
                self.reply_or_refusal(id, item.len(), &ClientEvent::Item { id: id.into(), item, compressed });
                return;
            }
            4 => {
                let end = if choices.one_in(2) {
                    Ok(small(choices, &self.limits))
                } else {
                    let metadata = small(choices, &self.limits);
                    Err(choices.status().with_metadata(metadata))
                };
                self.server.end(id, end.as_ref(), out);
                ClientEvent::End {
                    id: id.into(),
                    end: end.map_err(|status| status.with_origin(Origin::Peer)),
                }
            }
            5 => {
                let bytes = choices.long();
                self.server.credit(id, bytes, out);
                ClientEvent::Credit { id: id.into(), bytes }
            }
            6 if !self.drained && choices.one_in(16) => {
                self.drained = true;
                self.server.drain("upgrade", out);
                self.server.refuse();
                let status = Status::unavailable("upgrade").with_origin(Origin::Peer).with_retry(Retry::Safe);
                ClientEvent::GoAway { status }
            }
            _ => return self.server.ping(out),
        };
        self.at_client.push_back(format!("{expected:?}"));
    }

    fn reply_or_refusal(&mut self, id: u32, len: usize, event: &ClientEvent) {
        let fits = len <= self.limits.message_bytes_max as usize;
        self.at_client.push_back(if fits { format!("{event:?}") } else { format!("refused {id}") });
    }

    fn deliver_to_server(&mut self, bytes: usize) {
        self.to_server.fly(bytes);
        let before = self.to_client.out.len();
        let is_first = before == 0 && self.methods.is_empty() && bytes == 0;
        while let Some(event) = self
            .server
            .recv(&mut self.to_server.input, &mut self.to_client.out)
            .expect("a client that follows the rules")
        {
            if !matches!(event, ServerEvent::Handled) {
                self.check(&event);
            }
        }
        if !is_first {
            // While a server reads, it writes nothing but ping responses.
            for _ in 0..(self.to_client.out.len() - before) / 12 {
                self.at_client.push_back(format!("{:?}", ClientEvent::Pong));
            }
        }
    }

    fn check(&mut self, event: &ServerEvent) {
        let expected = match event {
            ServerEvent::Pong => match self.at_server.pop_front() {
                Some(Expected::Event(event)) => event,
                other => panic!("a pong, not {other:?}"),
            },
            _ => match self.at_server.pop_front() {
                Some(Expected::Event(event)) => event,
                Some(Expected::Open(_, event)) if !self.drained => event,
                Some(Expected::Open(id, _) | Expected::Refused(id)) => {
                    assert!(
                        matches!(event, ServerEvent::Refused { id: other, .. } if *other == id),
                        "{event:?}"
                    );
                    return;
                }
                None => panic!("unexpected {event:?}"),
            },
        };
        assert_eq!(format!("{event:?}"), expected);
    }

    fn deliver_to_client(&mut self, bytes: usize) {
        self.to_client.fly(bytes);
        loop {
            let before = self.to_server.out.len();
            let event = self
                .client
                .recv(&mut self.to_client.input, &mut self.to_server.out)
                .expect("a server that follows the rules");
            let mut answers = (self.to_server.out.len() - before) / 12;
            let expected = event.as_ref().map(|_| self.at_client.pop_front().expect("an expected event"));
            let refused = expected.as_ref().and_then(|expected| expected.strip_prefix("refused "));
            answers -= usize::from(refused.is_some());
            for _ in 0..answers {
                self.at_server.push_back(Expected::Event(format!("{:?}", ServerEvent::Pong)));
            }
            let Some(event) = event else { return };
            if let Some(refused) = refused {
                let id: u32 = refused.parse().expect("a number");
                assert!(
                    matches!(&event, ClientEvent::End { id: other, end: Err(_) } if *other == u64::from(id)),
                    "{event:?}"
                );
                // The client sends a cancel to the server.
                self.at_server.push_back(Expected::Event(format!("{:?}", ServerEvent::Cancel { id })));
            } else {
                assert_eq!(Some(format!("{event:?}")), expected);
            }
        }
    }
}

/// Returns true if the server accepts messages of this schema.
fn agree(method: MethodId, codec: Codec, theirs: Option<SchemaId>) -> bool {
    let ours = machines::table().info(method).schema;
    codec != Codec::Postcard || theirs.is_none() || ours.is_none() || theirs == ours
}

/// Draws metadata within the limits.
fn small(choices: &mut Choices<'_>, limits: &Limits) -> Metadata {
    let metadata = choices.metadata(limits.metadata_entries_max as u8);
    if metadata.encoded_len() <= limits.metadata_bytes_max as usize { metadata } else { Metadata::new() }
}
