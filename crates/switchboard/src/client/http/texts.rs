//! JSON-RPC in the text messages of a WebSocket: callers that share a connection, and the task that runs it.
//!
//! The wire has neither credit nor metadata of a call. A stream whose reader falls behind by more than
//! `stream_window_bytes` is therefore ended, since reading on is what all other calls of the connection wait for. A
//! server that falls silent is noticed by the deadlines of calls alone.

use super::{NO_ANSWER, codes, json_rpc, needs_runtime, within};
use crate::{
    Code, Kind, Limit, Metadata, Origin, Result, Retry, Status,
    client::{
        Begin, Way, calls,
        connection::Ended,
        fleet,
        options::Options,
        pool::{Link, Pool},
    },
    guard,
    net::{Address, Io},
    runtime,
    stream::Queue,
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Poll,
};
use switchboard_wire::{
    Input,
    jsonrpc::{self, Answer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{Notify, oneshot},
};

/// Free space that a read finds at the least.
const READ_LEAST: usize = 4 << 10;
const READ_BUFFER: usize = 64 << 10;

/// One connection.
pub(super) struct Texts {
    state: Mutex<State>,
    /// There is something to write, or nothing more to do.
    wake: Notify,
    peer: String,
    calls_max: usize,
    message_bytes_max: usize,
    window_bytes: usize,
}

#[derive(Default)]
struct State {
    /// Texts to be written, each a message.
    out: Vec<Vec<u8>>,
    calls: HashMap<u64, Pending>,
    last: u64,
    retired: bool,
    /// Why no call can begin or end any more.
    ended: Option<Status>,
}

/// What a call waits for.
struct Pending {
    end: oneshot::Sender<Result<Bytes>>,
    /// Where the items of a stream go.
    items: Option<Arc<Queue>>,
}

/// A request that was sent; dropped before its end, it is cancelled.
struct Sent {
    texts: Arc<Texts>,
    id: u64,
    end: oneshot::Receiver<Result<Bytes>>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        let mut state = self.texts.lock();
        if state.calls.remove(&self.id).is_some() {
            state.out.push(jsonrpc::cancel(self.id));
            drop(state);
            self.texts.wake.notify_one();
        }
    }
}

/// Sends a unary call and waits for its answer; dropped before, it is cancelled.
pub(super) async fn unary(pool: &Pool<Texts>, begin: &Begin, message: &Bytes) -> Result<calls::Answer> {
    let called = pin!(async {
        let mut sent = send(pool, begin, message, None).await?;
        let end = (&mut sent.end).await;
        end.unwrap_or_else(|_| Err(sent.texts.lost()))
    });
    let item = within(begin.deadline_if_any(), NO_ANSWER, called).await?;
    Ok(calls::Answer { item: item.into(), head: Metadata::new(), trailers: Metadata::new(), attempts: 1 })
}

/// Sends a call with a stream of replies, which are put into `inbound`.
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
    crate::runtime::spawn(async move {
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

/// Sends a request on a connection that is open, or opened for it; once more if that was closed meanwhile.
async fn send(pool: &Pool<Texts>, begin: &Begin, message: &Bytes, items: Option<Arc<Queue>>) -> Result<Sent> {
    // What channels add by themselves is for servers that can be told.
    let marks = [fleet::ATTEMPT, guard::ASKED.0];
    if begin.metadata.iter().any(|(name, _)| !marks.contains(&name)) {
        return Err(Status::invalid_argument(
            "JSON-RPC over a WebSocket has no place for a call's metadata; over HTTP it has",
        ));
    }
    let (method, params) = (json_rpc::name(begin.method), json_rpc::params(message)?);
    if let Some(texts) = pool.ready()
        && let Ok(sent) = texts.send(&method, params, items.clone())
    {
        return Ok(sent);
    }
    pool.connection().await?.send(&method, params, items)
}

impl Texts {
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
        state.out.push(jsonrpc::request(Some(id), method, params));
        drop(state);
        self.wake.notify_one();
        Ok(Sent { texts: self, id, end: ending })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why calls end that were in flight when the connection was lost.
    /// Ends every call; those that come are refused. What was said first of why stays.
    fn end(&self, why: &str) -> Status {
        let mut state = self.lock();
        let lost = state.ended.get_or_insert_with(|| {
            let text = format!("the connection to {} is lost: {why}", self.peer);
            codes::from_path(Code::Unavailable, text).with_origin(Origin::Path)
        });
        let lost = lost.clone();
        // Their ends are dropped, which tells the callers.
        let (calls, _) = (std::mem::take(&mut state.calls), std::mem::take(&mut state.out));
        drop(state);
        drop(calls);
        lost
    }

    fn lost(&self) -> Status {
        self.lock().ended.clone().unwrap_or_else(|| Status::unavailable("the connection is closed"))
    }

    /// Writes what callers leave, to the end of the connection.
    async fn write(&self, mut io: WriteHalf<Box<dyn Io>>) -> String {
        loop {
            let (out, done) = {
                let mut state = self.lock();
                let out = std::mem::take(&mut state.out);
                let done = state.retired && out.is_empty() && state.calls.is_empty();
                (out, done)
            };
            if done {
                let _ = io.shutdown().await;
                return "the channel was dropped".to_owned();
            }
            if out.is_empty() {
                self.wake.notified().await;
                continue;
            }
            for text in out {
                // One write is one message.
                if let Err(error) = io.write_all(&text).await {
                    return error.to_string();
                }
            }
            if let Err(error) = io.flush().await {
                return error.to_string();
            }
        }
    }

    /// Reads answers, to the end of the connection; says whether anything came, and why it ended.
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
                    // A caller that waits for this answer should not find its worker asleep.
                    runtime::traffic(crate::clock::now());
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
                match Answer::read(&text) {
                    Ok(answer) => {
                        if let Err(why) = self.take(answer) {
                            return why;
                        }
                    }
                    Err(why) => return why,
                }
            }
        }
    }

    /// Hands an answer to its caller.
    fn take(&self, answer: Answer) -> Result<(), String> {
        match answer {
            Answer::Other => {}
            Answer::End { id: None, result } => {
                let why = result.err().map_or_else(String::new, |status| status.message().to_owned());
                return Err(format!("the server cannot read what it gets: {why}"));
            }
            Answer::End { id: Some(id), result } => {
                let mut state = self.lock();
                let pending = state.calls.remove(&id);
                let done = state.retired && state.calls.is_empty();
                drop(state);
                if let Some(pending) = pending {
                    // Without effect on a caller that has gone.
                    let _ = pending.end.send(result);
                }
                if done {
                    self.wake.notify_one();
                }
            }
            Answer::Item { id, item } => {
                let mut state = self.lock();
                let Some(queue) = state.calls.get(&id).and_then(|pending| pending.items.clone()) else {
                    return Ok(());
                };
                let ahead = queue.push_now(item);
                if ahead >= self.window_bytes
                    && let Some(pending) = state.calls.remove(&id)
                {
                    state.out.push(jsonrpc::cancel(id));
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
        // The runtime that drove the connection has ended, or a cut its task, or the connection has.
        self.0.end("its runtime has ended, or it was cut");
    }
}

impl Link for Texts {
    type Task = Pin<Box<dyn Future<Output = Ended> + Send>>;

    async fn open(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        _way: Weak<Way>,
    ) -> Result<(Arc<Texts>, Self::Task)> {
        let texts = Arc::new(Texts {
            state: Mutex::default(),
            wake: Notify::new(),
            peer: address.to_string(),
            calls_max: options.limits.get(Limit::CallsMax) as usize,
            message_bytes_max: options.limits.get(Limit::MessageBytesMax) as usize,
            window_bytes: options.limits.get(Limit::StreamWindowBytes) as usize,
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
                if heard { Ended::Heard } else { Ended::Unheard(lost) }
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
