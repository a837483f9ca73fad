//! Calls of services: a request to `package.Service.Method`, whose reply goes to the reply subject.

use super::{
    adapter::{Command, NatsAdapter},
    messages,
    peer::Client,
    shared::Shared,
};
use crate::{responses::add, task::Task};
use bytes::Bytes;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};
use switchboard_core::{Result, clock};
use switchboard_fanout::SubscriberId;
use switchboard_message::{Publication, Topic};
use switchboard_net::plugin::{ServiceCall, ServiceResponse};
use switchboard_wire::{
    Code, Codec, Metadata, MethodId, Status, jsonrpc,
    nats::{Headers, Message},
};

/// Longest text of an error in a header, in bytes.
const ERROR_BYTES: usize = 4096;

impl NatsAdapter {
    /// Returns the method of a service that a subject names.
    pub(super) fn method(&self, subject: &[u8]) -> Option<MethodId> {
        let methods = self.shared.methods.as_ref()?;
        let (service, method) = std::str::from_utf8(subject).ok()?.rsplit_once('.')?;
        methods.find(&format!("{service}/{method}"))
    }

    /// Calls a method for a client.
    pub(super) fn call(&mut self, index: u32, method: MethodId, message: &Message, reply: Topic) {
        let shared = &self.shared;
        add(&shared.settings.counters.calls, 1);
        let Some(client) = self.clients.get_mut(index) else { return };
        let codec = message.headers.as_ref().and_then(messages::codec).unwrap_or(Codec::Json);
        let call = match prepare(shared, client, method, message, codec) {
            Ok(call) => call,
            Err(status) => return shared.reply(&reply, error(&status)),
        };
        let running = shared.services.call(&client.peer, call);
        let (shared, began) = (shared.clone(), clock::now());
        let mut answered: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let replied = running.await;
            shared.micro.count(method, replied.is_ok(), clock::since(began));
            let response = replied.map_or_else(|status| error(&status), |reply| success(codec, reply));
            shared.reply(&reply, response);
        });
        // Most handlers are ready at once.
        if answered.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.spawn(index, answered);
        }
    }

    /// Runs a call that waits. It ends with its client.
    fn spawn(&mut self, index: u32, answered: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let Some(client) = self.clients.get_mut(index) else { return };
        self.last_call = self.last_call.wrapping_add(1);
        let (id, call, engine) = (client.id, self.last_call, self.engine.clone());
        let task = Task::spawn(async move {
            answered.await;
            // An engine that has ended has no clients.
            let _ = engine.send(Command::CallEnded(id, call)).await;
        });
        client.calls.insert(call, task);
    }

    /// A call that had waited has ended. Returns whether others of its client are in flight.
    pub(super) fn call_ended(
        &mut self,
        id: SubscriberId,
        call: u64,
        subscribers: &mut switchboard_fanout::Subscribers,
    ) -> bool {
        let Some(index) = self.clients.index(id, subscribers) else { return false };
        let Some(client) = self.clients.get_mut(index) else { return false };
        client.calls.remove(&call);
        !client.calls.is_empty()
    }
}

/// Makes the call of a request.
///
/// # Errors
/// `ResourceExhausted` for too many calls in flight; `InvalidArgument` for parameters that do not
/// fit.
fn prepare(
    shared: &Shared,
    client: &Client,
    method: MethodId,
    message: &Message,
    codec: Codec,
) -> Result<ServiceCall> {
    let calls_max = shared.settings.calls_max;
    if client.calls.len() >= calls_max {
        let text = format!("the connection has {calls_max} calls in flight, which is the limit (calls_max)");
        return Err(Status::resource_exhausted(text));
    }
    let Some(methods) = &shared.methods else { return Err(Status::unavailable("there is no server")) };
    let mut metadata = Metadata::new();
    if let Some(headers) = &message.headers {
        for (name, value) in headers.iter() {
            // Names and values that metadata cannot have are not for a handler.
            let _ = metadata.insert(name, Bytes::copy_from_slice(value));
        }
    }
    if let (None, Some(authorization)) = (metadata.value("authorization"), &client.authorization) {
        // Characters that metadata cannot have are no credentials.
        let _ = metadata.insert("authorization", authorization.clone());
    }
    let body = match codec {
        Codec::Json => {
            let params = Some(&message.payload).filter(|payload| !payload.is_empty());
            jsonrpc::message(methods.info(method), params)?
        }
        _ => message.payload.clone(),
    };
    Ok(ServiceCall::new(methods.full_name(method), codec, body).metadata(metadata))
}

fn success(codec: Codec, reply: ServiceResponse) -> Publication {
    let mut publication = Publication::new(codec, reply.message);
    publication.headers = reply.metadata;
    publication
}

/// Makes the response to a call that failed: headers of the services of NATS, and the name of the status.
fn error(status: &Status) -> Publication {
    let mut publication = Publication::new(Codec::Raw, Bytes::new());
    let text: String = status.message().chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    let text = &text[..text.floor_char_boundary(ERROR_BYTES)];
    let code = status.code();
    let headers = Headers::new([
        ("Nats-Service-Error", text.as_bytes()),
        ("Nats-Service-Error-Code", http_status(code).as_bytes()),
        ("Switchboard-Code", code.name().as_bytes()),
    ]);
    if let Ok(headers) = headers {
        // A short block fits.
        let _ = messages::set_headers(&headers, &mut publication.headers);
    }
    publication
}

/// Returns the status of HTTP for a code, as the services of NATS use them.
fn http_status(code: Code) -> &'static str {
    match code {
        Code::Ok => "200",
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => "400",
        Code::Unauthenticated => "401",
        Code::PermissionDenied => "403",
        Code::NotFound => "404",
        Code::AlreadyExists | Code::Aborted => "409",
        Code::ResourceExhausted => "429",
        Code::Canceled => "499",
        Code::Unimplemented => "501",
        Code::Unavailable => "503",
        Code::DeadlineExceeded => "504",
        _ => "500",
    }
}

impl Shared {
    /// Publishes the response to a request. A client that is gone does not get it.
    pub(super) fn reply(self: &Arc<Self>, topic: &Topic, response: Publication) {
        if let Err(status) = self.settings.bus.publish_encoded(topic, response).at_once() {
            tracing::debug!("nats: a response to {topic} is dropped: {status}");
        }
    }
}
