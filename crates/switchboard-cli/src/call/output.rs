//! Prints replies as JSON on standard output and everything else on standard error, or everything as one object.

use super::{
    args::CallArgs, explain::Explain, failure::Failure, flatbuffers::Look, metadata, replies::Reply,
    timings::Timings,
};
use prost_reflect::{DynamicMessage, ReflectMessage, SerializeOptions};
use serde_json::json;
use std::io::{self, Write};
use switchboard::{Metadata, Status};

#[derive(Debug)]
pub(super) struct Output {
    one_object: bool,
    compact: bool,
    verbose: bool,
    show_timings: bool,
    options: SerializeOptions,
    look: Look,
    messages: usize,
    head: Metadata,
    trailers: Metadata,
    details: Vec<DynamicMessage>,
    explain: Option<Explain>,
}

impl Output {
    pub(super) fn new(args: &CallArgs) -> Output {
        Output {
            one_object: args.json,
            compact: args.compact,
            verbose: args.verbose,
            show_timings: args.timings || args.explain,
            look: Look::for_people(args.compact, args.emit_defaults),
            options: SerializeOptions::new().skip_default_fields(!args.emit_defaults),
            messages: 0,
            head: Metadata::new(),
            trailers: Metadata::new(),
            details: Vec::new(),
            explain: None,
        }
    }

    /// Prints how the server of the call was selected.
    pub(super) fn explain(&mut self, explain: Explain) {
        self.explain = Some(explain);
    }

    /// Prints the metadata before the replies.
    pub(super) fn head(&mut self, head: Metadata) {
        self.print_metadata("metadata", &head);
        self.head = head;
    }

    /// Prints the metadata of the end.
    pub(super) fn trailers(&mut self, trailers: Metadata) {
        self.print_metadata("trailer", &trailers);
        self.trailers = trailers;
    }

    fn print_metadata(&self, what: &str, entries: &Metadata) {
        if self.verbose && !self.one_object {
            for (name, value) in entries.iter() {
                eprintln!("{what} {name}: {}", metadata::text(name, value));
            }
        }
    }

    /// Prints a detail of the status.
    pub(super) fn detail(&mut self, detail: DynamicMessage) {
        self.details.push(detail);
    }

    /// Prints a reply at once, because the next may take long.
    pub(super) fn message(&mut self, reply: &Reply) -> Result<(), Failure> {
        let json = match reply {
            Reply::Message(message) => self.json(message)?,
            Reply::Raw(value) if self.compact => value.to_string(),
            Reply::Raw(value) => format!("{value:#}"),
            Reply::Table(procedure, bytes) => procedure.read(bytes, self.look)?,
        };
        self.messages += 1;
        if !self.one_object {
            return print(&format!("{json}\n"));
        }
        let before = if self.messages == 1 { self.opening() } else { ",".into() };
        match self.compact {
            true => print(&format!("{before}{json}")),
            false => print(&format!("{before}\n    {}", json.replace('\n', "\n    "))),
        }
    }

    fn opening(&self) -> String {
        if self.compact { r#"{"messages":["# } else { "{\n  \"messages\": [" }.to_owned()
    }

    fn json(&self, message: &DynamicMessage) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        let written =
            match self.compact {
                true => message
                    .serialize_with_options(&mut serde_json::Serializer::new(&mut bytes), &self.options),
                false => message
                    .serialize_with_options(&mut serde_json::Serializer::pretty(&mut bytes), &self.options),
            };
        let name = || message.descriptor().full_name().to_owned();
        written.map_err(|error| {
            Status::internal(format!("the reply, a {}, cannot be written as JSON: {error}", name()))
        })?;
        Ok(String::from_utf8(bytes).expect("JSON is text"))
    }

    /// Prints the end of the call.
    pub(super) fn end(&mut self, failure: Option<&Failure>, timings: &Timings) -> Result<(), Failure> {
        if self.one_object {
            return self.end_object(failure, timings);
        }
        if let Some(failure) = failure {
            eprintln!("{}", failure.text());
            for detail in &self.details {
                eprintln!("  detail: {}", self.one_line(detail));
            }
        }
        if let Some(explain) = &self.explain {
            eprint!("{}", explain.text());
        }
        if self.show_timings {
            eprintln!("{timings}");
        }
        Ok(())
    }

    fn one_line(&self, message: &DynamicMessage) -> String {
        serde_json::to_string(message).unwrap_or_else(|error| error.to_string())
    }

    fn end_object(&self, failure: Option<&Failure>, timings: &Timings) -> Result<(), Failure> {
        let details: Vec<_> =
            self.details.iter().filter_map(|detail| serde_json::to_value(detail).ok()).collect();
        let status = match failure {
            None => json!({"code": "ok", "number": 0}),
            Some(failure) => failure.json(&details),
        };
        let rest = [
            ("status", status),
            ("metadata", metadata::json(&self.head)),
            ("trailers", metadata::json(&self.trailers)),
            ("timings", timings.json()),
        ];
        let rest = rest.into_iter().chain(self.explain.as_ref().map(|explain| ("explain", explain.json())));
        let mut text = if self.messages == 0 { self.opening() } else { String::new() };
        text += if self.compact || self.messages == 0 { "]" } else { "\n  ]" };
        for (name, value) in rest {
            text += &match self.compact {
                true => format!(",\"{name}\":{value}"),
                false => format!(",\n  \"{name}\": {}", format!("{value:#}").replace('\n', "\n  ")),
            };
        }
        print(&format!("{text}{}}}\n", if self.compact { "" } else { "\n" }))
    }
}

/// Writes to standard output and flushes it.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| Failure::Output(format!("cannot write to standard output: {error}")))
}
