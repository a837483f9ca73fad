//! Streams, checked against frames of brpc.

use super::{call, hex, server};
use crate::{
    Code, Input, Kind, Limits, Metadata, Outbox, Outgoing, Status,
    baidu::{Client, Server},
    wire::{ClientEvent, ClientWire, Codec, Open, ServerEvent, ServerWire},
};
use bytes::Bytes;

/// A call of `test.Echo/Chat` that opens stream 7 and wants feedback: meta and no message.
const OPENS: &str =
    "50525043 0000001d 0000001d 0a11 0a09746573742e4563686f 120443686174 2005 4206 0807 1001 1801";
/// The response, inside a frame to stream 7: the first stream of a connection is 1 << 32, its call is 0. Field 1000 of
/// the settings is an extension of Switchboard.
const ACCEPTED: &str = "5354524d 0000002b 0000000a 0807 108080808010 1803 \
                        50525043 00000015 00000015 12020800 2005 420d 088080808010 1001 1801 c03e01";

/// A state machine with its input and output.
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
    /// Returns the events for these bytes.
    fn receive(&mut self, bytes: &[u8]) -> Vec<ServerEvent> {
        self.input.extend(bytes);
        std::iter::from_fn(|| self.machine.recv(&mut self.input, &mut self.out).unwrap())
            .filter(|event| !matches!(event, ServerEvent::Handled))
            .collect()
    }

    /// Passes the time after which an end is released.
    fn passes(&mut self) {
        while self.machine.holds_ends() {
            self.machine.release_ends(&mut self.out);
        }
    }

    /// A server on which stream 7 is open, for call 0.
    fn open() -> End<Server> {
        let mut end = End::new(server(Limits::default()));
        let [ServerEvent::Open { id: 0, head, first: None, more: true, .. }] = &end.receive(&hex(OPENS))[..]
        else {
            panic!()
        };
        assert_eq!((head.codec, head.timeout, head.method.0), (Codec::Proto, None, 2));
        assert_eq!(end.wrote(), hex(ACCEPTED));
        end
    }
}

impl End<Client> {
    fn receive(&mut self, bytes: &[u8]) -> Vec<ClientEvent> {
        self.input.extend(bytes);
        std::iter::from_fn(|| self.machine.recv(&mut self.input, &mut self.out).unwrap()).collect()
    }

    /// A client that has called `test.Echo/Chat` as number 6.
    fn calling(limits: Limits) -> End<Client> {
        let mut end = End::new(Client::new(limits));
        end.machine.method(0, "test.Echo/Chat", None, &mut end.out);
        end.machine.streams(0, Kind::Bidi);
        let metadata = Metadata::new();
        end.machine.open(6, Open { more: true, ..call(&metadata) }, None, &mut end.out).unwrap();
        let sent = "50525043 00000020 00000020 0a11 0a09746573742e4563686f 120443686174 2006 4209 0807 1001 1801 c03e01";
        assert_eq!(end.wrote(), hex(sent));
        end
    }

    /// A client with an open stream: the server has responded, its end is stream 9.
    fn open() -> End<Client> {
        let mut end = End::calling(Limits::default());
        let events = end.receive(&hex(
            "5354524d 0000001e 00000006 0807 1009 1803 50525043 0000000c 0000000c 12020800 2006 4204 0809 1801",
        ));
        assert!(matches!(events[..], [ClientEvent::Credit { id: 6, bytes: 0x20_0000 }]), "{events:?}");
        end
    }
}

/// Builds a stream frame: receiver, sender, kind, more fields, payload.
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
    // A message, a message in two parts, and feedback on sent bytes.
    let bytes = [
        frame(OURS, 7, DATA, &[], b"abc"),
        frame(OURS, 7, DATA, &[0x20, 1], b"de"),
        frame(OURS, 7, DATA, &[0x20, 0], b"f"),
    ]
    .concat();
    let events = bytes.iter().flat_map(|byte| end.receive(&[*byte])).collect::<Vec<_>>();
    let [ServerEvent::Item { id: 0, item: one, .. }, ServerEvent::Item { item: two, .. }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((&one[..], &two[..]), (&b"abc"[..], &b"def"[..]));
    // Feedback reports the total of consumed bytes.
    end.machine.credit(0, 3, &mut end.out);
    end.machine.credit(0, 3, &mut end.out);
    let feedback = |consumed| frame(7, OURS, FEEDBACK, &[0x2A, 2, 8, consumed], b"");
    assert_eq!(end.wrote(), [feedback(3), feedback(6)].concat());
    // Replies, which the caller consumes.
    end.machine.item(0, &Bytes::from_static(b"xyz"), false, &mut end.out);
    assert_eq!(end.wrote(), frame(7, OURS, DATA, &[], b"xyz"));
    let events = end.receive(&frame(OURS, 7, FEEDBACK, &[0x2A, 2, 8, 2], b""));
    assert!(matches!(events[..], [ServerEvent::Credit { id: 0, bytes: 2 }]), "{events:?}");
    // Both sides end the stream.
    let events = end.receive(&frame(OURS, 7, CLOSE, &[], b""));
    assert!(matches!(events[..], [ServerEvent::HalfClose { id: 0 }]), "{events:?}");
    end.machine.end(0, Ok(&Metadata::new()), &mut end.out);
    assert_eq!(end.wrote(), frame(7, OURS, CLOSE, &[], b""));
    // Later frames belong to no stream.
    assert!(end.receive(&frame(OURS, 7, CLOSE, &[], b"")).is_empty() && end.wrote().is_empty());
    assert!(end.receive(&frame(OURS, 7, DATA, &[], b"late")).is_empty());
    assert_eq!(end.wrote(), frame(7, OURS, RESET, &[], b""));
    // The slot is reused, the stream number is not.
    assert_eq!(end.receive(&hex(OPENS)).len(), 1);
    assert!(end.receive(&frame(OURS, 7, RESET, &[], b"")).is_empty());
    let events = end.receive(&frame(2 << 32, 7, RESET, &[], b""));
    assert!(matches!(events[..], [ServerEvent::Cancel { id: 0 }]), "{events:?}");
}

#[test]
fn the_end_of_a_stream_waits_until_a_client_of_brpc_has_read_the_response() {
    let none = Metadata::new();
    let close = frame(7, OURS, CLOSE, &[], b"");
    let ended = || {
        let mut end = End::<Server>::open();
        end.machine.item(0, &Bytes::from_static(b"xyz"), false, &mut end.out);
        end.machine.end(0, Ok(&none), &mut end.out);
        assert_eq!(end.wrote(), frame(7, OURS, DATA, &[], b"xyz"));
        assert_eq!((end.machine.holds_ends(), end.machine.unsent_response_bytes()), (true, close.len()));
        end
    };
    // Any frame to the stream shows that its caller has read the response.
    for (kind, rest) in [(FEEDBACK, &[0x2A, 2, 8, 3][..]), (DATA, &[]), (CLOSE, &[])] {
        let mut end = ended();
        assert!(end.receive(&frame(OURS, 7, kind, rest, b"")).is_empty());
        assert_eq!(end.wrote(), close, "{kind}");
        assert_eq!((end.machine.holds_ends(), end.machine.unsent_response_bytes()), (false, 0));
        end.passes();
        assert!(end.wrote().is_empty(), "the end is sent once");
    }
    let mut end = ended();
    assert!(end.receive(&frame(OURS, 7, RESET, &[], b"")).is_empty());
    assert!(end.wrote().is_empty() && !end.machine.holds_ends(), "the caller has no stream any more");
    // Without such a frame the end is sent after one to two periods.
    let mut end = ended();
    end.machine.release_ends(&mut end.out);
    assert!(end.wrote().is_empty() && end.machine.holds_ends());
    end.machine.release_ends(&mut end.out);
    assert_eq!(end.wrote(), close);
    assert_eq!((end.machine.holds_ends(), end.machine.unsent_response_bytes()), (false, 0));
    // A failure is held in the same way, like an end without a message.
    let mut end = End::<Server>::open();
    end.machine.end(0, Err(&Status::internal("")), &mut end.out);
    assert!(end.wrote().is_empty() && end.machine.unsent_response_bytes() > 0);
    assert!(end.receive(&frame(OURS, 7, FEEDBACK, &[0x2A, 2, 8, 3], b"")).is_empty());
    assert_eq!(end.wrote()[12..22], hex("0807 108080808010 1801")[..]);
    // A caller that supports half-close gets the end at once.
    let mut end = End::<Server>::open();
    end.receive(&frame(OURS, 7, FEEDBACK, &[0x2A, 2, 8, 0], b""));
    end.machine.end(0, Ok(&none), &mut end.out);
    assert_eq!(end.wrote(), close);
    let mut end = End::new(server(Limits::default()));
    let ours = OPENS.replace("0000001d 0000001d", "00000020 00000020").replace("4206", "4209") + " c03e01";
    assert_eq!(end.receive(&hex(&ours)).len(), 1);
    end.machine.end(0, Ok(&none), &mut end.out);
    assert_eq!(end.wrote(), [hex(ACCEPTED), close].concat());
}

#[test]
fn streams_whose_ends_are_held_count_as_open() {
    let mut end = End::new(server(Limits::default()));
    for _ in 0..crate::baidu::STREAMS_MAX {
        let events = end.receive(&hex(OPENS));
        let [ServerEvent::Open { id, .. }] = events[..] else { panic!("{events:?}") };
        end.machine.end(id, Ok(&Metadata::new()), &mut end.out);
    }
    let events = end.receive(&hex(OPENS));
    let [ServerEvent::Refused { id, status }] = &events[..] else { panic!("{events:?}") };
    assert!(status.message().contains("streams are open"), "{status}");
    end.machine.end(*id, Err(status), &mut end.out);
    end.passes();
    assert!(matches!(end.receive(&hex(OPENS))[..], [ServerEvent::Open { .. }]));
}

#[test]
fn calls_fail_in_their_response_and_streams_at_their_end() {
    let mut end = End::new(server(Limits::default()));
    end.receive(&hex(OPENS));
    // Both streams are open when the next call arrives; a call whose handler fails at once has no response before.
    assert_eq!(end.wrote(), hex(ACCEPTED));
    let status = Status::not_found("no such user").with_detail("test.Detail", &b"\x08\x01"[..]);
    end.machine.end(0, Err(&status), &mut end.out);
    end.passes();
    let failure = end.wrote();
    assert_eq!(failure[12..22], hex("0807 108080808010 1801")[..]);
    let mut client = End::<Client>::open();
    let received = frame(7, 9, RESET, &[], &failure[22..]);
    let [ClientEvent::End { id: 6, end: Err(received) }] = &client.receive(&received)[..] else { panic!() };
    assert_eq!(
        (received.code(), received.message(), received.details()),
        (Code::NotFound, "no such user", status.details())
    );
    // A failure before the response is the response, for a stream that was not opened.
    let mut end = End::new(server(Limits::default()));
    end.input.extend(&hex(OPENS));
    assert!(matches!(end.machine.recv(&mut end.input, &mut end.out), Ok(Some(ServerEvent::Open { .. }))));
    end.machine.end(0, Err(&status), &mut end.out);
    assert!(end.receive(b"").is_empty());
    let answer = end.wrote();
    assert_eq!(answer[12..27], hex("0807 10ffffffffffffffffff01 1803")[..]);
    let mut client = End::calling(Limits::default());
    let [ClientEvent::End { id: 6, end: Err(received) }] = &client.receive(&answer)[..] else { panic!() };
    assert_eq!((received.code(), received.message()), (Code::NotFound, "no such user"));
    assert!(client.wrote().is_empty());
}

#[test]
fn metadata_is_sent_with_the_response_and_with_the_end() {
    let mut end = End::new(server(Limits::default()));
    end.input.extend(&hex(OPENS));
    end.machine.recv(&mut end.input, &mut end.out).unwrap();
    let mut head = Metadata::new();
    head.insert("cost", "3").unwrap();
    head.set_attachment("attached");
    let mut trailers = Metadata::new();
    trailers.insert("end-bin", vec![0, 255]).unwrap();
    end.machine.head(0, &head, &mut end.out);
    assert!(end.receive(b"").is_empty());
    end.machine.item(0, &Bytes::from_static(b"one"), false, &mut end.out);
    end.machine.end(0, Ok(&trailers), &mut end.out);
    end.passes();
    let mut client = End::calling(Limits::default());
    let events = client.receive(&end.wrote());
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
    assert_eq!(end.wrote(), frame(9, 7, DATA, &[], b"abc"), "the server has not read it yet");
    let events =
        end.receive(&[frame(7, 9, DATA, &[], b"xyz"), frame(7, 9, FEEDBACK, &[0x2A, 2, 8, 3], b"")].concat());
    let [ClientEvent::Item { id: 6, item, .. }, ClientEvent::Credit { id: 6, bytes: 3 }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(&item[..], b"xyz");
    // The server has read all requests and has sent the replies that it wrote meanwhile.
    assert_eq!(end.wrote(), frame(9, 7, CLOSE, &[], b""));
    // This server wants no feedback.
    end.machine.credit(6, 3, &mut end.out);
    assert!(end.wrote().is_empty());
    let events = end.receive(&frame(7, 9, CLOSE, &[], b""));
    assert!(
        matches!(&events[..], [ClientEvent::End { id: 6, end: Ok(none) }] if none.is_empty()),
        "{events:?}"
    );
    assert!(end.receive(&frame(7, 9, DATA, &[], b"late")).is_empty());
    assert_eq!(end.wrote(), frame(9, 7, RESET, &[], b""));
}

#[test]
fn a_client_stream_of_brpc_is_closed_after_its_reply() {
    let answer =
        "5354524d 0000001e 00000006 0807 1009 1803 50525043 0000000c 0000000c 12020800 2006 4204 0809 1801";
    let calling = |answer: &str| {
        let mut end = End::calling(Limits::default());
        end.machine.streams(0, Kind::ClientStream);
        let metadata = Metadata::new();
        end.machine.cancel(6, &mut end.out);
        end.machine.open(6, Open { more: true, ..call(&metadata) }, None, &mut end.out).unwrap();
        end.wrote();
        end.receive(&hex(answer));
        end.machine.item(6, &Bytes::from_static(b"abc"), false, &mut end.out).unwrap();
        end.machine.half_close(6, &mut end.out);
        end
    };
    let mut end = calling(answer);
    end.receive(&frame(7, 9, FEEDBACK, &[0x2A, 2, 8, 3], b""));
    assert_eq!(end.wrote(), frame(9, 7, DATA, &[], b"abc"), "brpc could not reply after CLOSE");
    let events = end.receive(&frame(7, 9, DATA, &[], b"sum"));
    assert!(matches!(events[..], [ClientEvent::Item { .. }]), "{events:?}");
    assert_eq!(end.wrote(), frame(9, 7, CLOSE, &[], b""));
    let events = end.receive(&frame(7, 9, CLOSE, &[], b""));
    assert!(matches!(events[..], [ClientEvent::End { end: Ok(_), .. }]), "{events:?}");
    // A Switchboard server treats it as the end of the requests only.
    let ours = answer.replace("0000001e", "00000021").replace("0000000c 0000000c", "0000000f 0000000f");
    let mut end = calling(&(ours.replace("4204", "4207") + " c03e01"));
    assert_eq!(end.wrote(), [frame(9, 7, DATA, &[], b"abc"), frame(9, 7, CLOSE, &[], b"")].concat());
}

#[test]
fn a_stream_that_ends_early_fails() {
    let ends = |mut end: End<Client>, bytes: &[&[u8]], text: &str| {
        let events = end.receive(&bytes.concat());
        let [ClientEvent::End { id: 6, end: Err(status) }] = &events[..] else { panic!("{events:?}") };
        assert!(status.code() == Code::Unavailable && status.message().contains(text), "{status}");
    };
    let close = frame(7, 9, CLOSE, &[], b"");
    ends(End::calling(Limits::default()), &[&close], "before it responded");
    ends(
        End::<Client>::open(),
        &[&frame(7, 9, DATA, &[0x20, 1], b"ab"), &close],
        "in the middle of a message",
    );
}

#[test]
fn a_message_in_the_response_does_not_count_as_consumed() {
    let mut end = End::calling(Limits::default());
    let streams = hex("50525043 0000000f 0000000c 12020800 2006 4204 0809 1001 616263");
    assert_eq!(end.receive(&streams).len(), 2);
    end.receive(&frame(7, 9, DATA, &[], b"defgh"));
    // The reader consumes the three bytes of the response, then two messages at once.
    end.machine.credit(6, 2, &mut end.out);
    assert!(end.wrote().is_empty());
    end.machine.credit(6, 4, &mut end.out);
    assert_eq!(end.wrote(), frame(9, 7, FEEDBACK, &[0x2A, 2, 8, 3], b""));
}

#[test]
fn replies_say_how_they_are_written() {
    let reply = |content_type: &str, text: &str| {
        hex(&format!("50525043 0000000b 00000008 12020800 2006 50{content_type} {text}"))
    };
    let opened = |codec| {
        let mut end = End::new(Client::new(Limits::default()));
        end.machine.method(0, "test.Echo/Say", None, &mut end.out);
        let metadata = Metadata::new();
        end.machine.open(6, Open { codec, ..call(&metadata) }, None, &mut end.out).unwrap();
        end
    };
    // The usual case, the same codec in both directions, needs no content type.
    let plain = hex("50525043 00000009 00000006 12020800 2006 616263");
    let mut end = opened(Codec::Proto);
    assert!(end.machine.next_reply(&mut Input::new(bytes::BytesMut::from(&plain[..]))).is_some());
    for (sent, bytes, expected) in [
        (Codec::Json, plain, Codec::Proto),
        (Codec::Json, reply("02", "616263"), Codec::Json),
        (Codec::Proto, reply("01", "616263"), Codec::Json),
    ] {
        let mut end = opened(sent);
        assert!(end.machine.next_reply(&mut Input::new(bytes::BytesMut::from(&bytes[..]))).is_none());
        let events = end.receive(&bytes);
        let [ClientEvent::ReplyCodec { id: 6, codec }, ClientEvent::Reply { id: 6, item, .. }] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((*codec, &item[..]), (expected, &b"abc"[..]));
    }
    let [ClientEvent::End { end: Err(status), .. }] =
        &opened(Codec::Json).receive(&reply("03", "616263"))[..]
    else {
        panic!()
    };
    assert!(status.message().contains("content type 3"), "{status}");
}

#[test]
fn a_client_cancels_its_call() {
    let mut end = End::<Client>::open();
    end.machine.cancel(6, &mut end.out);
    assert_eq!(end.wrote(), frame(9, 7, RESET, &[], b""));
    // Before the response there is no stream to reset.
    let mut end = End::calling(Limits::default());
    end.machine.cancel(6, &mut end.out);
    assert!(end.wrote().is_empty());
    assert!(end.receive(&frame(7, 9, DATA, &[], b"whatever it is")).is_empty());
    assert_eq!(end.wrote(), frame(9, 7, RESET, &[], b""));
    let mut end = End::<Client>::open();
    let [ClientEvent::End { end: Err(status), .. }] = &end.receive(&frame(7, 9, RESET, &[], b""))[..] else {
        panic!()
    };
    assert_eq!(status.code(), Code::Unavailable);
}

#[test]
fn responses_outside_their_stream_are_accepted() {
    let refused = hex("50525043 0000000d 0000000d 1209 08ea07 1204 6e6f7065 2006");
    let mut end = End::calling(Limits::default());
    let mut input = Input::default();
    input.extend(&refused);
    assert!(end.machine.next_reply(&mut input).is_none());
    let [ClientEvent::End { id: 6, end: Err(status) }] = &end.receive(&refused)[..] else { panic!() };
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "nope"));
    // A response with a message and without a stream is the only reply if no requests follow.
    let plain = hex("50525043 00000009 00000006 12020800 2006 616263");
    let mut end = End::calling(Limits::default());
    let [ClientEvent::End { id: 6, end: Err(status) }] = &end.receive(&plain)[..] else { panic!() };
    assert!(status.message().contains("not its stream"), "{status}");
    let mut end = End::new(Client::new(Limits::default()));
    end.machine.method(0, "test.Echo/Count", None, &mut end.out);
    end.machine.streams(0, Kind::ServerStream);
    end.machine.open(6, call(&Metadata::new()), Some(Outgoing::EMPTY), &mut end.out).unwrap();
    let [ClientEvent::Reply { id: 6, item, .. }] = &end.receive(&plain)[..] else { panic!() };
    assert_eq!(&item[..], b"abc");
    // With a stream it is the first of the replies.
    let mut end = End::calling(Limits::default());
    let streams = hex("50525043 0000000d 0000000a 12020800 2006 42020809 616263");
    let [ClientEvent::Item { id: 6, item, .. }, ClientEvent::Credit { .. }] = &end.receive(&streams)[..]
    else {
        panic!()
    };
    assert_eq!(&item[..], b"abc");
    let status = end.machine.item(6, &Bytes::new(), false, &mut end.out).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "its end is not writable");
}

#[test]
fn a_unary_call_may_open_a_stream() {
    // For a unary method the response goes where brpc's client expects it.
    let opens = hex(
        "50525043 0000001f 0000001c 0a10 0a09746573742e4563686f 1203536179 2005 42060807 10011801 616263",
    );
    let mut end = End::new(server(Limits::default()));
    assert!(end.machine.next_call(&mut Input::new(bytes::BytesMut::from(&opens[..]))).is_none());
    let [ServerEvent::Open { id: 0, first: Some(first), more: false, .. }] = &end.receive(&opens)[..] else {
        panic!()
    };
    assert_eq!(&first[..], b"abc");
    end.machine.reply(0, Outgoing::Lent(b"xyz"), &mut end.out);
    let plain = hex("50525043 00000009 00000006 12020800 2005 78797a");
    assert_eq!(end.wrote(), frame(7, u64::MAX, DATA, &[], &plain));
}

#[test]
fn messages_over_a_limit_end_only_their_stream() {
    let limits = Limits { message_bytes_max: 10, ..Limits::default() };
    let mut end = End::new(server(limits));
    end.receive(&hex(OPENS));
    end.wrote();
    // The parts of a message count as one message; the server does not wait for the rest of one that is too large.
    end.receive(&frame(OURS, 7, DATA, &[0x20, 1], b"12345678"));
    let part = frame(OURS, 7, DATA, &[], b"901");
    let [ServerEvent::Refused { id: 0, status }] = &end.receive(&part[..part.len() - 1])[..] else {
        panic!()
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("11 bytes"), "{status}");
    end.machine.end(0, Err(status), &mut end.out);
    // The bytes gathered so far are released.
    end.receive(&part[part.len() - 1..]);
    let events = end.receive(&hex(OPENS));
    assert!(matches!(events[..], [ServerEvent::Open { .. }]), "{events:?}");
    assert_eq!(end.receive(&frame(2 << 32, 7, DATA, &[], b"1234567890")).len(), 1);
    for (fields, text) in [("4206 0807 2003 2004", "several"), ("4202 0807 1802", "uncompressed")] {
        let fields = hex(fields);
        let bytes = super::request("Echo", "Chat", b"x", |meta| meta.extend_from_slice(&fields));
        let [ServerEvent::Refused { status, .. }] = &end.receive(&bytes)[..] else { panic!() };
        assert!(status.message().contains(text), "{status}");
    }
    // The limit of a client applies to replies.
    let mut end = End::calling(limits);
    end.receive(&hex("50525043 0000000a 0000000a 12020800 2006 42020809"));
    let [ClientEvent::End { end: Err(status), .. }] = &end.receive(&frame(7, 9, DATA, &[], &[0; 11]))[..]
    else {
        panic!()
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(end.wrote(), frame(9, 7, RESET, &[], b""));
}
