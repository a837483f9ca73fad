//! JSON-RPC in the text messages of a WebSocket: callers that share a connection, and its task.
//!
//! The wire has neither flow control nor metadata of calls. A stream whose reader is behind by more than
//! `stream_window_bytes` is therefore ended, because all other calls of the connection wait for further reads. A silent
//! server is detected only by the deadlines of calls.

use super::{NO_ANSWER, codes, json_rpc, needs_runtime, within};
use crate::client::{
    Begin, calls,
    connection::ConnectionEnd,
    kind::ChannelKind,
    options::Options,
    pool::{Link, Pool},
};
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Poll,
};
use switchboard_core::{Limit, Result, queue::Queue, reserved, runtime};
use switchboard_net::net::{Address, Io};
use switchboard_wire::{
    Code, Input, Kind, Metadata, Origin, Retry, Status,
    jsonrpc::{self, Response},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{Notify, oneshot},
};

/// Minimum free space for a read.
const READ_LEAST: usize = 4 << 10;
const READ_BUFFER: usize = 64 << 10;

/// One connection.
pub(super) struct Texts {
    state: Mutex<State>,
    /// Notified when there is something to write, or nothing more to do.
    wake: Notify,
    peer: String,
    calls_max: usize,
    message_bytes_max: usize,
    window_bytes: usize,
    outbox_bytes_max: usize,
    /// Notified when a text was written, or the connection has ended.
    room: Notify,
}

#[derive(Default)]
struct State {
    /// Texts to be written, each a message; requests with their ids.
    out: VecDeque<(Option<u64>, Vec<u8>)>,
    /// Bytes of these texts and of the one that is being written.
    out_bytes: usize,
    calls: HashMap<u64, Pending>,
    last: u64,
    retired: bool,
    /// The reason why no call can begin or end any more.
    ended: Option<Status>,
}

/// The receivers of the result of a call.
struct Pending {
    end: oneshot::Sender<Result<Bytes>>,
    /// Queue for the items of a stream.
    items: Option<Arc<Queue>>,
}

/// A request that was sent; dropping it before its end cancels the call.
struct Sent {
    texts: Arc<Texts>,
    id: u64,
    end: oneshot::Receiver<Result<Bytes>>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        let mut state = self.texts.lock();
        if state.calls.remove(&self.id).is_none() {
            return;
        }
        // A request whose writing has not begun is removed.
        match state.out.iter().position(|(id, _)| *id == Some(self.id)) {
            Some(at) => {
                let bytes = state.out.remove(at).map_or(0, |(_, text)| text.len());
                state.out_bytes -= bytes;
                drop(state);
                self.texts.room.notify_one();
            }
            None => {
                state.put(None, jsonrpc::cancel(self.id));
                drop(state);
                self.texts.wake.notify_one();
            }
        }
    }
}

/// Sends a unary call and waits for its reply; dropping the future cancels the call.
pub(super) async fn unary(pool: &Pool<Texts>, begin: &Begin, message: &Bytes) -> Result<calls::RawResponse> {
    let called = pin!(async {
        let mut sent = send(pool, begin, message, None).await?;
        let end = (&mut sent.end).await;
        end.unwrap_or_else(|_| Err(sent.texts.lost()))
    });
    let item = within(begin.deadline_if_any(), NO_ANSWER, called).await?;
    Ok(calls::RawResponse {
        item: item.into(),
        head: Metadata::new(),
        trailers: Metadata::new(),
        attempts: 1,
    })
}

/// Sends a call with a stream of replies, which are pushed into `inbound`.
pub(super) async fn stream(
    pool: &Pool<Texts>,
    begin: &Begin,
    message: Option<Bytes>,
    inbound: &Arc<Queue>,
) -> Result<()> {
    let (Some(message), Kind::ServerStream) = (message, begin.method.kind()) else {
        let text = format!("{} takes a stream, which JSON-RPC cannot carry", begin.method.path);
        return Err(Status::unimplemented(text));
    };
    needs_runtime("streams of JSON-RPC")?;
    let deadline = begin.deadline_if_any();
    let sending = pin!(send(pool, begin, &message, Some(inbound.clone())));
    let mut sent = within(deadline, NO_ANSWER, sending).await?;
    inbound.set_head(Metadata::new());
    let inbound = inbound.clone();
    switchboard_core::runtime::spawn(async move {
        let ended = pin!(poll_fn(|cx| {
            inbound.watch_consumer(cx.waker());
            if inbound.is_closed() {
                return Poll::Ready(Err(Status::canceled("the caller dropped the stream")));
            }
            let end = Pin::new(&mut sent.end).poll(cx);
            end.map(|end| end.unwrap_or_else(|_| Err(sent.texts.lost())))
        }));
        let end = within(deadline, NO_ANSWER, ended).await;
        inbound.finish(end.map(|_| Metadata::new()));
    });
    Ok(())
}

/// Sends a request on an open connection, or on a new one; once more if the connection was closed meanwhile.
async fn send(pool: &Pool<Texts>, begin: &Begin, message: &Bytes, items: Option<Arc<Queue>>) -> Result<Sent> {
    // Metadata that channels add themselves is left out, because the wire cannot carry it.
    let marks = [reserved::ATTEMPT, reserved::EXPLAIN_REQUEST.0];
    if begin.metadata.iter().any(|(name, _)| !marks.contains(&name)) {
        return Err(Status::invalid_argument(
            "JSON-RPC over a WebSocket has no place for a call's metadata; over HTTP it has",
        ));
    }
    let (method, params) = (json_rpc::name(begin.method, &begin.metadata), json_rpc::params(message)?);
    if let Some(texts) = pool.ready() {
        texts.room().await;
        if let Ok(sent) = texts.send(&method, params, items.clone()) {
            return Ok(sent);
        }
    }
    let texts = pool.connection().await?;
    texts.room().await;
    texts.send(&method, params, items)
}

impl State {
    fn put(&mut self, id: Option<u64>, text: Vec<u8>) {
        self.out_bytes += text.len();
        self.out.push_back((id, text));
    }
}

impl Texts {
    /// Completes when fewer bytes than `outbox_bytes_max` wait to be written, or the connection has ended. One text may
    /// exceed the limit, and one for each caller that is admitted at the same time.
    async fn room(&self) {
        loop {
            let mut woken = pin!(self.room.notified());
            woken.as_mut().enable();
            {
                let state = self.lock();
                if state.ended.is_some() || state.out_bytes < self.outbox_bytes_max {
                    return;
                }
            }
            woken.await;
        }
    }

    fn send(self: Arc<Texts>, method: &str, params: &[u8], items: Option<Arc<Queue>>) -> Result<Sent> {
        let (end, ending) = oneshot::channel();
        let mut state = self.lock();
        if let Some(status) = &state.ended {
            return Err(status.clone().with_retry(Retry::Safe));
        }
        if state.calls.len() >= self.calls_max {
            let text = format!("{} calls are in flight on this connection (calls_max)", state.calls.len());
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        state.last += 1;
        let id = state.last;
        state.calls.insert(id, Pending { end, items });
        state.put(Some(id), jsonrpc::request(Some(id), method, params));
        let has_room = state.out_bytes < self.outbox_bytes_max;
        drop(state);
        self.wake.notify_one();
        if has_room {
            // Wakes the next caller that waits for space.
            self.room.notify_one();
        }
        Ok(Sent { texts: self, id, end: ending })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every call with the status of the lost connection; new ones are rejected. The first reason is kept.
    fn end(&self, why: &str) -> Status {
        let mut state = self.lock();
        let lost = state.ended.get_or_insert_with(|| {
            let text = format!("the connection to {} is lost: {why}", self.peer);
            codes::from_path(Code::Unavailable, text).with_origin(Origin::Connection)
        });
        let lost = lost.clone();
        // Dropping the senders ends the calls.
        let (calls, _) = (std::mem::take(&mut state.calls), std::mem::take(&mut state.out));
        drop(state);
        drop(calls);
        self.room.notify_waiters();
        lost
    }

    fn lost(&self) -> Status {
        self.lock().ended.clone().unwrap_or_else(|| Status::unavailable("the connection is closed"))
    }

    /// Writes the texts of callers, until the connection ends.
    async fn write(&self, mut io: WriteHalf<Box<dyn Io>>) -> String {
        loop {
            let (text, done) = {
                let mut state = self.lock();
                let text = state.out.pop_front();
                let done = state.retired && text.is_none() && state.calls.is_empty();
                (text, done)
            };
            if done {
                let _ = io.shutdown().await;
                return "the channel was dropped".to_owned();
            }
            let Some((_, text)) = text else {
                if let Err(error) = io.flush().await {
                    return error.to_string();
                }
                self.wake.notified().await;
                continue;
            };
            // One write is one message.
            if let Err(error) = io.write_all(&text).await {
                return error.to_string();
            }
            self.lock().out_bytes -= text.len();
            self.room.notify_one();
        }
    }

    /// Reads responses, until the connection ends; reports whether anything was received, and the reason of the end.
    async fn read(&self, mut io: ReadHalf<Box<dyn Io>>, heard: &mut bool) -> String {
        let (mut input, mut texts) = (Input::default(), jsonrpc::Texts::default());
        loop {
            let buffer = input.buffer();
            if buffer.capacity() - buffer.len() < READ_LEAST {
                buffer.reserve(READ_BUFFER);
            }
            match io.read_buf(buffer).await {
                Ok(0) => return "the server closed it".to_owned(),
                Ok(_) => {
                    *heard = true;
                    // Keeps the worker awake for a caller that waits for this response.
                    runtime::traffic(switchboard_core::clock::now());
                }
                Err(error) => return error.to_string(),
            }
            let most = self.message_bytes_max.saturating_add(json_rpc::AROUND);
            loop {
                let text = match texts.next(&mut input, most) {
                    Ok(Some(text)) => text,
                    Ok(None) => break,
                    Err(fatal) => return fatal.0,
                };
                match Response::read(&text) {
                    Ok(response) => {
                        if let Err(why) = self.take(response) {
                            return why;
                        }
                    }
                    Err(why) => return why,
                }
            }
        }
    }

    /// Delivers a response to its caller.
    fn take(&self, response: Response) -> Result<(), String> {
        match response {
            Response::Other => {}
            Response::End { id: None, result } => {
                let why = result.err().map_or_else(String::new, |status| status.message().to_owned());
                return Err(format!("the server cannot read what it gets: {why}"));
            }
            Response::End { id: Some(id), result } => {
                let mut state = self.lock();
                let pending = state.calls.remove(&id);
                let done = state.retired && state.calls.is_empty();
                drop(state);
                if let Some(pending) = pending {
                    // Has no effect on a dropped caller.
                    let _ = pending.end.send(result);
                }
                if done {
                    self.wake.notify_one();
                }
            }
            Response::Item { id, item } => {
                let mut state = self.lock();
                let Some(queue) = state.calls.get(&id).and_then(|pending| pending.items.clone()) else {
                    return Ok(());
                };
                let ahead = queue.push_now(item);
                if ahead >= self.window_bytes
                    && let Some(pending) = state.calls.remove(&id)
                {
                    state.put(None, jsonrpc::cancel(id));
                    drop(state);
                    self.wake.notify_one();
                    let text = format!(
                        "{ahead} bytes came ahead of the reader (stream_window_bytes), and JSON-RPC cannot hold them back"
                    );
                    let _ = pending.end.send(Err(Status::resource_exhausted(text)));
                }
            }
        }
        Ok(())
    }
}

/// A connection with its task.
struct Driven(Arc<Texts>);

impl Drop for Driven {
    fn drop(&mut self) {
        // The runtime that drove the connection has ended, or the task was aborted, or the connection has ended.
        self.0.end("its runtime has ended, or it was aborted");
    }
}

impl Link for Texts {
    type Task = Pin<Box<dyn Future<Output = ConnectionEnd> + Send>>;

    async fn open(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        _owner: Weak<dyn ChannelKind>,
    ) -> Result<(Arc<Texts>, Self::Task)> {
        let texts = Arc::new(Texts {
            state: Mutex::default(),
            wake: Notify::new(),
            peer: address.to_string(),
            calls_max: options.limits.get(Limit::CallsMax) as usize,
            message_bytes_max: options.limits.get(Limit::MessageBytesMax) as usize,
            window_bytes: options.limits.get(Limit::StreamWindowBytes) as usize,
            outbox_bytes_max: options.limits.outbox_bytes_max(),
            room: Notify::new(),
        });
        let task = texts.clone();
        Ok((
            texts,
            Box::pin(async move {
                let (read, write) = tokio::io::split(io);
                let driven = Driven(task);
                let mut heard = false;
                let why = tokio::select! {
                    why = driven.0.read(read, &mut heard) => why,
                    why = driven.0.write(write) => why,
                };
                let lost = driven.0.end(&why);
                if heard { ConnectionEnd::Responded } else { ConnectionEnd::Silent(lost) }
            }),
        ))
    }

    fn is_usable(&self) -> bool {
        let state = self.lock();
        state.ended.is_none() && !state.retired
    }

    fn retire(&self) {
        self.lock().retired = true;
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests;
