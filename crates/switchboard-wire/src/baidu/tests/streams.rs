//! Streams, from bytes as brpc writes them.

use super::{call, hex, server};
use crate::{
    Code, Input, Limits, Metadata, Outbox, Outgoing, Status,
    baidu::{Client, Server},
    wire::{ClientEvent, ClientWire, Codec, Open, ServerEvent, ServerWire},
};
use bytes::Bytes;

/// A call of `test.Echo/Chat` that opens stream 7 and wants feedback: meta and no message.
const OPENS: &str =
    "50525043 0000001d 0000001d 0a11 0a09746573742e4563686f 120443686174 2005 4206 0807 1001 1801";
/// The answer, inside a frame to stream 7: the first stream of a connection is 1 << 32, its call is 0.
const ACCEPTED: &str = "5354524d 00000028 0000000a 0807 108080808010 1803 \
                        50525043 00000012 00000012 12020800 2005 420a 088080808010 1001 1801";

/// A machine, and what it wrote.
struct End<M> {
    machine: M,
    input: Input,
    out: Outbox,
}

impl<M> End<M> {
    fn new(machine: M) -> End<M> {
        End { machine, input: Input::default(), out: Outbox::new() }
    }

    fn wrote(&mut self) -> Vec<u8> {
        self.out.take_all()
    }
}

impl End<Server> {
    /// What these bytes mean.
    fn hears(&mut self, bytes: &[u8]) -> Vec<ServerEvent> {
        self.input.extend(bytes);
        std::iter::from_fn(|| self.machine.recv(&mut self.input, &mut self.out).unwrap())
            .filter(|event| !matches!(event, ServerEvent::Handled))
            .collect()
    }

    /// A server on which stream 7 is open, for call 0.
    fn open() -> End<Server> {
        let mut end = End::new(server(Limits::default()));
        let [ServerEvent::Open { id: 0, head, first: None, more: true, .. }] = &end.hears(&hex(OPENS))[..]
        else {
            panic!()
        };
        assert_eq!((head.codec, head.timeout, head.method.0), (Codec::Proto, None, 2));
        assert_eq!(end.wrote(), hex(ACCEPTED));
        end
    }
}

impl End<Client> {
    fn hears(&mut self, bytes: &[u8]) -> Vec<ClientEvent> {
        self.input.extend(bytes);
        std::iter::from_fn(|| self.machine.recv(&mut self.input, &mut self.out).unwrap()).collect()
    }

    /// A client that has called `test.Echo/Chat` as number 6.
    fn calling(limits: Limits) -> End<Client> {
        let mut end = End::new(Client::new(limits));
        end.machine.method(0, "test.Echo/Chat", None, &mut end.out);
        end.machine.streams(0);
        let metadata = Metadata::new();
        end.machine.open(6, Open { more: true, ..call(&metadata) }, None, &mut end.out).unwrap();
        let sent =
            "50525043 0000001d 0000001d 0a11 0a09746573742e4563686f 120443686174 2006 4206 0807 1001 1801";
        assert_eq!(end.wrote(), hex(sent));
        end
    }

    /// The same once the server has answered: its end is stream 9.
    fn open() -> End<Client> {
        let mut end = End::calling(Limits::default());
        let events = end.hears(&hex(
            "5354524d 0000001e 00000006 0807 1009 1803 50525043 0000000c 0000000c 12020800 2006 4204 0809 1801",
        ));
        assert!(matches!(events[..], [ClientEvent::Credit { id: 6, bytes: 0x20_0000 }]), "{events:?}");
        end
    }
}

/// A frame to a stream: its number, the one of the sender, kind, more fields, payload.
fn frame(to: u64, from: u64, kind: u8, more: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut meta = bytes::BytesMut::new();
    crate::proto::put_number(&mut meta, 1, to);
    crate::proto::put_number(&mut meta, 2, from);
    meta.extend_from_slice(&[0x18, kind]);
    meta.extend_from_slice(more);
    let mut bytes = b"STRM".to_vec();
    bytes.extend_from_slice(&((meta.len() + payload.len()) as u32).to_be_bytes());
    bytes.extend_from_slice(&(meta.len() as u32).to_be_bytes());
    [&bytes[..], &meta, payload].concat()
}

const OURS: u64 = 1 << 32;
const RESET: u8 = 1;
const CLOSE: u8 = 2;
const DATA: u8 = 3;
const FEEDBACK: u8 = 4;

#[test]
fn a_server_takes_a_stream_of_brpc() {
    let mut end = End::<Server>::open();
    // A message, one in two parts, and how much of ours was consumed.
    let bytes = [
        frame(OURS, 7, DATA, &[], b"abc"),
        frame(OURS, 7, DATA, &[0x20, 1], b"de"),
        frame(OURS, 7, DATA, &[0x20, 0], b"f"),
    ]
    .concat();
    let events = bytes.iter().flat_map(|byte| end.hears(&[*byte])).collect::<Vec<_>>();
    let [ServerEvent::Item { id: 0, item: one, .. }, ServerEvent::Item { item: two, .. }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((&one[..], &two[..]), (&b"abc"[..], &b"def"[..]));
    // What was taken is told, in all.
    end.machine.credit(0, 3, &mut end.out);
    end.machine.credit(0, 3, &mut end.out);
    let feedback = |consumed| frame(7, OURS, FEEDBACK, &[0x2A, 2, 8, consumed], b"");
    assert_eq!(end.wrote(), [feedback(3), feedback(6)].concat());
    // Replies, which the caller consumes.
    end.machine.item(0, &Bytes::from_static(b"xyz"), false, &mut end.out);
    assert_eq!(end.wrote(), frame(7, OURS, DATA, &[], b"xyz"));
    let events = end.hears(&frame(OURS, 7, FEEDBACK, &[0x2A, 2, 8, 2], b""));
    assert!(matches!(events[..], [ServerEvent::Credit { id: 0, bytes: 2 }]), "{events:?}");
    // Its end, and ours.
    let events = end.hears(&frame(OURS, 7, CLOSE, &[], b""));
    assert!(matches!(events[..], [ServerEvent::HalfClose { id: 0 }]), "{events:?}");
    end.machine.end(0, Ok(&Metadata::new()), &mut end.out);
    assert_eq!(end.wrote(), frame(7, OURS, CLOSE, &[], b""));
    // What comes after that is of nobody.
    assert!(end.hears(&frame(OURS, 7, CLOSE, &[], b"")).is_empty() && end.wrote().is_empty());
    assert!(end.hears(&frame(OURS, 7, DATA, &[], b"late")).is_empty());
    assert_eq!(end.wrote(), frame(7, OURS, RESET, &[], b""));
    // The place is used again, the number is not.
    assert_eq!(end.hears(&hex(OPENS)).len(), 1);
    assert!(end.hears(&frame(OURS, 7, RESET, &[], b"")).is_empty());
    let events = end.hears(&frame(2 << 32, 7, RESET, &[], b""));
    assert!(matches!(events[..], [ServerEvent::Cancel { id: 0 }]), "{events:?}");
}

#[test]
fn calls_fail_in_their_answer_and_streams_by_their_end() {
    let mut end = End::new(server(Limits::default()));
    end.hears(&hex(OPENS));
    // Both are open when the next call comes; a handler that fails at once is not answered before.
    assert_eq!(end.wrote(), hex(ACCEPTED));
    let status = Status::not_found("nobody").with_detail("test.Detail", &b"\x08\x01"[..]);
    end.machine.end(0, Err(&status), &mut end.out);
    let failure = end.wrote();
    assert_eq!(failure[12..22], hex("0807 108080808010 1801")[..]);
    let mut client = End::<Client>::open();
    let told = frame(7, 9, RESET, &[], &failure[22..]);
    let [ClientEvent::End { id: 6, end: Err(told) }] = &client.hears(&told)[..] else { panic!() };
    assert_eq!((told.code(), told.message(), told.details()), (Code::NotFound, "nobody", status.details()));
    // Before it was answered: as the answer, of a stream that is none.
    let mut end = End::new(server(Limits::default()));
    end.input.extend(&hex(OPENS));
    assert!(matches!(end.machine.recv(&mut end.input, &mut end.out), Ok(Some(ServerEvent::Open { .. }))));
    end.machine.end(0, Err(&status), &mut end.out);
    assert!(end.hears(b"").is_empty());
    let answer = end.wrote();
    assert_eq!(answer[12..27], hex("0807 10ffffffffffffffffff01 1803")[..]);
    let mut client = End::calling(Limits::default());
    let [ClientEvent::End { id: 6, end: Err(told) }] = &client.hears(&answer)[..] else { panic!() };
    assert_eq!((told.code(), told.message()), (Code::NotFound, "nobody"));
    assert!(client.wrote().is_empty());
}

#[test]
fn metadata_goes_with_the_answer_and_with_the_end() {
    let mut end = End::new(server(Limits::default()));
    end.input.extend(&hex(OPENS));
    end.machine.recv(&mut end.input, &mut end.out).unwrap();
    let mut head = Metadata::new();
    head.insert("cost", "3").unwrap();
    head.set_attachment("attached");
    let mut trailers = Metadata::new();
    trailers.insert("end-bin", vec![0, 255]).unwrap();
    end.machine.head(0, &head, &mut end.out);
    assert!(end.hears(b"").is_empty());
    end.machine.item(0, &Bytes::from_static(b"one"), false, &mut end.out);
    end.machine.end(0, Ok(&trailers), &mut end.out);
    let mut client = End::calling(Limits::default());
    let events = client.hears(&end.wrote());
    let [
        ClientEvent::Head { id: 6, metadata },
        ClientEvent::Credit { .. },
        ClientEvent::Item { item, .. },
        ClientEvent::End { end: Ok(end), .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((metadata, &item[..], end), (&head, &b"one"[..], &trailers));
}

#[test]
fn a_client_speaks_to_a_stream_of_brpc() {
    let mut end = End::<Client>::open();
    end.machine.item(6, &Bytes::from_static(b"abc"), false, &mut end.out).unwrap();
    end.machine.half_close(6, &mut end.out);
    assert_eq!(end.wrote(), [frame(9, 7, DATA, &[], b"abc"), frame(9, 7, CLOSE, &[], b"")].concat());
    let events =
        end.hears(&[frame(7, 9, DATA, &[], b"xyz"), frame(7, 9, FEEDBACK, &[0x2A, 2, 8, 3], b"")].concat());
    let [ClientEvent::Item { id: 6, item, .. }, ClientEvent::Credit { id: 6, bytes: 3 }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(&item[..], b"xyz");
    // This server wants no feedback.
    end.machine.credit(6, 3, &mut end.out);
    assert!(end.wrote().is_empty());
    let events = end.hears(&frame(7, 9, CLOSE, &[], b""));
    assert!(
        matches!(&events[..], [ClientEvent::End { id: 6, end: Ok(none) }] if none.is_empty()),
        "{events:?}"
    );
    assert!(end.hears(&frame(7, 9, DATA, &[], b"late")).is_empty());
    assert_eq!(end.wrote(), frame(9, 7, RESET, &[], b""));
}

#[test]
fn a_client_gives_up() {
    let mut end = End::<Client>::open();
    end.machine.cancel(6, &mut end.out);
    assert_eq!(end.wrote(), frame(9, 7, RESET, &[], b""));
    // Before the answer there is nobody to tell.
    let mut end = End::calling(Limits::default());
    end.machine.cancel(6, &mut end.out);
    assert!(end.wrote().is_empty());
    assert!(end.hears(&frame(7, 9, DATA, &[], b"whatever it is")).is_empty());
    assert_eq!(end.wrote(), frame(9, 7, RESET, &[], b""));
    let mut end = End::<Client>::open();
    let [ClientEvent::End { end: Err(status), .. }] = &end.hears(&frame(7, 9, RESET, &[], b""))[..] else {
        panic!()
    };
    assert_eq!(status.code(), Code::Unavailable);
}

#[test]
fn answers_outside_their_stream_are_taken_too() {
    let refused = hex("50525043 0000000d 0000000d 1209 08ea07 1204 6e6f7065 2006");
    let mut end = End::calling(Limits::default());
    let mut input = Input::default();
    input.extend(&refused);
    assert!(end.machine.next_reply(&mut input).is_none());
    let [ClientEvent::End { id: 6, end: Err(status) }] = &end.hears(&refused)[..] else { panic!() };
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "nope"));
    // An answer with a message and without a stream: the only reply, where no requests follow.
    let plain = hex("50525043 00000009 00000006 12020800 2006 616263");
    let mut end = End::calling(Limits::default());
    let [ClientEvent::End { id: 6, end: Err(status) }] = &end.hears(&plain)[..] else { panic!() };
    assert!(status.message().contains("not its stream"), "{status}");
    let mut end = End::new(Client::new(Limits::default()));
    end.machine.method(0, "test.Echo/Count", None, &mut end.out);
    end.machine.streams(0);
    end.machine.open(6, call(&Metadata::new()), Some(Outgoing::EMPTY), &mut end.out).unwrap();
    let [ClientEvent::Reply { id: 6, item, .. }] = &end.hears(&plain)[..] else { panic!() };
    assert_eq!(&item[..], b"abc");
    // With a stream it is the first of the replies.
    let mut end = End::calling(Limits::default());
    let streams = hex("50525043 0000000d 0000000a 12020800 2006 42020809 616263");
    let [ClientEvent::Item { id: 6, item, .. }, ClientEvent::Credit { .. }] = &end.hears(&streams)[..] else {
        panic!()
    };
    assert_eq!(&item[..], b"abc");
    let status = end.machine.item(6, &Bytes::new(), false, &mut end.out).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "its end is not writable");
}

#[test]
fn a_call_may_open_a_stream_for_nothing() {
    // A method that streams nothing: the answer goes where brpc's client looks for it.
    let opens = hex(
        "50525043 0000001f 0000001c 0a10 0a09746573742e4563686f 1203536179 2005 42060807 10011801 616263",
    );
    let mut end = End::new(server(Limits::default()));
    assert!(end.machine.next_call(&mut Input::new(bytes::BytesMut::from(&opens[..]))).is_none());
    let [ServerEvent::Open { id: 0, first: Some(first), more: false, .. }] = &end.hears(&opens)[..] else {
        panic!()
    };
    assert_eq!(&first[..], b"abc");
    end.machine.reply(0, Outgoing::Lent(b"xyz"), &mut end.out);
    let plain = hex("50525043 00000009 00000006 12020800 2005 78797a");
    assert_eq!(end.wrote(), frame(7, u64::MAX, DATA, &[], &plain));
}

#[test]
fn what_is_over_a_limit_ends_its_stream_alone() {
    let limits = Limits { message_bytes_max: 10, ..Limits::default() };
    let mut end = End::new(server(limits));
    end.hears(&hex(OPENS));
    end.wrote();
    // The parts of a message are one message; what is too large is not waited for.
    end.hears(&frame(OURS, 7, DATA, &[0x20, 1], b"12345678"));
    let part = frame(OURS, 7, DATA, &[], b"901");
    let [ServerEvent::Refused { id: 0, status }] = &end.hears(&part[..part.len() - 1])[..] else { panic!() };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("11 bytes"), "{status}");
    end.machine.end(0, Err(status), &mut end.out);
    // And what was gathered is given back.
    end.hears(&part[part.len() - 1..]);
    let events = end.hears(&hex(OPENS));
    assert!(matches!(events[..], [ServerEvent::Open { .. }]), "{events:?}");
    assert_eq!(end.hears(&frame(2 << 32, 7, DATA, &[], b"1234567890")).len(), 1);
    for (fields, text) in [("4206 0807 2003 2004", "several"), ("4202 0807 1802", "uncompressed")] {
        let fields = hex(fields);
        let bytes = super::request("Echo", "Chat", b"x", |meta| meta.extend_from_slice(&fields));
        let [ServerEvent::Refused { status, .. }] = &end.hears(&bytes)[..] else { panic!() };
        assert!(status.message().contains(text), "{status}");
    }
    // A client's limit is that of its replies.
    let mut end = End::calling(limits);
    end.hears(&hex("50525043 0000000a 0000000a 12020800 2006 42020809"));
    let [ClientEvent::End { end: Err(status), .. }] = &end.hears(&frame(7, 9, DATA, &[], &[0; 11]))[..]
    else {
        panic!()
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(end.wrote(), frame(9, 7, RESET, &[], b""));
}
