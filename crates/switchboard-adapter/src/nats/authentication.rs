//! CONNECT, and the verdict on its credentials.

use super::adapter::{Command, NatsAdapter};
use crate::{
    responses::{add, flush},
    task::Task,
};
use bytes::Bytes;
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use switchboard_core::Caller;
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_wire::{Metadata, Status, nats::Connect};

impl NatsAdapter {
    /// Stores the credentials of a client, and checks them if the server does.
    ///
    /// # Errors
    /// The reason to close the connection, for credentials that are rejected at once.
    pub(super) fn connect(
        &mut self,
        index: u32,
        connect: &Connect,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        client.authorization = connect.credentials.authorization().map(Bytes::from);
        if !self.shared.requires_auth {
            return Ok(());
        }
        let mut metadata = Metadata::new();
        if let Some(authorization) = &client.authorization
            && metadata.insert("authorization", authorization.clone()).is_err()
        {
            let status = Status::unauthenticated("the credentials have characters that a header cannot have");
            return self.decide(index, Err(status), subscribers);
        }
        let mut checking = self.shared.services.authenticate(&client.peer, metadata);
        let id = client.id;
        let polled = pin!(&mut checking).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(checked) = polled {
            return self.decide(index, checked.and_then(known), subscribers);
        }
        // Nothing is read before the verdict.
        subscribers.pause(id);
        let engine = self.engine.clone();
        client.check = Some(Task::spawn(async move {
            let checked = checking.await.and_then(known);
            // An engine that has ended has no clients.
            let _ = engine.send(Command::Verdict(id, checked)).await;
        }));
        Ok(())
    }

    /// Accepts or rejects the credentials of a client.
    fn decide(
        &mut self,
        index: u32,
        checked: Result<Arc<Caller>, Status>,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        client.check = None;
        match checked {
            Ok(caller) => {
                client.caller = Some(caller);
                client.server.accept();
                subscribers.set_timer(client.id, self.shared.settings.ping_interval);
                Ok(())
            }
            Err(status) => {
                add(&self.shared.settings.counters.unauthorized, 1);
                client.server.reject(&mut self.out);
                let text = status.message().to_owned().into();
                Err(CloseReason::Violation { name: "authorization", text })
            }
        }
    }

    /// The verdict on the credentials of a client, which may be gone.
    pub(super) fn verdict(
        &mut self,
        id: SubscriberId,
        checked: Result<Arc<Caller>, Status>,
        subscribers: &mut Subscribers,
    ) {
        let Some(index) = self.clients.index(id, subscribers) else { return };
        match self.decide(index, checked, subscribers) {
            Ok(()) => subscribers.resume(id),
            Err(reason) => {
                flush(id, &mut self.out, subscribers);
                subscribers.close(id, reason);
            }
        }
    }
}

/// Rejects credentials that the server does not check.
fn known(caller: Option<Arc<Caller>>) -> Result<Arc<Caller>, Status> {
    caller.ok_or_else(|| Status::unauthenticated("the server checks no credentials of this kind"))
}
