//! Limit of the bytes that wait to be written to a server that does not read, on every wire; calls wait for space.

use super::{
    is_full,
    late_replies::{WIRES, World},
};
use bytes::Bytes;
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use switchboard_wire::{Code, Retry, wire::ClientWire as _};

/// A Thrift struct with a string of 20,000 bytes, which other wires carry as opaque bytes.
fn large() -> Bytes {
    let mut bytes = vec![0x0B, 0, 1, 0, 0, 0x4E, 0x20];
    bytes.resize(bytes.len() + 20_000, b'x');
    bytes.push(0);
    bytes.into()
}

#[tokio::test]
async fn calls_to_a_server_that_does_not_read_wait_for_room() {
    let mut context = Context::from_waker(Waker::noop());
    for pair in WIRES {
        let world = World::new(pair, 7);
        let max = world.with(|inner| inner.outbox_bytes_max);
        let message = large();
        // Sends calls until the outbox is full, each canceled at once.
        let rejected = (0..1000).find_map(|_| match world.send(&message) {
            Ok(id) => {
                world.connection.cancel(id);
                None
            }
            Err(status) => Some(status),
        });
        let rejected = rejected.unwrap_or_else(|| panic!("{}: the outbox has no limit", world.options));
        assert_eq!((rejected.code(), rejected.retry()), (Code::ResourceExhausted, Retry::Safe));
        assert!(is_full(&rejected), "{rejected}");
        let held = world.with(|inner| inner.out.len());
        assert!(held < max + 2 * message.len(), "{}: {held} bytes", world.options);

        let mut room = pin!(world.connection.room());
        let mut other = Box::pin(world.connection.room());
        assert!(room.as_mut().poll(&mut context).is_pending());
        assert!(other.as_mut().poll(&mut context).is_pending());
        // The task takes all bytes and writes a part, then the rest.
        let notify = &world.connection.room;
        world.with(|inner| {
            let taken = inner.out.take_all().len();
            inner.note_unwritten(taken, notify);
        });
        assert!(room.as_mut().poll(&mut context).is_pending(), "{}", world.options);
        world.with(|inner| inner.note_unwritten(0, notify));
        assert_eq!(room.as_mut().poll(&mut context), Poll::Ready(()), "{}", world.options);
        // The other call is woken next; dropping it must not block later calls.
        drop(other);
        assert!(world.send(&message).is_ok());
    }
}

#[tokio::test]
async fn calls_that_wait_for_room_end_with_the_connection() {
    let mut context = Context::from_waker(Waker::noop());
    let world = World::new(&WIRES[0], 7);
    while world.send(&large()).is_ok() {}
    let mut room = pin!(world.connection.room());
    assert!(room.as_mut().poll(&mut context).is_pending());
    super::ending::close(&world.connection, &switchboard_wire::Status::unavailable("gone"));
    assert_eq!(room.as_mut().poll(&mut context), Poll::Ready(()));
}

/// Bytes that the windows of the server hold back count as those in the outbox.
#[cfg(feature = "http")]
#[tokio::test]
async fn calls_that_wait_for_the_windows_of_the_server_are_limited() {
    let mut context = Context::from_waker(Waker::noop());
    let world = World::new(&super::late_replies::GRPC, 7);
    let (mut sent, message) = (Vec::new(), large());
    let rejected = loop {
        match world.send(&message) {
            Ok(id) => sent.push(id),
            Err(status) => break status,
        }
    };
    assert!(is_full(&rejected), "{rejected}");
    let held = |inner: &mut super::Inner| inner.out.len() + inner.wire.queued_bytes();
    let max = world.with(|inner| inner.outbox_bytes_max);
    assert!((max..max + 2 * message.len()).contains(&world.with(held)));
    let mut room = pin!(world.connection.room());
    assert!(room.as_mut().poll(&mut context).is_pending());
    for id in sent {
        world.connection.cancel(id);
    }
    assert!(world.with(held) < max / 2, "canceled calls hold bytes");
    world.with(|inner| inner.note_unwritten(0, &world.connection.room));
    assert_eq!(room.as_mut().poll(&mut context), Poll::Ready(()));
}
