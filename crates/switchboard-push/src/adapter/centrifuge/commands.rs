//! Commands of a client.

use super::{
    adapter::CentrifugeAdapter,
    encoder::{INFO, client_id, room},
    ending::Ending,
    errors::Failure,
    login::{Purpose, call_metadata},
    peer::Peer,
    stats::count,
};
use crate::hub::Publishing;
use std::{
    pin::Pin,
    task::{Context as TaskContext, Poll, Waker},
};
use switchboard::{Result, plugin::ServiceCall};
use switchboard_adapter::parts::Task;
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_message::Publication;
use switchboard_wire::{
    Codec,
    centrifuge::{Command, Data, Format, Info, Publish, Reply, Rpc, RpcResult, code},
    jsonrpc,
};

/// A command that may wait: it becomes a reply.
pub(super) type Work = Pin<Box<dyn Future<Output = Reply> + Send>>;

impl CentrifugeAdapter {
    /// Handles a command.
    ///
    /// # Errors
    /// The connection must be closed.
    pub(super) fn handle(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        command: Command,
        subscribers: &mut Subscribers,
    ) -> Result<(), Ending> {
        count(&self.context.counters.commands);
        let number = command.id;
        if let Some(request) = command.connect {
            return self.connect(id, peer, (number, *request), subscribers);
        }
        if command.send.is_some() || command.is_pong() {
            return Ok(());
        }
        if command.channel().is_some_and(str::is_empty) {
            let text = "the command has no channel";
            return self.fail(peer, number, Failure::new(code::BAD_REQUEST, text));
        }
        let mut reply = Reply::default();
        reply.id = number;
        if let Some(request) = command.subscribe {
            return self.subscribe(id, peer, (number, *request), subscribers);
        } else if let Some(request) = command.unsubscribe {
            self.leave(id, peer, &room(&request.channel), subscribers);
            reply.unsubscribe = Some(Box::default());
        } else if let Some(request) = command.publish {
            return self.publish(id, peer, number, *request);
        } else if let Some(request) = command.presence {
            return self.presence(peer, number, &request.channel);
        } else if let Some(request) = command.presence_stats {
            return self.presence_stats(peer, number, &request.channel);
        } else if let Some(request) = command.history {
            return self.history(id, peer, number, &request);
        } else if command.ping.is_some() {
            reply.ping = Some(Box::default());
        } else if let Some(request) = command.rpc {
            return self.call(id, peer, number, &request);
        } else if let Some(request) = command.refresh {
            return self.verify(id, peer, request.token, Purpose::Refresh { id: number }, subscribers);
        } else if let Some(request) = command.sub_refresh {
            let purpose = Purpose::SubRefresh { id: number, channel: request.channel };
            return self.verify(id, peer, request.token, purpose, subscribers);
        } else {
            let text = "the server does not know the command";
            return self.fail(peer, number, Failure::new(code::METHOD_NOT_FOUND, text));
        }
        self.reply(peer, &reply)
    }

    /// Publishes for a client.
    fn publish(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        command: u32,
        request: Publish,
    ) -> Result<(), Ending> {
        let format = peer.format();
        let Some(device) = &mut peer.device else { return Ok(()) };
        if request.data.0.is_empty() {
            let text = "the publication has no data";
            return self.fail(peer, command, Failure::new(code::BAD_REQUEST, text));
        }
        let codec = if format == Format::Json { Codec::Json } else { Codec::Raw };
        let mut publication = Publication::new(codec, request.data.0);
        let mut info = Info::default();
        info.user.clone_from(&device.identity().user);
        info.client = client_id(device.session());
        info.conn_info = Data(device.info().clone());
        // The name is valid, and so is JSON as a value.
        let _ = publication.headers.insert(INFO, serde_json::to_string(&info).unwrap_or_default());
        let replied = move |result: Result<()>| match result {
            Ok(()) => {
                let mut reply = Reply::default();
                (reply.id, reply.publish) = (command, Some(Box::default()));
                reply
            }
            Err(status) => Failure::from(status).reply(command),
        };
        match device.publish(&room(&request.channel), publication) {
            Ok(Publishing::Done(_)) => self.done(peer, &replied(Ok(()))),
            Ok(Publishing::Waits(published)) => {
                let work = Box::pin(async move { replied(published.await.map(|_| ())) });
                self.spawn(id, peer, command, work)
            }
            Err(status) => self.fail(peer, command, Failure::from(status)),
        }
    }

    /// Calls a method of the server for a client.
    fn call(&mut self, id: SubscriberId, peer: &mut Peer, command: u32, request: &Rpc) -> Result<(), Ending> {
        let services = &self.context.services;
        let methods = services.methods().filter(|_| self.context.settings.has_calls);
        let found = methods.as_ref().and_then(|methods| {
            let method = methods.find(&full_name(&request.method))?;
            let params = Some(&request.data.0).filter(|data| !data.is_empty());
            let body = jsonrpc::message(methods.info(method), params);
            Some(body.map(|body| (methods.full_name(method).clone(), body)))
        });
        let (method, body) = match found {
            Some(Ok(found)) => found,
            Some(Err(status)) => return self.fail(peer, command, Failure::from(status)),
            None => {
                let text = format!("method \"{}\" not found", request.method.escape_debug());
                return self.fail(peer, command, Failure::new(code::METHOD_NOT_FOUND, text));
            }
        };
        let call = ServiceCall::new(method, Codec::Json, body).metadata(call_metadata(peer));
        let running = services.call(&peer.remote, call);
        let work = Box::pin(async move {
            match running.await {
                Ok(response) => {
                    let mut result = RpcResult::default();
                    result.data = Data::for_json(&response.message).unwrap_or_default();
                    let mut reply = Reply::default();
                    (reply.id, reply.rpc) = (command, Some(Box::new(result)));
                    reply
                }
                Err(status) => Failure::of_call(&status).reply(command),
            }
        });
        self.spawn(id, peer, command, work)
    }

    /// Runs a command that may wait. It ends with its client.
    pub(super) fn spawn(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        command: u32,
        mut work: Work,
    ) -> Result<(), Ending> {
        // Most are ready at once.
        match work.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
            Poll::Ready(reply) => self.done(peer, &reply),
            Poll::Pending => {
                let engine = self.engine.clone();
                let task = Task::spawn(async move {
                    let reply = Box::new(work.await);
                    // An engine that has ended has no clients.
                    let _ = engine.send(super::adapter::Command::Done(id, reply)).await;
                });
                peer.tasks.insert(command, task);
                Ok(())
            }
        }
    }

    /// Writes the reply to a command that may have waited.
    pub(super) fn done(&mut self, peer: &mut Peer, reply: &Reply) -> Result<(), Ending> {
        match &reply.error {
            Some(error) => {
                let failure = Failure::new(error.code, error.message.clone());
                self.fail(peer, reply.id, failure)
            }
            None => self.reply(peer, reply),
        }
    }
}

/// Returns the full name of a method, which a client may write with a dot instead of the slash.
fn full_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((service, method)) if !name.contains('/') => format!("{service}/{method}"),
        _ => name.to_owned(),
    }
}
