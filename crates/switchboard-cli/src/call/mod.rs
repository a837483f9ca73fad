//! `switchboard call`: calls any server, on any wire, with only its schema.

mod args;
mod bundled;
mod bytes;
mod describe;
mod explain;
mod failure;
mod flatbuffers;
mod input;
mod invoke;
mod json;
pub(crate) mod metadata;
mod names;
mod output;
mod reflection;
mod replies;
mod schema;
mod target;
mod thrift;
mod timings;
mod tips;
mod wire;

pub(crate) use args::{CallArgs, duration};
pub(crate) use failure::Failure;
pub(crate) use flatbuffers::{Definitions as Tables, Look, Procedure, Root};
pub(crate) use invoke::{declared_kind, idempotency};
pub(crate) use metadata::parse as parse_metadata;
pub(crate) use reflection::Reflection;
pub(crate) use schema::{Schema, SchemaArgs, is_about_the_server, takes_json_alone};
pub(crate) use target::with_scheme;
pub(crate) use thrift::{Definitions, For, Function, Outcome};

use input::{Form, Input, Requests};
use invoke::{Invocation, RawKind};
use output::{Output, print};
use replies::Replies;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use switchboard::{Channel, ChannelBuilder, ClientMethod, Code, Codec, Kind, Origin, Runtime, Status};
use target::Target;
use timings::Timings;
use tokio::runtime::Handle;
use wire::Wire;

/// Time limit of connecting, even with a longer timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit of sending a one-way request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command; its result is written to standard output.
pub(crate) fn run(args: CallArgs) -> ExitCode {
    // A single caller gains nothing from more threads or from spinning.
    let runtime = Runtime::new().workers(1).spin(Duration::ZERO);
    let outcome = runtime.run(async move { run_verb(&args).await });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit_code(),
    }
}

async fn run_verb(args: &CallArgs) -> Result<(), Failure> {
    let mut output = Output::new(args);
    let target = Target::new(args).map_err(|text| {
        let failure = Failure::Usage(text);
        eprintln!("{}", failure.text());
        failure
    })?;
    let mut command = Command {
        args,
        target,
        deadline: args.timeout.map(|timeout| Instant::now() + timeout),
        timings: Timings::start(),
        oneway: args.oneway,
    };
    let mut outcome = command.run(&mut output).await;
    if command.oneway && outcome.is_ok() {
        outcome = written().await;
    }
    command.timings.stop();
    if let Err(Failure::Status(ended)) = &mut outcome {
        let replied = command.timings.first_message.is_some();
        tips::add(ended, &command.target, replied).await;
    }
    let is_call = !["list", "describe"].contains(&args.verb.as_str());
    match outcome {
        // A failed write is not repeated.
        Err(failure @ Failure::Output(_)) => {
            eprintln!("{}", failure.text());
            Err(failure)
        }
        outcome if is_call => {
            output.end(outcome.as_ref().err(), &command.timings)?;
            outcome
        }
        outcome => outcome.inspect_err(|failure| eprintln!("{}", failure.text())),
    }
}

/// Waits until dropped connections have written their data and ended: this runtime does not spin, so it has no other
/// tasks.
async fn written() -> Result<(), Failure> {
    let written = async {
        while Handle::current().metrics().num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(WRITE_TIMEOUT, written).await.map_err(|_| {
        let text = format!("the server did not read the whole request within {WRITE_TIMEOUT:?}");
        Status::deadline_exceeded(text).into()
    })
}

struct Command<'a> {
    args: &'a CallArgs,
    target: Target,
    deadline: Option<Instant>,
    timings: Timings,
    /// The caller expects no reply.
    oneway: bool,
}

impl Command<'_> {
    async fn run(&mut self, output: &mut Output) -> Result<(), Failure> {
        match (self.args.verb.as_str(), &self.args.name) {
            ("list", name) => self.list(name.as_deref()).await,
            ("describe", name) => self.describe(name.as_deref()).await,
            (_, None) => self.call(output).await,
            (method, Some(extra)) => Err(Failure::Usage(format!(
                "{extra:?} after the method {method}: requests go into -d, as in -d '{{\"name\": \"Ada\"}}'"
            ))),
        }
    }

    async fn list(&mut self, service: Option<&str>) -> Result<(), Failure> {
        if let Some(definitions) = Definitions::of_files(&self.args.schema)? {
            return self.print_list(&definitions.list(service)?);
        }
        if let Some(definitions) = flatbuffers::Definitions::of_files(&self.args.schema)? {
            return self.print_list(&definitions.list(service)?);
        }
        let mut schema = self.schema(None).await?;
        let services = match service {
            Some(name) => vec![schema.service(name).await?.full_name().to_owned()],
            None => schema.services().await?,
        };
        let mut lines = Vec::new();
        for name in &services {
            if service.is_none() && !self.args.verbose {
                lines.push(name.clone());
                continue;
            }
            let known = match schema.service(name).await {
                // A service without a schema does not affect the others.
                Err(Failure::Usage(_)) if service.is_none() => {
                    lines.push(name.clone());
                    continue;
                }
                known => known?,
            };
            for method in known.methods() {
                let signature = if self.args.verbose { describe::signature(&method) } else { String::new() };
                lines.push(format!("{name}/{}{signature}", method.name()));
            }
        }
        self.print_list(&lines)
    }

    fn print_list(&self, lines: &[String]) -> Result<(), Failure> {
        if self.args.json {
            return print(&format!("{}\n", serde_json::json!(lines)));
        }
        print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())
    }

    async fn describe(&mut self, name: Option<&str>) -> Result<(), Failure> {
        if !self.args.schema.thrift.is_empty() || !self.args.schema.fbs.is_empty() {
            let text = "`describe` shows schemas of servers and .proto files; for a .thrift or .fbs file use \
                        `list`";
            return Err(Failure::Usage(text.into()));
        }
        let mut schema = self.schema(None).await?;
        let names = match name {
            Some(name) => vec![name.to_owned()],
            None => {
                let mut names = schema.services().await?;
                names.retain(|name| !schema::is_about_the_server(name));
                names
            }
        };
        let mut sources = Vec::new();
        for known in names {
            match schema.symbol(&known).await {
                Err(Failure::Usage(_)) if name.is_none() => {
                    sources.push(format!("// The server has no schema of {known}.\n"));
                }
                symbol => sources.push(describe::source(&symbol?)),
            }
        }
        print(&sources.join("\n"))
    }

    async fn call(&mut self, output: &mut Output) -> Result<(), Failure> {
        let (service, name) = names::split_method(&self.args.verb).map_err(Failure::Usage)?;
        if self.target.wire == Wire::THRIFT {
            return self.call_function(output).await;
        }
        if !self.target.wire.capabilities().metadata && !self.args.headers.is_empty() {
            let text = format!("{} carries no metadata: remove -H", self.target.wire.title());
            return Err(Failure::Usage(text));
        }
        if let Some(kind) = self.args.raw {
            let method = invoke::of_name(&format!("{service}/{name}"), kind)
                .map_err(|status| Failure::Usage(status.message().to_owned()))?;
            let streams = matches!(kind, RawKind::Bidi | RawKind::ClientStream);
            if let Some(digits) = self.args.bytes {
                if streams {
                    let text = "--bytes is for methods that take one request: unary and server-stream";
                    return Err(Failure::Usage(text.into()));
                }
                let requests = Requests::of(digits.request(self.args.data.as_deref())?);
                let channel = self.connect(self.target.wire).await?;
                let codec = channel.codec(self.target.wire.usual_codec());
                return self.invoke(&channel, method, codec, requests, Replies::bytes(digits), output).await;
            }
            let channel = self.connect(self.target.wire).await?;
            let requests = Input::new(self.args.data.as_deref(), streams, true)?.read(Form::Raw);
            return self.invoke(&channel, method, Codec::Json, requests, Replies::raw(), output).await;
        }
        if let Some(definitions) = flatbuffers::Definitions::of_files(&self.args.schema)? {
            return self.call_procedure(&definitions, output).await;
        }
        let local = Schema::of_files(&self.args.schema)?;
        // Resolved before the server is contacted, so that usage errors are reported at once.
        let local_method = match local {
            Some(mut schema) => Some((schema.method(&self.args.verb).await?, schema)),
            None => None,
        };
        let channel = self.connect(self.target.wire).await?;
        let (method, schema) = match local_method {
            Some(found) => found,
            None => {
                let began = Instant::now();
                let mut schema = self.schema(Some(&channel)).await?;
                let method = schema.method(&self.args.verb).await?;
                self.timings.schema = Some(began.elapsed());
                (method, schema)
            }
        };
        let takes_fields = method.input().fields().len() > 0;
        if schema::takes_json_alone(&method) {
            // JSON is sent as typed: conversion through messages would lose numbers that their types cannot hold.
            let data = self.args.data.as_deref();
            let requests = Input::new(data, method.is_client_streaming(), takes_fields)?.read(Form::Raw);
            let (method, replies) = (invoke::of_schema(&method)?, Replies::raw());
            return self.invoke(&channel, method, Codec::Json, requests, replies, output).await;
        }
        let input = Input::new(self.args.data.as_deref(), method.is_client_streaming(), takes_fields)?;
        let codec = channel.codec(Codec::Proto);
        if !matches!(codec, Codec::Json | Codec::Proto) {
            let text = format!("codec={codec} in the URL: messages are written here as proto or json");
            return Err(Failure::Usage(text));
        }
        let requests = input.read(Form::Message(method.input(), codec));
        let replies = Replies::new(schema, method.output());
        self.invoke(&channel, invoke::of_schema(&method)?, codec, requests, replies, output).await
    }

    async fn invoke(
        &mut self,
        channel: &Channel,
        method: &'static ClientMethod,
        codec: Codec,
        requests: Requests,
        mut replies: Replies,
        output: &mut Output,
    ) -> Result<(), Failure> {
        if invoke::kind(method) != Kind::Unary && (self.target.wire.is_foreign() || self.oneway) {
            let (path, wire) = (method.path, self.target.wire.name());
            return Err(Failure::Usage(match self.oneway {
                true => format!("{path} has a stream: --oneway is for one request"),
                false => format!(
                    "{path} has a stream, which {wire} does not carry: call it with --wire grpc, connect or native"
                ),
            }));
        }
        let invocation = Invocation {
            channel,
            method,
            codec,
            oneway: self.oneway,
            metadata: &self.args.headers,
            explains: self.args.explain,
            timeout: self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
        };
        let outcome = invocation.run(requests, &mut replies, output, &mut self.timings).await;
        if let Err(Failure::Status(ended)) = &outcome {
            for detail in ended.status.details() {
                // A detail that cannot be decoded does not affect the status.
                if let Ok(detail) = replies.read_detail(detail).await {
                    output.detail(detail);
                }
            }
        }
        outcome
    }

    /// Returns the schema of the files on the command line, or that of the server, through `channel` if that supports
    /// reflection.
    async fn schema(&mut self, channel: Option<&Channel>) -> Result<Schema, Failure> {
        if let Some(schema) = Schema::of_files(&self.args.schema)? {
            return Ok(schema);
        }
        let channel = match (channel, self.target.wire) {
            // Reflection is a gRPC service; a server with both wires serves them on one port.
            (_, wire) if !wire.carries_reflection() => self.connect(Wire::GRPC).await?,
            (Some(channel), _) => channel.clone(),
            (None, wire) => self.connect(wire).await?,
        };
        Ok(Schema::of_server(Reflection::new(channel, self.args.headers.clone(), self.deadline)))
    }

    async fn connect(&mut self, wire: Wire) -> Result<Channel, Failure> {
        if (self.args.timings || self.args.json)
            && self.timings.dns.is_none()
            && let Some((host, port)) = self.target.host()
        {
            let began = Instant::now();
            // An unknown host name fails the connection, which reports it.
            let known = tokio::net::lookup_host((host, port)).await.is_ok();
            self.timings.dns = known.then(|| began.elapsed());
        }
        let began = Instant::now();
        let left =
            self.deadline.map_or(CONNECT_TIMEOUT, |deadline| deadline.saturating_duration_since(began));
        if left.is_zero() {
            return Err(Status::deadline_exceeded("no connection within the --timeout").into());
        }
        let builder = self.builder(wire)?.connect_timeout(left.min(CONNECT_TIMEOUT));
        let channel = builder.connect().await.map_err(|status| match (status.code(), status.origin()) {
            (Code::InvalidArgument, Origin::Local) => Failure::Usage(status.message().to_owned()),
            _ => status.into(),
        })?;
        self.timings.connect.get_or_insert_with(|| began.elapsed());
        if self.args.explain {
            explain::settled(&channel).await;
        }
        Ok(channel)
    }

    /// Returns a builder of a channel to the server, or to the servers of a registry.
    fn builder(&self, wire: Wire) -> Result<ChannelBuilder, Failure> {
        let url = self.target.url(wire);
        if !self.target.is_registry() {
            return Ok(Channel::builder(&url));
        }
        let fleet = self.service().and_then(|service| {
            switchboard_registry::fleet(&url, service).map_err(|status| status.message().to_owned())
        });
        fleet.map_err(Failure::Usage)
    }

    /// Returns the requested service, for a query to a registry.
    fn service(&self) -> Result<&str, String> {
        match (self.args.verb.as_str(), &self.args.name) {
            ("list" | "describe", Some(name)) => {
                Ok(name.split_once('/').map_or(name.as_str(), |(service, _)| service))
            }
            (verb @ ("list" | "describe"), None) => {
                Err(format!("a registry lists servers by service: name one, as in `{verb} demo.v1.Greeter`"))
            }
            (method, _) => names::split_method(method).map(|(service, _)| service),
        }
    }
}
