//! Responses that break the rules of gRPC or of HTTP: the call ends, the connection continues.

use super::*;

/// Sends a unary call whose response `response` writes for its stream; returns the only event.
fn failure(response: impl FnOnce(&mut World, u32) -> Vec<u8>) -> String {
    let mut world = World::started(Settings::default());
    world.unary(b"first");
    let reply = world.plain_reply(1, b"before");
    assert_eq!(world.receive(&reply), ["0 reply before"]);
    world.unary(b"second");
    let bytes = response(&mut world, 3);
    let mut events = world.receive(&bytes);
    assert_eq!((events.len(), world.client.streams.len()), (1, 0), "{events:?}");
    // Other calls continue.
    world.unary(b"third");
    let reply = world.plain_reply(5, b"after");
    assert_eq!(world.receive(&reply), ["2 reply after"]);
    events.remove(0)
}

#[test]
fn heads_that_are_not_of_grpc_are_named() {
    for (status, kind, code) in [
        ("502", "text/html", "Unavailable IfIdempotent"),
        ("404", "text/html", "Unimplemented No"),
        ("431", "text/html", "Unknown No"),
        ("200", "text/html", "Unknown No"),
        ("200", "application/grpc+json", "Internal No"),
    ] {
        let event = failure(|world, stream| {
            let head = world.headers(stream, 0, &[(":status", status), ("content-type", kind)]);
            [head, frame_bytes(kind::DATA, END_STREAM, stream, b"<html>")].concat()
        });
        assert!(event.starts_with(&format!("1 {code} tcp://a:1 responded with")), "{event}");
        assert!(event.contains(kind), "{event}");
    }
}

#[test]
fn malformed_heads_reset_their_stream() {
    for fields in [
        &[("content-type", "application/grpc")][..],
        &[(":status", "200"), (":status", "200")],
        &[("content-type", "application/grpc"), (":status", "200")],
        &[(":status", "200"), (":path", "/")],
        &[(":status", "200"), ("Upper", "case")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "20")],
    ] {
        let event = failure(|world, stream| world.headers(stream, 0, fields));
        assert!(event.starts_with("1 Internal No tcp://a:1 sent an invalid HTTP/2 response"), "{event}");
    }
}

#[test]
fn malformed_trailers_reset_their_stream() {
    for (flags, fields) in [
        (0, &[("grpc-status", "0")][..]),
        (END_STREAM, &[(":status", "200"), ("grpc-status", "0")]),
        (END_STREAM, &[("grpc-status", "0"), ("X", "")]),
    ] {
        let event = failure(|world, stream| {
            let head = world.headers(stream, 0, HEAD);
            [head, world.headers(stream, flags, fields)].concat()
        });
        assert!(event.starts_with("1 Internal No tcp://a:1 sent an invalid HTTP/2 response"), "{event}");
    }
}

#[test]
fn bodies_that_are_not_one_message_fail_their_call() {
    let with = |bodies: &[(u8, Vec<u8>)], trailers: &[(&str, &str)]| {
        failure(|world, stream| {
            let mut bytes = world.headers(stream, 0, HEAD);
            for (flags, body) in bodies {
                bytes.extend(frame_bytes(kind::DATA, *flags, stream, body));
            }
            if !trailers.is_empty() {
                bytes.extend(world.headers(stream, END_STREAM, trailers));
            }
            bytes
        })
    };
    let ok = &[("grpc-status", "0")][..];
    let one = envelope(0, b"one");
    for (bodies, trailers, wanted) in [
        (vec![], ok, "Unimplemented No the server ended a unary call without a reply"),
        (
            vec![(0, [one.clone(), one.clone()].concat())],
            ok,
            "Unimplemented No the server sent more than one reply to a unary call",
        ),
        (vec![(0, one[..6].to_vec())], ok, "Internal No the response ended in the middle of a message"),
        (vec![(0, one[..3].to_vec())], ok, "Internal No the response ended in the middle of a message"),
        (vec![(END_STREAM, one.clone())], &[], "Internal No the server ended the call without a status"),
        (vec![(0, envelope(2, b""))], ok, "Internal No the server sent a message with unknown flags 0x02"),
        (
            vec![(0, one.clone())],
            &[("x-a", "b")],
            "Unknown No the server ended the call without a grpc-status",
        ),
        (
            vec![(0, vec![0, 0xff, 0xff, 0xff, 0xff])],
            ok,
            "ResourceExhausted No a reply of 4294967295 bytes is over the limit of 4194304 bytes",
        ),
        (vec![(0, one[..6].to_vec())], &[("grpc-status", "5")], "NotFound No "),
    ] {
        let event = with(&bodies, trailers);
        assert!(event.starts_with(&format!("1 {wanted}")), "{event}");
    }
}

#[test]
fn metadata_over_the_limits_fails_its_call() {
    let many: Vec<_> = (0..70).map(|at| (format!("x-{at}"), "1".to_owned())).collect();
    let large = vec![("x-large".to_owned(), "1".repeat(17_000))];
    for fields in [many, large] {
        let event = failure(|world, stream| {
            let own = fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let fields: Vec<_> = HEAD.iter().copied().chain(own).collect();
            let block = world.block(&fields);
            let mut bytes = BytesMut::new();
            put_header_block(stream, &block, false, 16 << 10, &mut bytes);
            bytes.to_vec()
        });
        assert!(event.starts_with("1 ResourceExhausted No"), "{event}");
        assert!(event.contains("metadata_entries_max"), "{event}");
    }
    let binary = failure(|world, stream| world.headers(stream, 0, &[HEAD, &[("x-bin", "!")]].concat()));
    assert!(binary.contains("x-bin is not base64"), "{binary}");
}

#[test]
fn invalid_increments_reset_their_stream() {
    for increment in [0, WINDOW_MAX] {
        let event = failure(|_, stream| window_update(stream, increment));
        assert!(event.contains("sent an invalid HTTP/2 response: a WINDOW_UPDATE"), "{event}");
    }
}

#[test]
fn messages_before_the_head_reset_their_stream() {
    let event = failure(|_, stream| frame_bytes(kind::DATA, 0, stream, &envelope(0, b"x")));
    assert!(event.contains("sent a message before the head"), "{event}");
}
