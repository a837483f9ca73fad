//! Limits on the content of boxes: the largest value passes, one more is refused by its name, before its bytes arrive.

use super::*;
use crate::zmtp::Limits;

const SMALL: Limits = Limits {
    command_bytes_max: 400,
    frame_bytes_max: 600,
    message_bytes_max: 1000,
    message_frames_max: 3,
    metadata_bytes_max: 50,
    properties_max: 3,
    topic_bytes_max: 10,
};

/// A client, and a server with small limits.
fn limited(ours: SocketType, theirs: SocketType) -> (Side, Side) {
    let (mut one, mut other) = (Side::new(client(ours)), Side::new(server(theirs).with_limits(SMALL)));
    exchange(&mut one, &mut other, 1000);
    other.events.clear();
    (one, other)
}

fn frames(sizes: &[usize]) -> Vec<Bytes> {
    sizes.iter().map(|len| Bytes::from(vec![5; *len])).collect()
}

#[test]
fn frames_and_messages() {
    let cases = [
        (
            &[600, 400][..],
            &[601][..],
            "frame 1 of a message has 601 bytes; the limit is 600 (frame_bytes_max)",
        ),
        (
            &[600, 400],
            &[600, 401],
            "message up to its frame 2 has 1001 bytes; the limit is 1000 (message_bytes_max)",
        ),
        (&[300, 400, 300], &[300, 400, 301], "message up to its frame 3 has 1001 bytes"),
        (&[1, 1, 1], &[1, 1, 1, 1], "message has 4 frames or more; the limit is 3 (message_frames_max)"),
    ];
    for (fits, exceeds, text) in cases {
        let (mut one, mut other) = limited(SocketType::Push, SocketType::Pull);
        for _ in 0..2 {
            assert!(one.connection.send(&frames(fits), &mut one.out));
        }
        assert!(one.connection.send(&frames(exceeds), &mut one.out));
        other.read(&one.out.take_all(), 10_000);
        let error = other.error.clone().expect(text);
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.message().starts_with(text), "{error}");
        assert!(other.events.len() >= 2 * fits.len());
    }
}

#[test]
fn commands_and_topics() {
    let (mut one, mut other) = limited(SocketType::Sub, SocketType::Pub);
    assert!(one.connection.subscribe(&[7; 10], &mut one.out));
    assert!(one.connection.subscribe(&[7; 11], &mut one.out));
    other.read(&one.out.take_all(), 100);
    assert_eq!(other.events.len(), 1);
    let text = "topic of SUBSCRIBE has 11 bytes; the limit is 10 (topic_bytes_max)";
    assert_eq!(other.error.unwrap().message(), text);

    for (topic, text) in [
        (390, "topic of SUBSCRIBE has 390 bytes; the limit is 10 (topic_bytes_max)"),
        (391, "command has 401 bytes; the limit is 400 (command_bytes_max)"),
    ] {
        let (mut one, mut other) = limited(SocketType::Sub, SocketType::Pub);
        assert!(one.connection.subscribe(&vec![7; topic], &mut one.out));
        assert_eq!(other.refuses(&one.out.take_all()).message(), text);
    }
}

#[test]
fn sizes_are_refused_before_their_bytes_arrive() {
    for len in [634, 1 << 40, i64::MAX as u64, u64::MAX] {
        let (_, mut other) = limited(SocketType::Push, SocketType::Pull);
        let error = other.refuses(&[&[6][..], &len.to_be_bytes()].concat());
        let text = format!("frame 1 of a message has {} bytes; the limit is 600", len - 33);
        assert!(error.message().starts_with(&text), "{error}");
    }
    // The largest one waits for its bytes.
    let (_, mut other) = limited(SocketType::Push, SocketType::Pull);
    other.read(&[&[6][..], &633u64.to_be_bytes()].concat(), 9);
    assert_eq!((other.error, other.input.len()), (None, 9));
}

#[test]
fn metadata_is_limited_before_the_verdict() {
    for (value, text) in [(22, None), (23, Some("metadata of INITIATE has 51 bytes; the limit is 50"))] {
        let mut properties = crate::zmtp::Properties::new();
        properties.insert("X-A", vec![0; value]).unwrap();
        let settings = client(SocketType::Push).with_properties(properties);
        let (mut one, mut other) =
            (Side::new(settings), Side::new(server(SocketType::Pull).with_limits(SMALL)));
        let initiate = advance(&mut one, &mut other, 2);
        other.read(&initiate, 1000);
        match text {
            None => assert_eq!((other.error, other.events.len()), (None, 2)),
            Some(text) => assert!(other.error.unwrap().message().starts_with(text)),
        }
    }
}
