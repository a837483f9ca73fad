//! Every limit: its largest value passes, and one more has an error with the name of the limit.

use super::*;

const SMALL: Limits = Limits {
    arguments_max: 8,
    bulk_bytes_max: 20,
    channel_bytes_max: 5,
    client_name_bytes_max: 4,
    config_patterns_max: 2,
    inline_bytes_max: 30,
    metadata_entries_max: 2,
    pattern_bytes_max: 6,
    request_bytes_max: 80,
    subscriptions_max: 3,
    unauthenticated_arguments_max: 4,
    unauthenticated_bulk_bytes_max: 10,
};

/// Checks that `fits` has no error of the protocol, and that `exceeds` has one with this text.
fn check(settings: &Settings, fits: &[u8], exceeds: &[u8], text: &str) {
    assert_eq!(run_split(settings, fits).2, None);
    let error = run_split(settings, exceeds).2.expect(text);
    assert_eq!((error.kind(), error.message()), (ErrorKind::Limit, text));
}

#[test]
fn requests_have_limits() {
    let settings = Settings::new().with_limits(SMALL);
    let text = "invalid multibulk length: request has 9 arguments; the limit is 8 (arguments_max)";
    check(&settings, &requests(&["x a b c d e f g"]), b"*9\r\n", text);
    let text = "invalid bulk length: argument 2 has 21 bytes; the limit is 20 (bulk_bytes_max)";
    check(&settings, &request(&["echo", &"x".repeat(20)]), b"*2\r\n$4\r\necho\r\n$21\r\n", text);
    let long = "x".repeat(20);
    let fits = request(&["x", &long, &long, "12345"]);
    assert_eq!(fits.len(), 76);
    let exceeds = request(&["x", &long, &long, "1234567890"]);
    let text =
        "invalid bulk length: request up to its argument 4 has 82 bytes; the limit is 80 (request_bytes_max)";
    check(&settings, &fits, &exceeds, text);
}

#[test]
fn inline_commands_have_limits() {
    let settings = Settings::new().with_limits(SMALL).with_inline(true);
    let line = |len: usize| [&vec![b'x'; len][..], b"\r\n"].concat();
    let text = "inline command has more than 30 bytes (inline_bytes_max)";
    check(&settings, &line(29), &line(30), text);
    let text = "request has 9 arguments or more; the limit is 8 (arguments_max)";
    check(&settings, b"x a b c d e f g\r\n", b"x a b c d e f g h\r\n", text);
}

#[test]
fn clients_that_are_not_authenticated_have_lower_limits() {
    let settings = Settings::new().with_limits(SMALL).with_auth(true);
    let text =
        "invalid multibulk length: request has 5 arguments; the limit is 4 (unauthenticated_arguments_max)";
    check(&settings, &requests(&["x a b c"]), b"*5\r\n", text);
    let text =
        "invalid bulk length: argument 1 has 11 bytes; the limit is 10 (unauthenticated_bulk_bytes_max)";
    check(&settings, &requests(&["1234567890"]), b"*1\r\n$11\r\n", text);
    assert_eq!(run_split(&settings, &requests(&["AUTH secret", "x a b c d e f g"])).2, None);
}

#[test]
fn names_and_subscriptions_have_limits() {
    let settings = Settings::new().with_limits(SMALL);
    for (fits, exceeds, text) in [
        (
            "SUBSCRIBE 12345",
            "SUBSCRIBE a 123456",
            "channel name has 6 bytes; the limit is 5 (channel_bytes_max)",
        ),
        (
            "PSUBSCRIBE 123456",
            "PSUBSCRIBE 1234567",
            "pattern name has 7 bytes; the limit is 6 (pattern_bytes_max)",
        ),
        (
            "PUBLISH 12345 x",
            "PUBLISH 123456 x",
            "channel name has 6 bytes; the limit is 5 (channel_bytes_max)",
        ),
        (
            "PUBSUB CHANNELS 123456",
            "PUBSUB CHANNELS 1234567",
            "pattern name has 7 bytes; the limit is 6 (pattern_bytes_max)",
        ),
        (
            "CLIENT SETNAME 1234",
            "CLIENT SETNAME 12345",
            "client name has 5 bytes; the limit is 4 (client_name_bytes_max)",
        ),
    ] {
        assert!(!output(&settings, &[fits]).starts_with('-'), "{fits}");
        assert_eq!(output(&settings, &[exceeds]), format!("-ERR {text}\r\n"));
    }
    let text = "connection has 3 subscriptions, the limit (subscriptions_max)";
    let output =
        output(&settings, &["SUBSCRIBE a b", "PSUBSCRIBE a", "SUBSCRIBE a", "SSUBSCRIBE c d", "PING"]);
    let after = output.split_once(&format!("-ERR {text}\r\n")).expect(text).1;
    assert_eq!(after, "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
}

#[test]
fn patterns_of_config_have_limits() {
    let settings = Settings::new().with_limits(SMALL);
    assert_eq!(output(&settings, &["CONFIG GET b 123456"]), "*0\r\n");
    let text = "CONFIG GET has 3 patterns; the limit is 2 (config_patterns_max)";
    assert_eq!(output(&settings, &["CONFIG GET a b c"]), format!("-ERR {text}\r\n"));
    let text = "pattern name has 7 bytes; the limit is 6 (pattern_bytes_max)";
    assert_eq!(output(&settings, &["CONFIG GET a 1234567"]), format!("-ERR {text}\r\n"));
}

#[test]
fn metadata_has_limits() {
    let settings = Settings::new().with_limits(Limits { request_bytes_max: 200, ..SMALL });
    assert_eq!(output(&settings, &["CALL m {} a 1 b 2"]), "$2\r\n{}\r\n");
    let settings = Settings::new().with_limits(Limits { metadata_entries_max: 2, ..Limits::default() });
    let text = "metadata has 3 entries; the limit is 2 (metadata_entries_max)";
    assert_eq!(output(&settings, &["CALL m {} a 1 b 2 c 3"]), format!("-INVALID_ARGUMENT {text}\r\n"));
}

#[test]
fn replies_have_limits() {
    let limits = ReplyLimits {
        bulk_bytes_max: 10,
        commands_max: 2,
        depth_max: 2,
        elements_max: 5,
        line_bytes_max: 8,
        reply_bytes_max: 40,
    };
    for (fits, exceeds, text) in [
        (
            &b"$10\r\n0123456789\r\n"[..],
            &b"$11\r\n"[..],
            "bulk string has 11 bytes; the limit is 10 (bulk_bytes_max)",
        ),
        (b"+12345678\r\n", b"+123456789", "simple string has more than 8 bytes (line_bytes_max)"),
        (b"*1\r\n*1\r\n:1\r\n", b"*1\r\n*1\r\n*0\r\n", "reply is nested deeper than 2 (depth_max)"),
        (
            b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
            b"*5\r\n",
            "reply has 6 values or more; the limit is 5 (elements_max)",
        ),
        (
            b"*2\r\n*2\r\n:1\r\n:1\r\n:1\r\n",
            b"*2\r\n*3\r\n",
            "reply has 6 values or more; the limit is 5 (elements_max)",
        ),
        (
            b"%2\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
            b"%9223372036854775807\r\n",
            "reply has 18446744073709551615 values or more; the limit is 5 (elements_max)",
        ),
        (
            b"*3\r\n$10\r\n0123456789\r\n$5\r\n01234\r\n",
            b"*3\r\n$10\r\n0123456789\r\n$10\r\n0123456789\r\n$0\r\n",
            "reply has more than 40 bytes (reply_bytes_max)",
        ),
    ] {
        let read = |bytes: &[u8], step: usize| {
            let mut client = Client::new(limits);
            client.command([Outgoing::Lent(b"x")], &mut Outbox::new()).unwrap();
            let mut input = Input::default();
            let results = bytes.chunks(step).map(|piece| {
                input.extend(piece);
                client.recv(&mut input).map(drop)
            });
            results.collect::<Result<(), _>>()
        };
        for step in [1, 2, 100] {
            assert_eq!(read(fits, step), Ok(()));
            let error = read(exceeds, step).expect_err(text);
            assert_eq!((error.kind(), error.message()), (ErrorKind::Limit, text));
        }
    }
    let mut client = Client::new(limits);
    let mut command = || client.command([Outgoing::Lent(b"PING")], &mut Outbox::new());
    assert_eq!([command(), command(), command()], [Ok(()), Ok(()), Err(crate::resp::NotSent::Full)]);
}
