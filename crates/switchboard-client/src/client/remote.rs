//! Calls on the connections of one address, where the wire is a state machine: those that have to wait for a
//! connection, or for space on it. A unary call on a ready connection is in [`unary`](super::unary).

use super::{
    Begin, Channel, Target,
    calls::RawResponse,
    connection::{Connection, Request, is_full},
    kind::ChannelKind,
    layered::RequiredCallShape,
    pool::Pool,
    streaming::{STREAM_BYTES_AHEAD, StartedStream},
    unary::Sent,
};
use bytes::Bytes;
use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
    time::Instant,
};
use switchboard_core::{
    Result,
    compression::{Message, Packing},
    layer::BoxFuture,
    queue::Queue,
};
use switchboard_wire::{Codec, Status, wire::ClientCallId};

impl ChannelKind for Pool {
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }

    #[inline]
    fn prepare(&self, begin: &mut Begin) -> Option<Arc<Connection>> {
        begin.metadata = self.metadata();
        begin.timeout = self.timeout();
        begin.compression = self.compression(begin.method.path);
        self.ready()
    }

    fn unary(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>> {
        Box::pin(unary(begin, request))
    }

    fn oneway(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>> {
        Box::pin(oneway(begin, request))
    }

    fn stream(
        self: Arc<Self>,
        begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        Box::pin(stream(begin, message, outbound))
    }

    fn connect(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(Pool::connect(self))
    }

    fn is_ready(&self) -> bool {
        self.ready().is_some()
    }

    fn codec(&self, preferred: Codec) -> Codec {
        self.options().codec(preferred)
    }

    fn required_shape(&self) -> RequiredCallShape {
        self.options().required_shape()
    }

    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>) {
        Pool::add_hosts(self, hosts);
    }

    #[cfg(any(test, feature = "simulation"))]
    fn left(&self) -> Vec<(&'static str, usize)> {
        self.usable().flat_map(|connection| connection.left()).collect()
    }

    fn pool(&self) -> Option<&Pool> {
        Some(self)
    }
}

/// Sends a unary call on the connection of its target, or on one of its channel, and waits for its reply. A call that
/// the server refuses before it begins is sent once more.
pub(super) async fn unary(mut begin: Begin, request: Bytes) -> Result<RawResponse> {
    let deadline = begin.deadline(switchboard_core::clock::now());
    let mut again = None;
    match attempt(&mut begin, &request, &mut again).await {
        Err(status) => {
            begin.target = Target::Channel(again.ok_or(status)?);
            begin.end_at(deadline);
            attempt(&mut begin, &request, &mut None).await
        }
        response => response,
    }
}

/// Sends a unary call that a server has refused.
pub(super) async fn second_unary(mut begin: Begin, request: Bytes) -> Result<RawResponse> {
    attempt(&mut begin, &request, &mut None).await
}

/// Sends a unary call; sets `again` to the channel for another attempt if the server has refused the call.
async fn attempt(begin: &mut Begin, request: &Bytes, again: &mut Option<Channel>) -> Result<RawResponse> {
    let (connection, id, packing) = send(begin, request).await?;
    let mut sent = Sent::new(connection.clone(), id, None);
    let response = poll_fn(|cx| sent.poll(cx)).await;
    let mut response = response.inspect_err(|status| *again = connection.second_channel(status))?;
    let codec = response.item.codec;
    let bytes = packing.unpack(response.item)?;
    response.item = Message { bytes, compressed: false, codec };
    Ok(response)
}

async fn send(begin: &mut Begin, request: &Bytes) -> Result<(Arc<Connection>, ClientCallId, Packing)> {
    loop {
        let connection = begin.connection().await?;
        let sent = poll_fn(|cx| Poll::Ready(begin.send_packed(&connection, request, cx.waker())));
        match sent.await {
            Ok((id, packing)) => return Ok((connection, id, packing)),
            Err(status) => begin.after_unsent(&connection, status).await?,
        }
    }
}

/// Sends a one-way call on the connection of its target, or on one of its channel.
pub(super) async fn oneway(mut begin: Begin, request: Bytes) -> Result<()> {
    loop {
        let connection = begin.connection().await?;
        match begin.send_oneway(&connection, &request) {
            Ok(()) => return Ok(()),
            Err(status) => begin.after_unsent(&connection, status).await?,
        }
    }
}

/// Sends a call with streams on the connection of its target, or on one of its channel.
pub(super) async fn stream(
    mut begin: Begin,
    message: Option<Bytes>,
    outbound: Option<Arc<Queue>>,
) -> Result<StartedStream> {
    loop {
        let connection = begin.connection().await?;
        match begin.send_stream(&connection, message.as_ref(), outbound.clone()) {
            Ok(started) => return Ok(started),
            Err(status) => begin.after_unsent(&connection, status).await?,
        }
    }
}

impl Begin {
    /// Sends a unary call, compressed; returns its id and the decompressor of its reply.
    #[cold]
    pub(super) fn send_packed(
        &self,
        connection: &Connection,
        request: &Bytes,
        waker: &Waker,
    ) -> Result<(ClientCallId, Packing)> {
        let packing = connection.packing(self.method, self.compression)?;
        let Message { bytes, compressed, .. } = packing.pack(request.clone());
        let request = Request { encoding: packing.encoding(), compressed, ..self.request() };
        Ok((connection.unary(&request, (&bytes).into(), waker)?, packing))
    }

    fn send_oneway(&self, connection: &Connection, request: &Bytes) -> Result<()> {
        let packing = connection.packing(self.method, self.compression)?;
        let Message { bytes, compressed, .. } = packing.pack(request.clone());
        let request = Request { encoding: packing.encoding(), compressed, ..self.request() };
        connection.oneway(&request, (&bytes).into())
    }

    fn send_stream(
        &self,
        connection: &Connection,
        message: Option<&Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> Result<StartedStream> {
        let packing = connection.packing(self.method, self.compression)?;
        let message = message.map(|message| packing.pack(message.clone()));
        let compressed = message.as_ref().is_some_and(|message| message.compressed);
        let request = Request { encoding: packing.encoding(), compressed, ..self.request() };
        let inbound = Arc::new(Queue::new(STREAM_BYTES_AHEAD).packing(packing));
        connection.stream(
            &request,
            message.as_ref().map(|message| (&message.bytes).into()),
            &inbound,
            outbound,
        )?;
        Ok(StartedStream { inbound, packing, follow: None })
    }

    /// Returns a connection, within the call's deadline; the time spent here counts toward the timeout.
    async fn connection(&mut self) -> Result<Arc<Connection>> {
        let channel = match &self.target {
            Target::Connection(connection) => return Ok(connection.clone()),
            Target::Channel(channel) => channel,
            Target::Nowhere => return Err(Status::internal("a call was begun twice")),
        };
        let Some(pool) = channel.0.pool() else {
            return Err(Status::internal("only native channels have native connections"));
        };
        let deadline = self.deadline(switchboard_core::clock::now());
        let connection = match deadline {
            Some(deadline) if tokio::runtime::Handle::try_current().is_ok() => {
                tokio::time::timeout_at(deadline.into(), pool.connection()).await.unwrap_or_else(|_| {
                    Err(Status::deadline_exceeded("no connection within the call's deadline"))
                })
            }
            _ => pool.connection().await,
        };
        self.end_at(deadline);
        connection
    }

    /// Prepares the call, which the connection has rejected, to be sent again: waits for space when the connection has
    /// none, else selects another connection.
    ///
    /// # Errors
    /// `status`, when the call must not be sent again; `DeadlineExceeded` at its deadline.
    async fn after_unsent(&mut self, connection: &Connection, status: Status) -> Result<()> {
        if is_full(&status) {
            return self.room(connection).await;
        }
        // Not sent: the connection was closed between its selection and now.
        self.target = Target::Channel(connection.retry_channel(&status).ok_or(status)?);
        Ok(())
    }

    /// Waits, within the call's deadline, until the connection has space for the call; the time spent here counts
    /// toward the timeout.
    #[cold]
    async fn room(&mut self, connection: &Connection) -> Result<()> {
        let deadline = self.deadline(switchboard_core::clock::now());
        match deadline {
            Some(deadline) if tokio::runtime::Handle::try_current().is_ok() => {
                tokio::time::timeout_at(deadline.into(), connection.room()).await.map_err(|_| {
                    Status::deadline_exceeded(
                        "the server did not read the calls before this one within the call's deadline",
                    )
                    .with_retry(switchboard_wire::Retry::Safe)
                })?;
            }
            _ => connection.room().await,
        }
        self.end_at(deadline);
        Ok(())
    }

    /// Sets the timeout to the time until `deadline`.
    pub(super) fn end_at(&mut self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.timeout = Some(deadline.saturating_duration_since(switchboard_core::clock::now()));
        }
    }
}
