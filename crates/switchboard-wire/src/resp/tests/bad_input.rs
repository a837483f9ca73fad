use super::*;

/// Checks that the bytes have this error, as a reply too, and that the connection is closed.
fn check(settings: &Settings, bytes: &[u8], kind: ErrorKind, text: &str) {
    let (events, output, error) = run_split(settings, bytes);
    assert_eq!(events, [], "{}", bytes.escape_ascii());
    let error = error.unwrap_or_else(|| panic!("no error for {}", bytes.escape_ascii()));
    assert_eq!((error.kind(), error.message()), (kind, text), "{}", bytes.escape_ascii());
    assert_eq!(output, format!("-ERR Protocol error: {text}\r\n"));
    assert_eq!(error.to_string(), format!("resp: {text}"));
}

#[test]
fn bad_requests_close_the_connection() {
    let table: &[(&[u8], ErrorKind, &str)] = &[
        (b"*-1\r\n", ErrorKind::Command, "invalid multibulk length \"-1\""),
        (b"*x\r\n", ErrorKind::Command, "invalid multibulk length \"x\""),
        (b"*\r\n", ErrorKind::Command, "invalid multibulk length \"\""),
        (b"*01\r\n", ErrorKind::Command, "invalid multibulk length \"01\""),
        (b"*+1\r\n", ErrorKind::Command, "invalid multibulk length \"+1\""),
        (b"*1\n", ErrorKind::Command, "multibulk length does not end with CRLF"),
        (b"*1\rx", ErrorKind::Command, "multibulk length does not end with CRLF"),
        (
            b"*1025\r\n",
            ErrorKind::Limit,
            "invalid multibulk length: request has 1025 arguments; the limit is 1024 (arguments_max)",
        ),
        (
            b"*9223372036854775807\r\n",
            ErrorKind::Limit,
            "invalid multibulk length: request has 9223372036854775807 arguments; the limit is 1024 (arguments_max)",
        ),
        (b"*9223372036854775808\r\n", ErrorKind::Command, "invalid multibulk length \"9223372036854775808\""),
        (
            b"*111111111111111111111111111\r\n",
            ErrorKind::Command,
            "invalid multibulk length \"11111111111111111111\"",
        ),
        (b"*1\r\n:1\r\n", ErrorKind::Command, "expected '$', got ':'"),
        (b"*1\r\n\r\n", ErrorKind::Command, "expected '$', got '\\r'"),
        (b"*1\r\n*1\r\n", ErrorKind::Command, "expected '$', got '*'"),
        (b"*1\r\n$-1\r\n", ErrorKind::Command, "invalid bulk length \"-1\""),
        (b"*1\r\n$\r\n", ErrorKind::Command, "invalid bulk length \"\""),
        (b"*1\r\n$4\n", ErrorKind::Command, "bulk length does not end with CRLF"),
        (b"*1\r\n$3\r\nPING\r\n", ErrorKind::Command, "argument 1 does not end after 3 bytes, its length"),
        (b"*1\r\n$5\r\nPING\r\n*", ErrorKind::Command, "argument 1 does not end after 5 bytes, its length"),
        (
            b"*2\r\n$4\r\nPING\r\n$0\r\nx\r\n",
            ErrorKind::Command,
            "argument 2 does not end after 0 bytes, its length",
        ),
        (
            b"*1\r\n$16777217\r\n",
            ErrorKind::Limit,
            "invalid bulk length: argument 1 has 16777217 bytes; the limit is 16777216 (bulk_bytes_max)",
        ),
        (
            b"*1\r\n$9223372036854775807\r\n",
            ErrorKind::Limit,
            "invalid bulk length: argument 1 has 9223372036854775807 bytes; the limit is 16777216 (bulk_bytes_max)",
        ),
        (b"PING\r\n", ErrorKind::Inline, "expected '*', got 'P'; inline commands are disabled"),
        (b"\rPING\r\n", ErrorKind::Inline, "expected '*', got '\\r'; inline commands are disabled"),
        (b"GET / HTTP/1.1\r\n", ErrorKind::Inline, "expected '*', got 'G'; inline commands are disabled"),
        (b"POST / HTTP/1.1\r\n", ErrorKind::Inline, "expected '*', got 'P'; inline commands are disabled"),
        (b"\x16\x03\x01", ErrorKind::Inline, "expected '*', got '\\x16'; inline commands are disabled"),
        (b"*3\r\n$4\r\nPOST\r\n", ErrorKind::Http, "\"POST\" is of HTTP; this is the protocol of Redis"),
        (
            b"*2\r\n$5\r\nhost:\r\n$1\r\nx\r\n",
            ErrorKind::Http,
            "\"host:\" is of HTTP; this is the protocol of Redis",
        ),
    ];
    for (bytes, kind, text) in table {
        check(&Settings::new(), bytes, *kind, text);
    }
}

#[test]
fn bad_inline_commands_close_the_connection() {
    let settings = Settings::new().with_inline(true);
    let post = "\"POST\" is of HTTP; this is the protocol of Redis";
    check(&settings, b"POST /x HTTP/1.1\r\nHost: a\r\n\r\n", ErrorKind::Http, post);
    let host = "\"Host:\" is of HTTP; this is the protocol of Redis";
    check(&settings, b"Host: a\r\n", ErrorKind::Http, host);
    check(&settings, b"PING \"a\r\n", ErrorKind::Command, "unbalanced quotes in request");
    let (events, output, error) = run_split(&settings, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPING\r\n");
    assert_eq!(events, [Event::Responded { command: "unknown" }]);
    assert!(
        output
            .starts_with("-ERR unknown command 'GET', with args beginning with: '/' 'HTTP/1.1' \r\n-ERR Pro")
    );
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Http));
}

#[test]
fn requests_before_a_bad_one_have_their_replies() {
    let (events, output, error) =
        run_split(&Settings::new(), b"*1\r\n$4\r\nPING\r\n*1\r\n$x\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(events, [Event::Responded { command: "ping" }]);
    assert_eq!(output, "+PONG\r\n-ERR Protocol error: invalid bulk length \"x\"\r\n");
    assert!(error.is_some());
}

#[test]
fn empty_requests_are_ignored() {
    let (events, output, error) = run_split(&Settings::new(), b"*0\r\n\r\n\n*0\r\n*1\r\n$4\r\nping\r\n\r\n");
    assert_eq!((events.len(), &*output, error), (1, "+PONG\r\n", None));
    let settings = Settings::new().with_inline(true);
    let (events, output, error) = run_split(&settings, b"\r\n  \r\nPING 'a b'\n*1\r\n$4\r\nping\r\n");
    assert_eq!((events.len(), &*output, error), (2, "$3\r\na b\r\n+PONG\r\n", None));
}

#[test]
fn an_incomplete_request_waits_for_the_rest() {
    let bytes = requests(&["PUBLISH news hello"]);
    for end in 0..bytes.len() {
        assert_eq!(run(&Settings::new(), &bytes[..end], 1), (Vec::new(), String::new(), None));
    }
}
