//! Every limit: its largest value passes, and one more has an error with the name of the limit.

use super::*;
use crate::zmtp::{ErrorKind, Limits};

const SMALL: Limits = Limits {
    command_bytes_max: 400,
    frame_bytes_max: 300,
    message_bytes_max: 500,
    message_frames_max: 3,
    metadata_bytes_max: 50,
    properties_max: 3,
    topic_bytes_max: 10,
};

/// Checks that `fits` passes and that `exceeds` fails with this text.
fn check(ours: SocketType, theirs: SocketType, fits: &[u8], exceeds: &[u8], text: &str) {
    let settings = Settings::new(ours).with_limits(SMALL);
    assert_eq!(traffic_with(&settings, theirs, fits).2, None);
    let (.., error) = traffic_with(&settings, theirs, exceeds);
    let error = error.expect(text);
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Limit, format!("zmtp: {text}")));
}

#[test]
fn frames() {
    let (pull, push) = (SocketType::Pull, SocketType::Push);
    let text = "frame 2 of a message has 301 bytes; the limit is 300 (frame_bytes_max)";
    let first = frame(1, b"a");
    check(
        pull,
        push,
        &[first.clone(), frame(0, &[0; 300])].concat(),
        &[first, frame(0, &[0; 301])].concat(),
        text,
    );
}

#[test]
fn messages() {
    let (pull, push) = (SocketType::Pull, SocketType::Push);
    let message = |last: usize| [frame(1, &[0; 300]), frame(0, &vec![0; last])].concat();
    let text = "message up to its frame 2 has 501 bytes; the limit is 500 (message_bytes_max)";
    // The limit is for each message, not for their sum.
    check(pull, push, &message(200).repeat(3), &message(201), text);
}

#[test]
fn frames_of_a_message() {
    let (pull, push) = (SocketType::Pull, SocketType::Push);
    let text = "message has 4 frames or more; the limit is 3 (message_frames_max)";
    let (more, last) = (frame(1, b""), frame(0, b""));
    let fits = [more.clone(), more.clone(), last].concat();
    check(pull, push, &fits.repeat(2), &more.repeat(3), text);
    // Frames that a socket skips count too.
    check(SocketType::Pub, SocketType::Sub, &fits.repeat(2), &more.repeat(3), text);
}

#[test]
fn commands() {
    let (pull, push) = (SocketType::Pull, SocketType::Push);
    let text = "command has 401 bytes; the limit is 400 (command_bytes_max)";
    check(pull, push, &command("LATER", &[0; 394]), &command("LATER", &[0; 395]), text);
}

#[test]
fn topics() {
    let (publisher, sub) = (SocketType::Pub, SocketType::Sub);
    let check = |fits: &[u8], exceeds: &[u8], text| check(publisher, sub, fits, exceeds, text);
    let text = "topic of SUBSCRIBE has 11 bytes; the limit is 10 (topic_bytes_max)";
    check(&command("SUBSCRIBE", &[7; 10]), &command("SUBSCRIBE", &[7; 11]), text);
    let text = "topic of CANCEL has 11 bytes; the limit is 10 (topic_bytes_max)";
    check(&command("CANCEL", &[7; 10]), &command("CANCEL", &[7; 11]), text);
    let text = "topic of a subscription message has 11 bytes; the limit is 10 (topic_bytes_max)";
    check(&frame(0, &[1; 11]), &frame(0, &[1; 12]), text);
}

#[test]
fn groups() {
    let text = "group of JOIN has 256 bytes; the limit is 255";
    let (radio, dish) = (SocketType::Radio, SocketType::Dish);
    check(radio, dish, &command("JOIN", &[7; 255]), &command("JOIN", &[7; 256]), text);
    let text = "group of a message has 256 bytes; the limit is 255";
    let fits = [frame(1, &[7; 255]), frame(0, b"x")].concat();
    check(dish, radio, &fits, &frame(1, &[7; 256]), text);
}

#[test]
fn metadata() {
    let settings = Settings::new(SocketType::Pull).with_limits(SMALL);
    let ready = |more: &[u8]| {
        let metadata = [&property("Socket-Type", b"PUSH")[..], more].concat();
        run_split(&settings, &[greeting("NULL", 1), command("READY", &metadata)].concat()).2
    };
    assert_eq!(ready(&property("X-A", &[0; 22])), None);
    let error = ready(&property("X-A", &[0; 23])).unwrap().to_string();
    assert_eq!(error, "zmtp: metadata of READY has 51 bytes; the limit is 50 (metadata_bytes_max)");
    assert_eq!(ready(&[property("A", b""), property("B", b"")].concat()), None);
    let error = ready(&[property("A", b""), property("B", b""), property("C", b"")].concat()).unwrap();
    let text = "metadata of READY has 4 properties or more; the limit is 3 (properties_max)";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Limit, text));
}

#[test]
fn lengths_are_refused_before_their_bytes_arrive() {
    for (header, kind) in [(2, "frame 1 of a message"), (6, "command")] {
        for len in [u64::MAX, i64::MAX as u64, 1 << 40] {
            let bytes = [&[header][..], &len.to_be_bytes()].concat();
            let (.., error) = traffic(SocketType::Pull, SocketType::Push, &bytes);
            let message = error.unwrap().to_string();
            assert!(message.starts_with(&format!("zmtp: {kind} has {len} bytes; the limit is")), "{message}");
        }
    }
}

#[test]
fn without_a_limit_the_address_space_is_one() {
    let limits = Limits { frame_bytes_max: u64::MAX, message_bytes_max: u64::MAX, ..SMALL };
    let settings = Settings::new(SocketType::Pull).with_limits(limits);
    let bytes = [&[2][..], &u64::MAX.to_be_bytes()].concat();
    let (.., error) = traffic_with(&settings, SocketType::Push, &bytes);
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Limit));
}
