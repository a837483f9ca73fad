//! The client of the floor: callers with one request outstanding each, sharing a connection.

use super::{BUFFER, make_room, put_frame, spin, take_frame};
use bytes::{Bytes, BytesMut};
use std::{
    cell::RefCell,
    future::poll_fn,
    io, mem,
    rc::Rc,
    task::{Context, Poll, Waker},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// One connection to a floor server, shared by clones on the worker that opened it.
///
/// It stays open until the worker ends.
#[derive(Clone)]
pub struct Connection {
    state: Rc<RefCell<State>>,
}

impl Connection {
    /// Connects to `address` and starts the connection's reader and writer on this worker.
    ///
    /// # Errors
    /// When the connection is refused or its options cannot be set.
    pub async fn open(address: &str) -> Result<Self, String> {
        let socket = TcpStream::connect(address)
            .await
            .and_then(|socket| socket.set_nodelay(true).map(|()| socket))
            .map_err(|error| format!("cannot connect to {address}: {error}"))?;
        let (from, to) = socket.into_split();
        let state = Rc::new(RefCell::new(State::default()));
        tokio::task::spawn_local(write(state.clone(), to));
        tokio::task::spawn_local(read(state.clone(), from));
        Ok(Self { state })
    }

    /// Sends `payload` and waits for the reply.
    ///
    /// # Errors
    /// When the connection is or gets closed.
    pub async fn call(&self, payload: &[u8]) -> Result<Bytes, String> {
        let id = self.state.borrow_mut().send(payload)?;
        poll_fn(|cx| self.state.borrow_mut().poll_reply(id, cx)).await
    }
}

#[derive(Default)]
struct State {
    /// Frames of the next write.
    output: BytesMut,
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
    reply: Option<Bytes>,
}

impl State {
    fn send(&mut self, payload: &[u8]) -> Result<u32, String> {
        if let Some(why) = &self.closed {
            return Err(why.clone());
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer callers than ids")
        });
        put_frame(&mut self.output, id, payload);
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
        Ok(id)
    }

    fn poll_reply(&mut self, id: u32, cx: &Context<'_>) -> Poll<Result<Bytes, String>> {
        let slot = &mut self.slots[id as usize];
        if let Some(reply) = slot.reply.take() {
            self.free.push(id);
            return Poll::Ready(Ok(reply));
        }
        if let Some(why) = &self.closed {
            return Poll::Ready(Err(why.clone()));
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Delivers every complete frame of `input` to its caller.
    fn deliver(&mut self, input: &mut BytesMut) {
        while let Some((id, reply)) = take_frame(input) {
            let Some(slot) = self.slots.get_mut(id as usize) else { continue };
            slot.reply = Some(reply);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// Ends every call in flight and all later ones.
    fn close(&mut self, why: &str) {
        self.closed.get_or_insert_with(|| why.to_owned());
        for slot in &mut self.slots {
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }
}

async fn write(state: Rc<RefCell<State>>, mut to: OwnedWriteHalf) {
    let mut batch = BytesMut::with_capacity(BUFFER);
    loop {
        poll_fn(|cx| {
            let mut state = state.borrow_mut();
            if state.output.is_empty() {
                state.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            mem::swap(&mut state.output, &mut batch);
            Poll::Ready(())
        })
        .await;
        if let Err(error) = to.write_all(&batch).await {
            return state.borrow_mut().close(&format!("cannot write to the server: {error}"));
        }
        batch.clear();
    }
}

async fn read(state: Rc<RefCell<State>>, mut from: OwnedReadHalf) {
    let why = loop_reads(&state, &mut from).await.map_or_else(
        |error| format!("cannot read from the server: {error}"),
        |()| "the server closed the connection".to_owned(),
    );
    state.borrow_mut().close(&why);
}

async fn loop_reads(state: &RefCell<State>, from: &mut OwnedReadHalf) -> io::Result<()> {
    let mut input = BytesMut::with_capacity(BUFFER);
    loop {
        make_room(&mut input);
        if from.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        spin::traffic();
        state.borrow_mut().deliver(&mut input);
    }
}
