//! A wire in lines of text: unary calls with messages in JSON.
//!
//! ```text
//! line 7 package.Service/Method {"a":1}     a request
//! ok 7 {"b":2}                              its reply
//! err 7 5 no such post                      its failure: number of the code, text
//! ```

use bytes::Bytes;
use std::{collections::HashMap, sync::Arc};
use switchboard::{
    Code, Codec, Kind, Metadata, Origin, SchemaId, Status,
    wire::{
        CallId, CallIds, Capabilities, ClientCallId, ClientEvent, ClientSetup, ClientSupport, ClientWire,
        Encoding, Fatal, Head, Input, Limits, MachineMemory, MethodTable, Open, Outbox, Outgoing,
        ServerEvent, ServerWire, WireSpec, starts,
    },
};

/// Largest message that a line carries.
const MESSAGE_BYTES_MAX: u32 = 64 << 10;
/// Longest line: a message, and its number and method.
const LINE_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize + 1024;

pub(crate) static LINE: WireSpec = WireSpec {
    title: "lines of text",
    sniff: Some(|prefix| starts(prefix, b"line ")),
    server: Some(|setup| Box::new(Server { limits: setup.limits, table: setup.table, ..Server::default() })),
    client: ClientSupport::Machine(|| Box::<Options>::default()),
    capabilities: Capabilities {
        codecs: &[Codec::Json],
        message_bytes_max: Some(MESSAGE_BYTES_MAX),
        ..Capabilities::NONE
    },
    ..WireSpec::named("line")
};

/// The option `prefix=TEXT` of channels: a package before the names of services.
#[derive(Debug, Default)]
struct Options {
    prefix: String,
}

impl ClientSetup for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        if name == "prefix" && value.is_empty() {
            return Err("a package");
        }
        if name == "prefix" {
            value.clone_into(&mut self.prefix);
        }
        Ok(name == "prefix")
    }

    fn codec(&self, _preferred: Codec) -> Codec {
        Codec::Json
    }

    fn carries_metadata(&self) -> bool {
        false
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        Box::new(Client { limits: *limits, prefix: self.prefix.clone(), methods: Vec::new() })
    }
}

/// Takes a line without its end; `None` if more bytes are needed.
fn line(input: &mut Input) -> Result<Option<Bytes>, Fatal> {
    let Some(end) = input.rest().iter().position(|byte| *byte == b'\n') else {
        return match input.len() > LINE_BYTES_MAX {
            true => Err(Fatal(format!("a line of more than {LINE_BYTES_MAX} bytes"))),
            false => Ok(None),
        };
    };
    let line = input.take(end);
    input.skip(1);
    Ok(Some(line))
}

/// Splits off the text before the next space.
fn word(line: &mut Bytes) -> Result<String, Fatal> {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let word = line.split_to(end);
    if !line.is_empty() {
        drop(line.split_to(1));
    }
    String::from_utf8(word.into()).map_err(|_| Fatal("a line that is not UTF-8".into()))
}

fn number<N: std::str::FromStr>(line: &mut Bytes) -> Result<N, Fatal> {
    word(line)?.parse().map_err(|_| Fatal("a line without a number".into()))
}

#[derive(Default)]
struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    /// Numbers of the caller, by the number of the call.
    calls: HashMap<CallId, u64>,
    next: CallId,
    refuses: bool,
}

impl Server {
    fn request(&self, name: &str, message: &Bytes) -> Result<Head, Status> {
        if self.refuses {
            return Err(Status::unavailable("the server is going away"));
        }
        let method = self.table.find(name).ok_or_else(|| self.table.unknown(name))?;
        if self.table.info(method).kind != Kind::Unary {
            return Err(Status::unimplemented(format!("{name} streams, which lines cannot carry")));
        }
        let most = self.table.message_bytes_max(method, self.limits.message_bytes_max);
        if message.len() > most as usize {
            return Err(self.table.too_large(method, message.len() as u32, self.limits.message_bytes_max));
        }
        Ok(Head {
            method,
            undeclared_name: None,
            codec: Codec::Json,
            encoding: Encoding::Identity,
            replies: Encoding::Identity,
            timeout: None,
            metadata: Metadata::new(),
            oneway: false,
        })
    }
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        LINE.name
    }

    fn recv(&mut self, input: &mut Input, _out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        let Some(mut line) = line(input)? else { return Ok(None) };
        if word(&mut line)? != "line" {
            return Err(Fatal("a line that is no request".into()));
        }
        let (number, name) = (number(&mut line)?, word(&mut line)?);
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.calls.insert(id, number);
        Ok(Some(match self.request(&name, &line) {
            Ok(head) => ServerEvent::Open { id, head, first: Some(line), compressed: false, more: false },
            Err(status) => ServerEvent::Refused { id, status },
        }))
    }

    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        let Some(number) = self.calls.remove(&id) else { return };
        out.tail().extend_from_slice(format!("ok {number} ").as_bytes());
        out.tail().extend_from_slice(&item);
        out.tail().extend_from_slice(b"\n");
    }

    fn reply_with(&mut self, id: CallId, item: Outgoing<'_>, _: bool, _: &Metadata, out: &mut Outbox) {
        self.reply(id, item, out);
    }

    fn head(&mut self, _id: CallId, _metadata: &Metadata, _out: &mut Outbox) {}

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        let Some(number) = self.calls.remove(&id) else { return };
        let text = match end {
            Ok(_) => format!("ok {number} \n"),
            Err(status) => {
                format!("err {number} {} {}\n", status.code().number(), status.message().replace('\n', " "))
            }
        };
        out.tail().extend_from_slice(text.as_bytes());
    }

    fn refuse(&mut self) {
        self.refuses = true;
    }

    fn memory(&self) -> MachineMemory {
        let entry = size_of::<(CallId, u64)>();
        MachineMemory { calls: self.calls.len(), bytes: self.calls.capacity() * entry }
    }
}

struct Client {
    limits: Limits,
    prefix: String,
    methods: Vec<String>,
}

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        LINE.name
    }

    fn call_ids(&self) -> CallIds {
        CallIds::Wide
    }

    fn method(&mut self, number: u16, name: &str, _schema: Option<SchemaId>, _out: &mut Outbox) {
        let at = usize::from(number);
        self.methods.resize(self.methods.len().max(at + 1), String::new());
        self.methods[at] = format!("{}{name}", self.prefix);
    }

    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        if open.more {
            return Err(Status::unimplemented("lines carry no streams"));
        }
        let message = first.unwrap_or(Outgoing::EMPTY).with(open.rest);
        let head = format!("line {id} {} ", self.methods[usize::from(open.method)]);
        for part in [head.as_bytes(), &message, b"\n"] {
            out.tail().extend_from_slice(part);
        }
        Ok(())
    }

    fn calls_max(&self) -> u32 {
        self.limits.calls_max
    }

    fn accepts(&self, encoding: Encoding) -> bool {
        encoding == Encoding::Identity
    }

    fn message_bytes_max(&self) -> u32 {
        MESSAGE_BYTES_MAX
    }

    fn recv(&mut self, input: &mut Input, _out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        let Some(mut line) = line(input)? else { return Ok(None) };
        let (kind, id) = (word(&mut line)?, number(&mut line)?);
        match kind.as_str() {
            "ok" => Ok(Some(ClientEvent::Reply { id, item: line, compressed: false })),
            "err" => {
                let code = Code::from_number(number(&mut line)?);
                let status = Status::new(code, String::from_utf8_lossy(&line)).with_origin(Origin::Peer);
                Ok(Some(ClientEvent::End { id, end: Err(status) }))
            }
            _ => Err(Fatal("a line that is no reply".into())),
        }
    }
}
