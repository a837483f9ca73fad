//! JSON-RPC in the text messages of a WebSocket: callers that share a connection, with one outstanding request each.
//!
//! It is a separate client, as small as the floor's, because channels do not support this wire. Its calls carry no
//! deadline, since the protocol has none.

use super::{
    floor::spin,
    load::{Caller, Load},
};
use crate::services::{
    benchmark_message,
    proto::bench::{BenchmarkMessage, EchoMessage},
};
use ::switchboard::{
    Codec,
    codec::proto::{decode, encode},
};
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    cell::RefCell,
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    io::IoSlice,
    mem,
    rc::Rc,
    task::{Context, Poll, Waker},
};
use switchboard_wire::{
    Input, Outbox,
    websocket::{Event, Handshake, Kind, Limits, Role, WebSocket},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// Largest message: fits the largest payload of `bench sizes`, in base64.
const MESSAGE_BYTES_MAX: u64 = 128 << 20;
/// Free space that a read always finds.
const READ_AT_LEAST: usize = 16 << 10;
/// Bytes by which the buffer grows.
const BUFFER: usize = 64 << 10;
/// Parts of one vectored write.
const SLICES: usize = 16;

/// Echo calls of `payload`.
pub(super) fn echo(address: &str, payload: Bytes) -> impl Load {
    Echo { address: address.to_owned(), payload }
}

/// Calls with the benchmark message.
pub(super) fn message(address: &str) -> impl Load {
    Message { address: address.to_owned() }
}

#[derive(Clone)]
struct Echo {
    address: String,
    payload: Bytes,
}

impl Load for Echo {
    type Connection = Connection;
    type Caller = EchoCaller;

    async fn connect(&self) -> Result<Connection, String> {
        Connection::open(&self.address).await
    }

    fn caller(&self, connection: &Connection) -> EchoCaller {
        let request = EchoMessage { payload: Some(self.payload.clone()), ..Default::default() };
        EchoCaller { connection: connection.clone(), request }
    }
}

struct EchoCaller {
    connection: Connection,
    request: EchoMessage,
}

impl Caller for EchoCaller {
    async fn call(&mut self) -> Result<(), String> {
        let params = encode(&self.request, Codec::Json).map_err(|status| status.to_string())?;
        let reply = self.connection.call("bench.v1.Bench.Echo", &params).await?;
        let reply: EchoMessage = decode(Codec::Json, reply).map_err(|status| status.to_string())?;
        if reply.payload == self.request.payload {
            return Ok(());
        }
        Err(format!("a wrong reply of {} bytes", reply.payload.as_ref().map_or(0, Bytes::len)))
    }
}

#[derive(Clone)]
struct Message {
    address: String,
}

impl Load for Message {
    type Connection = Connection;
    type Caller = MessageCaller;

    async fn connect(&self) -> Result<Connection, String> {
        Connection::open(&self.address).await
    }

    fn caller(&self, connection: &Connection) -> MessageCaller {
        MessageCaller { connection: connection.clone(), request: benchmark_message() }
    }
}

struct MessageCaller {
    connection: Connection,
    request: BenchmarkMessage,
}

impl Caller for MessageCaller {
    async fn call(&mut self) -> Result<(), String> {
        let params = encode(&self.request, Codec::Json).map_err(|status| status.to_string())?;
        let reply = self.connection.call("bench.v1.Bench.Message", &params).await?;
        let reply: BenchmarkMessage = decode(Codec::Json, reply).map_err(|status| status.to_string())?;
        if reply.field1 == "OK" && reply.field2 == 100 && reply.field103 == self.request.field103 {
            return Ok(());
        }
        Err(format!("a wrong reply: field1 {:?}, field2 {}", reply.field1, reply.field2))
    }
}

/// One WebSocket, shared by clones on the worker that opened it.
///
/// It stays open until the worker ends.
#[derive(Clone)]
struct Connection {
    state: Rc<RefCell<State>>,
}

impl Connection {
    /// # Errors
    /// When the connection or the WebSocket is refused.
    async fn open(address: &str) -> Result<Connection, String> {
        let failed = |why: &dyn std::fmt::Display| format!("connect to {address}: {why}");
        let host =
            address.strip_prefix("ws://").ok_or_else(|| failed(&"JSON-RPC is measured on ws:// only"))?;
        let (host, path) = host.split_at(host.find('/').unwrap_or(host.len()));
        let mut socket = TcpStream::connect(host).await.map_err(|error| failed(&error))?;
        socket.set_nodelay(true).map_err(|error| failed(&error))?;
        let random = RandomState::new();
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&random.hash_one(0).to_le_bytes());
        nonce[8..].copy_from_slice(&random.hash_one(1).to_le_bytes());
        let handshake = Handshake::new(nonce, "jsonrpc");
        let request = handshake.request(host, if path.is_empty() { "/" } else { path });
        socket.write_all(request.as_bytes()).await.map_err(|error| failed(&error))?;
        let mut input = Input::default();
        while handshake.answer(&mut input).map_err(|why| failed(&why))?.is_none() {
            if socket.read_buf(input.buffer()).await.map_err(|error| failed(&error))? == 0 {
                return Err(failed(&"closed during the handshake"));
            }
        }
        let limits = Limits { frame_bytes_max: MESSAGE_BYTES_MAX, message_bytes_max: MESSAGE_BYTES_MAX };
        let (from, to) = socket.into_split();
        let state = Rc::new(RefCell::new(State {
            machine: WebSocket::new(Role::Client { seed: random.hash_one(2) }, limits),
            output: Outbox::new(),
            slots: Vec::new(),
            free: Vec::new(),
            writer: None,
            closed: None,
        }));
        tokio::task::spawn_local(write(state.clone(), to));
        tokio::task::spawn_local(read(state.clone(), from, input));
        Ok(Connection { state })
    }

    /// Sends a request and waits for its result.
    ///
    /// # Errors
    /// The error object of the response, or why the connection is closed.
    async fn call(&self, method: &str, params: &[u8]) -> Result<Bytes, String> {
        let id = self.state.borrow_mut().send(method, params)?;
        poll_fn(|cx| self.state.borrow_mut().poll_response(id, cx)).await
    }
}

struct State {
    machine: WebSocket,
    /// Frames of the next write.
    output: Outbox,
    /// One slot for each call in flight, found by the call's id.
    slots: Vec<Slot>,
    /// Ids of slots that no call uses.
    free: Vec<u32>,
    /// Wakes the writer when it waits for output.
    writer: Option<Waker>,
    /// The reason why the connection ended.
    closed: Option<String>,
}

#[derive(Default)]
struct Slot {
    waker: Option<Waker>,
    response: Option<Result<Bytes, String>>,
}

/// A response; streams are not measured.
#[derive(Deserialize)]
struct Response<'a> {
    id: u32,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl State {
    fn send(&mut self, method: &str, params: &[u8]) -> Result<u32, String> {
        if let Some(why) = &self.closed {
            return Err(why.clone());
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer callers than ids")
        });
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":"#);
        self.machine.send(Kind::Text, &[head.as_bytes(), params, b"}"], &mut self.output);
        self.wake_writer();
        Ok(id)
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    fn poll_response(&mut self, id: u32, cx: &Context<'_>) -> Poll<Result<Bytes, String>> {
        let slot = &mut self.slots[id as usize];
        if let Some(response) = slot.response.take() {
            self.free.push(id);
            return Poll::Ready(response);
        }
        if let Some(why) = &self.closed {
            return Poll::Ready(Err(why.clone()));
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_output(&mut self, cx: &Context<'_>) -> Poll<Outbox> {
        if !self.output.is_empty() {
            return Poll::Ready(mem::take(&mut self.output));
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Delivers the responses in `input`.
    ///
    /// # Errors
    /// The reason why the connection has ended.
    fn take(&mut self, input: &mut Input, text: &mut BytesMut) -> Result<(), String> {
        loop {
            let event = self.machine.recv(input, text, &mut self.output);
            match event.map_err(|fatal| fatal.to_string())? {
                None => break,
                Some(Event::Data { last: true, .. }) => {
                    self.respond(text)?;
                    text.clear();
                }
                Some(Event::Data { .. } | Event::Pong) => {}
                Some(Event::Closed(close)) => {
                    return Err(format!(
                        "the server closed: {}",
                        close.map_or_else(String::new, |close| close.reason)
                    ));
                }
            }
        }
        if !self.output.is_empty() {
            self.wake_writer();
        }
        Ok(())
    }

    fn respond(&mut self, text: &[u8]) -> Result<(), String> {
        let response: Response<'_> =
            serde_json::from_slice(text).map_err(|error| format!("an invalid response: {error}"))?;
        let slot =
            self.slots.get_mut(response.id as usize).ok_or("a response to a call that was not made")?;
        slot.response = Some(match (response.error, response.result) {
            (Some(error), _) => Err(error.get().to_owned()),
            (None, result) => Ok(Bytes::copy_from_slice(result.map_or("null", RawValue::get).as_bytes())),
        });
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    fn close(&mut self, why: String) {
        self.closed.get_or_insert(why);
        for slot in &mut self.slots {
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }
}

async fn read(state: Rc<RefCell<State>>, mut from: OwnedReadHalf, mut input: Input) {
    let mut text = BytesMut::new();
    let why = loop {
        let buffer = input.buffer();
        if buffer.capacity() - buffer.len() < READ_AT_LEAST {
            buffer.reserve(BUFFER);
        }
        match from.read_buf(buffer).await {
            Ok(0) => break "the server closed the connection".to_owned(),
            Ok(_) => spin::traffic(),
            Err(error) => break format!("the connection is lost: {error}"),
        }
        if let Err(why) = state.borrow_mut().take(&mut input, &mut text) {
            break why;
        }
    };
    state.borrow_mut().close(why);
}

async fn write(state: Rc<RefCell<State>>, mut to: OwnedWriteHalf) {
    loop {
        let mut output = poll_fn(|cx| state.borrow_mut().poll_output(cx)).await;
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = output.fill(&mut slices);
            match to.write_vectored(&slices[..count]).await {
                Ok(written) => output.advance(written),
                Err(error) => return state.borrow_mut().close(format!("the connection is lost: {error}")),
            }
        }
    }
}
