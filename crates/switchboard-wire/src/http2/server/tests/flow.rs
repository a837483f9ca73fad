//! Flow control in both directions.

use super::peer::{Peer, Sent, data, head, message, setting, success, window_update};
use crate::{
    Metadata, Outgoing, Status,
    wire::{ServerEvent, ServerWire},
};
use bytes::Bytes;

const WINDOW: u16 = 4;

/// Returns the bytes of bodies in what the machine sent, by stream.
fn bodies(sent: &[Sent]) -> Vec<(u32, usize)> {
    let mut bodies: Vec<(u32, usize)> = Vec::new();
    for frame in sent {
        if let Sent::Data(id, bytes, false) = frame {
            match bodies.iter_mut().find(|(known, _)| known == id) {
                Some((_, len)) => *len += bytes.len(),
                None => bodies.push((*id, bytes.len())),
            }
        }
    }
    bodies
}

#[test]
fn a_reply_waits_for_the_window_of_its_stream() {
    let mut peer = Peer::new();
    peer.events(&setting(WINDOW, 10));
    let call = peer.call(1, b"");
    peer.open(&call);
    peer.sent();
    peer.machine.reply(1, Outgoing::Lent(&[7; 20]), &mut peer.out);
    let first = [&[0, 0, 0, 0, 20][..], &[7; 5]].concat();
    assert_eq!(peer.sent(), [head(1), Sent::Data(1, first, false)]);
    assert_eq!((peer.machine.waiting_bytes(), peer.machine.is_blocked(1)), (15, true));
    assert!(peer.events(&window_update(1, 14)).is_empty());
    assert_eq!(peer.sent(), [Sent::Data(1, vec![7; 14], false)]);
    let events = peer.events(&window_update(1, 1));
    assert!(events.is_empty(), "the call has ended for the driver: {events:?}");
    assert_eq!(peer.sent(), [Sent::Data(1, vec![7], false), success(1)]);
    assert_eq!((peer.machine.waiting_bytes(), peer.machine.memory().calls), (0, 0));
}

#[test]
fn a_stream_resumes_when_its_bytes_are_sent() {
    let mut peer = Peer::new();
    peer.events(&setting(WINDOW, 10));
    let call = peer.headers(1, "Both", &[], false);
    peer.open(&call);
    let item = Bytes::from_static(&[1; 5]);
    peer.machine.item(1, &item, false, &mut peer.out);
    assert!(!peer.machine.is_blocked(1));
    peer.machine.item(1, &item, false, &mut peer.out);
    assert!(peer.machine.is_blocked(1));
    let events = peer.events(&window_update(1, 100));
    assert!(matches!(events[..], [ServerEvent::Resume { id: 1 }]), "{events:?}");
    assert!(!peer.machine.is_blocked(1));
    // The end and trailers follow what waits.
    peer.sent();
    peer.machine.item(1, &Bytes::from(vec![2; 200]), false, &mut peer.out);
    peer.machine.end(1, Err(&Status::aborted("x")), &mut peer.out);
    assert_eq!(bodies(&peer.sent()), [(1, 90)]);
    peer.events(&window_update(1, 1000));
    let sent = peer.sent();
    assert!(matches!(&sent[1], Sent::Headers(1, text, true) if text.contains("grpc-status=10")), "{sent:?}");
}

#[test]
fn settings_change_the_windows_of_open_streams_and_may_make_them_negative() {
    let mut peer = Peer::new();
    let call = peer.headers(1, "Both", &[], false);
    peer.open(&call);
    peer.sent();
    peer.machine.item(1, &Bytes::from(vec![1; 995]), false, &mut peer.out);
    peer.events(&setting(WINDOW, 100));
    peer.machine.item(1, &Bytes::from(vec![1; 95]), false, &mut peer.out);
    assert_eq!(bodies(&peer.sent()), [(1, 1000)]);
    // The window is at 100 − 1000.
    peer.events(&window_update(1, 900));
    assert!(bodies(&peer.sent()).is_empty());
    peer.events(&setting(WINDOW, 150));
    assert_eq!(bodies(&peer.sent()), [(1, 50)]);
    peer.events(&setting(WINDOW, 65_535));
    assert_eq!(bodies(&peer.sent()), [(1, 50)]);
}

#[test]
fn streams_share_the_window_of_the_connection_in_turns() {
    let mut peer = Peer::new();
    peer.events(&setting(WINDOW, 1 << 20));
    let calls: Vec<u8> = [1, 3, 5].into_iter().flat_map(|id| peer.call(id, b"")).collect();
    assert_eq!(peer.events(&calls).len(), 3);
    peer.machine.reply(1, Outgoing::Lent(&[1; 300_000]), &mut peer.out);
    peer.machine.reply(3, Outgoing::Lent(&[3; 300_000]), &mut peer.out);
    assert_eq!(bodies(&peer.sent()), [(1, 65_535)]);
    // A small reply among large ones waits for a turn of each, not for their ends.
    peer.machine.reply(5, Outgoing::Lent(b"small"), &mut peer.out);
    peer.events(&window_update(0, 200_000));
    let sent = peer.sent();
    let (turn, small) = (64 << 10, 10);
    assert_eq!(bodies(&sent), [(1, 2 * turn), (3, 200_000 - small - 2 * turn), (5, small)]);
    let last = sent.iter().rposition(|frame| matches!(frame, Sent::Data(..)));
    assert!(sent.iter().position(|frame| *frame == success(5)) < last);
    assert!(sent.contains(&success(5)));
}

#[test]
fn windows_that_are_open_are_used() {
    let mut peer = Peer::new();
    peer.events(&window_update(0, 1 << 20));
    let calls: Vec<u8> = [1, 3, 5].into_iter().flat_map(|id| peer.call(id, b"")).collect();
    peer.events(&calls);
    for id in [1, 3, 5] {
        peer.machine.reply(id, Outgoing::Lent(&[1; 300_000]), &mut peer.out);
        assert!(!peer.machine.wastes_windows());
    }
    for (id, increment) in [(3, 150_000), (1, 300_000), (3, 300_000), (5, 300_000)] {
        peer.events(&window_update(id, increment));
        assert!(!peer.machine.wastes_windows(), "{id}");
    }
    let lens = [1, 3, 5].map(|id| (id, 300_005));
    let mut sent = bodies(&peer.sent());
    sent.sort_unstable();
    assert_eq!(sent, lens);
}

#[test]
fn credit_is_given_as_the_reader_takes_messages() {
    let mut peer = Peer::new();
    let call = peer.headers(1, "Both", &[], false);
    peer.open(&call);
    peer.sent();
    let body = message(&[7; 100_000]);
    let mut granted = 0;
    for at in 0..10 {
        for piece in body.chunks(16_000) {
            let events = peer.events(&data(1, piece, false));
            assert!(events.len() <= 1);
        }
        for frame in peer.sent() {
            assert!(!matches!(frame, Sent::Window(1, _)), "credit before message {at} was taken");
        }
    }
    for _ in 0..10 {
        peer.machine.credit(1, 100_000, &mut peer.out);
        for frame in peer.sent() {
            match frame {
                Sent::Window(1, bytes) => granted += bytes,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!((500_000..=10 * body.len() as u32).contains(&granted), "{granted}");
    // More than was received is not granted.
    peer.machine.credit(1, u32::MAX, &mut peer.out);
    assert!(peer.sent().is_empty());
}

#[test]
fn the_window_of_the_connection_does_not_depend_on_readers() {
    let mut peer = Peer::new();
    let (mut granted, mut sent) = (0, 0);
    for id in (1..21).step_by(2) {
        let call = peer.headers(id, "Both", &[], false);
        peer.open(&call);
        let body = message(&[7; 1_000_000]);
        for piece in body.chunks(500_000) {
            peer.events(&data(id, piece, false));
            sent += piece.len() as u32;
        }
        for frame in peer.sent() {
            if let Sent::Window(0, bytes) = frame {
                granted += bytes;
            }
        }
    }
    assert!(granted + (4 << 20) >= sent && granted <= sent, "{granted} of {sent}");
}

#[test]
fn a_message_larger_than_the_window_is_let_in() {
    let mut peer = Peer::new();
    for (id, method) in [(1, "Unary"), (3, "Both")] {
        let bytes = peer.headers(id, method, &[], false);
        peer.events(&bytes);
        peer.sent();
        let whole = message(&vec![9; 3 << 20]);
        let (mut left, mut window) = (&whole[..], 1usize << 20);
        let mut events = Vec::new();
        while !left.is_empty() {
            let len = left.len().min(window).min(300_000);
            assert!(len > 0, "the peer waits for credit without end");
            let (piece, rest) = left.split_at(len);
            left = rest;
            window -= len;
            events.extend(peer.events(&data(id, piece, left.is_empty())));
            for frame in peer.sent() {
                if let Sent::Window(stream, bytes) = frame
                    && stream == id
                {
                    window += bytes as usize;
                }
            }
            assert!(peer.machine.held <= whole.len() + 1000);
        }
        let received = events.iter().any(|event| match event {
            ServerEvent::Open { first: Some(message), .. } => message.len() == 3 << 20,
            ServerEvent::Item { item, .. } => item.len() == 3 << 20,
            _ => false,
        });
        assert!(received);
        assert_eq!(window, 0, "no more than the message");
        assert_eq!(peer.machine.held, 0);
        peer.machine.end(id, Ok(&Metadata::new()), &mut peer.out);
    }
}

#[test]
fn padding_counts_for_the_windows() {
    let mut peer = Peer::new();
    let call = peer.headers(1, "Both", &[], false);
    peer.open(&call);
    let body = message(b"ab");
    let padded = [&[200][..], &body, &[0; 200]].concat();
    let frame = super::peer::frame(0, 8, 1, &padded);
    let events = peer.events(&frame);
    assert!(matches!(&events[..], [ServerEvent::Item { item, .. }] if *item == "ab"), "{events:?}");
    let stream = peer.machine.streams.get(1).unwrap();
    assert_eq!(stream.window.left(), (1 << 20) - padded.len() as u32);
    assert_eq!(stream.unread, 2);
}
