//! Runs a call of each of the four kinds.

use super::{
    explain::Explain, failure::Failure, input::Requests, output::Output, replies::Replies, timings::Timings,
};
use bytes::Bytes;
use clap::ValueEnum;
use prost_reflect::{
    MethodDescriptor,
    prost_types::{MethodOptions, method_options::IdempotencyLevel},
};
use std::{
    pin::pin,
    time::{Duration, Instant},
};
use switchboard::{
    Channel, ClientMethod, Codec, Idempotency, Kind, Receiver, Result as Called, Sender, Status,
};

/// A call to be run.
#[derive(Debug)]
pub(super) struct Invocation<'a> {
    pub(super) channel: &'a Channel,
    pub(super) method: &'static ClientMethod,
    pub(super) codec: Codec,
    pub(super) metadata: &'a [(String, Bytes)],
    pub(super) timeout: Option<Duration>,
    /// The caller expects no reply.
    pub(super) oneway: bool,
    /// The selection of the server is printed.
    pub(super) explains: bool,
}

/// The kind of a method without a schema.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum RawKind {
    Bidi,
    ClientStream,
    ServerStream,
    Unary,
}

/// Returns the method of a schema, in the form that channels need.
pub(super) fn of_schema(method: &MethodDescriptor) -> Result<&'static ClientMethod, Status> {
    let path = format!("{}/{}", method.parent_service().full_name(), method.name());
    ClientMethod::intern(&path, declared_kind(method), idempotency(method))
}

/// Returns the kind of a method: how many messages are sent each way.
pub(crate) fn declared_kind(method: &MethodDescriptor) -> Kind {
    match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => Kind::Unary,
        (false, true) => Kind::ServerStream,
        (true, false) => Kind::ClientStream,
        (true, true) => Kind::Bidi,
    }
}

/// A method without a schema.
pub(super) fn of_name(path: &str, kind: RawKind) -> Result<&'static ClientMethod, Status> {
    let kind = match kind {
        RawKind::Bidi => Kind::Bidi,
        RawKind::ClientStream => Kind::ClientStream,
        RawKind::ServerStream => Kind::ServerStream,
        RawKind::Unary => Kind::Unary,
    };
    ClientMethod::intern(path, kind, Idempotency::Unknown)
}

/// Sets the options that all kinds of call have.
macro_rules! with_options {
    ($invocation:expr, $call:expr) => {{
        let mut call = $call;
        for (name, value) in $invocation.metadata {
            call = call.meta(name, value.clone());
        }
        match $invocation.timeout {
            Some(timeout) => call.timeout(timeout),
            None => call,
        }
    }};
}

impl Invocation<'_> {
    /// Runs the call, and prints replies as they arrive.
    pub(super) async fn run(
        &self,
        mut requests: Requests,
        replies: &mut Replies,
        output: &mut Output,
        timings: &mut Timings,
    ) -> Result<(), Failure> {
        let method = self.method;
        if self.explains {
            // Shown until the attempts are known.
            output.explain(Explain::new(self.channel.explain(method.path, None), Vec::new()));
        }
        match kind(method) {
            Kind::Unary if self.oneway => {
                let request = requests.only(method.path).await?;
                let call = with_options!(self, self.channel.oneway(method, self.codec, Ok(request)));
                call.await.map_err(|status| failed(status, output))
            }
            Kind::Unary => {
                let request = requests.only(method.path).await?;
                let sent = Instant::now();
                let call = self.channel.unary(method, self.codec, Ok(request), with_codec);
                let call = with_options!(self, call);
                let outcome = if self.explains {
                    let explained = call.explained().await;
                    output.explain(Explain::new(explained.before, explained.attempts));
                    explained.outcome
                } else {
                    call.await
                };
                let reply = match outcome {
                    Ok(reply) => reply,
                    Err(status) => return Err(failed(status, output)),
                };
                timings.first_message = Some(sent.elapsed());
                output.head(reply.meta().clone());
                let trailers = reply.trailers().clone();
                let (codec, reply) = reply.into_inner();
                output.message(&replies.read(codec, reply).await?)?;
                output.trailers(trailers);
                Ok(())
            }
            Kind::ServerStream => {
                let request = requests.only(method.path).await?;
                let sent = Instant::now();
                let call = self.channel.server_stream(method, self.codec, Ok(request), with_codec);
                let receiver = with_options!(self, call).await.map_err(|status| failed(status, output))?;
                receive(receiver, sent, replies, output, timings).await
            }
            // One reply is read as a stream of one message, so that a call that ends before its requests is noticed at
            // once.
            Kind::ClientStream | Kind::Bidi => {
                let sent = Instant::now();
                let call = self.channel.bidi(method, self.codec, copy, with_codec);
                let (sender, receiver) =
                    with_options!(self, call).await.map_err(|status| failed(status, output))?;
                let mut sending = pin!(send(requests, sender));
                let mut receiving = pin!(receive(receiver, sent, replies, output, timings));
                tokio::select! {
                    biased;
                    sent = &mut sending => {
                        sent?;
                        receiving.await
                    }
                    received = &mut receiving => received,
                }
            }
        }
    }
}

/// Returns whether requests or replies are streams.
pub(super) fn kind(method: &ClientMethod) -> Kind {
    method.service.methods[usize::from(method.index)].kind
}

async fn send(mut requests: Requests, sender: Sender<Bytes>) -> Result<(), Failure> {
    while let Some(request) = requests.next().await? {
        // The error of a call that has ended is reported where its replies are read.
        if sender.send(request).await.is_err() {
            break;
        }
    }
    sender.finish();
    Ok(())
}

async fn receive(
    mut receiver: Receiver<(Codec, Bytes)>,
    sent: Instant,
    replies: &mut Replies,
    output: &mut Output,
    timings: &mut Timings,
) -> Result<(), Failure> {
    output.head(receiver.metadata().await);
    loop {
        match receiver.next().await {
            Ok(Some((codec, reply))) => {
                timings.first_message.get_or_insert_with(|| sent.elapsed());
                output.message(&replies.read(codec, reply).await?)?;
            }
            Ok(None) => {
                output.trailers(receiver.trailers());
                return Ok(());
            }
            Err(status) => return Err(failed(status, output)),
        }
    }
}

fn copy(bytes: &Bytes, _: Codec) -> Called<Bytes> {
    Ok(bytes.clone())
}

/// Returns a reply and its codec: some servers choose the codec themselves.
fn with_codec(codec: Codec, bytes: Bytes) -> Called<(Codec, Bytes)> {
    Ok((codec, bytes))
}

fn failed(status: Status, output: &mut Output) -> Failure {
    output.trailers(status.metadata().clone());
    status.into()
}

/// Returns whether the method may be retried.
pub(crate) fn idempotency(method: &MethodDescriptor) -> Idempotency {
    let options = method.method_descriptor_proto().options.as_ref();
    match options.map(MethodOptions::idempotency_level) {
        Some(IdempotencyLevel::NoSideEffects) => Idempotency::NoSideEffects,
        Some(IdempotencyLevel::Idempotent) => Idempotency::Idempotent,
        _ => Idempotency::Unknown,
    }
}
