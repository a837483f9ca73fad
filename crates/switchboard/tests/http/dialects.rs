//! gRPC, gRPC-Web and Connect, in protobuf and JSON, by `connectrpc`'s own client.

use crate::service::{start, text};
use buffa_types::google::protobuf::{__buffa::view::StringValueView, StringValue};
use connectrpc::{
    CodecFormat, ConnectError, ErrorCode, Protocol, Spec, StreamType,
    client::{
        CallOptions, ClientConfig, Http2Connection, SharedHttp2Connection, call_bidi_stream,
        call_client_stream, call_server_stream, call_unary, call_unary_get, stream_iter,
    },
};
use std::time::Duration;
use switchboard::{Code, Limit, Running};

const SAY: Spec = Spec::client("/test.v1.Echo/Say", StreamType::Unary);
const COUNT: Spec = Spec::client("/test.v1.Echo/Count", StreamType::ServerStream);
const JOIN: Spec = Spec::client("/test.v1.Echo/Join", StreamType::ClientStream);
const CHAT: Spec = Spec::client("/test.v1.Echo/Chat", StreamType::BidiStream);
const NOTE: Spec = Spec::client("/test.v1.Echo/Note", StreamType::Unary);

/// A client of one dialect and codec.
pub(crate) struct Caller {
    pub(crate) transport: SharedHttp2Connection,
    pub(crate) config: ClientConfig,
}

/// A client on a connection of its own.
pub(crate) async fn caller(running: &Running, protocol: Protocol, format: CodecFormat) -> Caller {
    let uri: http::Uri = running.url().replace("tcp://", "http://").parse().unwrap();
    let transport = Http2Connection::connect_plaintext(uri.clone()).await.unwrap().shared(64);
    Caller { transport, config: ClientConfig::new(uri).with_protocol(protocol).with_codec_format(format) }
}

/// Every dialect and codec on a server of its own.
async fn all(running: &Running) -> Vec<(&'static str, Caller)> {
    let mut callers = Vec::new();
    for (wire, protocol) in
        [("grpc", Protocol::Grpc), ("grpc-web", Protocol::GrpcWeb), ("connect", Protocol::Connect)]
    {
        for format in [CodecFormat::Proto, CodecFormat::Json] {
            callers.push((wire, caller(running, protocol, format).await));
        }
    }
    callers
}

impl Caller {
    pub(crate) async fn say(
        &self,
        input: &str,
        options: CallOptions,
    ) -> Result<(http::HeaderMap, String, http::HeaderMap), ConnectError> {
        let (head, body, trailers) = call_unary::<_, StringValue, StringValueView<'static>>(
            &self.transport,
            &self.config,
            SAY,
            text(input),
            options,
        )
        .await?
        .into_owned_parts();
        Ok((head, body.value, trailers))
    }

    /// Messages, trailers and error of a server stream.
    async fn count(
        &self,
        input: &str,
    ) -> (http::HeaderMap, Vec<String>, http::HeaderMap, Option<ConnectError>) {
        let options = CallOptions::default();
        let mut stream = match call_server_stream::<_, _, StringValueView<'static>>(
            &self.transport,
            &self.config,
            COUNT,
            text(input),
            options,
        )
        .await
        {
            Ok(stream) => stream,
            Err(error) => {
                return (error.response_headers().clone(), vec![], error.trailers().clone(), Some(error));
            }
        };
        let mut words = Vec::new();
        let failed = loop {
            match stream.message::<StringValue>().await {
                Ok(Some(word)) => words.push(word.to_owned_message().value),
                Ok(None) => break stream.error().cloned(),
                Err(error) => break Some(error),
            }
        };
        let trailers = stream.trailers().cloned().unwrap_or_default();
        let trailers = match &failed {
            Some(error) if trailers.is_empty() => error.trailers().clone(),
            _ => trailers,
        };
        (stream.headers().clone(), words, trailers, failed)
    }
}

#[tokio::test]
async fn unary_calls_carry_messages_and_metadata_both_ways() {
    let (_, running) = start(&[]).await;
    for (wire, caller) in all(&running).await {
        let options = CallOptions::default().with_header("x-tag", "a").with_header("x-tag-bin", "AP8=");
        let (head, reply, trailers) = caller.say("world", options).await.unwrap();
        assert_eq!(reply, "hello world", "{wire}");
        assert_eq!(head["x-tag"], "a", "{wire}");
        assert_eq!(head["x-tag-bin"], "AP8", "{wire}");
        assert_eq!(trailers["x-end"], "bye", "{wire}");
        assert_eq!(caller.say("who", CallOptions::default()).await.unwrap().1, wire);
        assert_eq!(caller.say("left", CallOptions::default()).await.unwrap().1, "none");
        let hurry = CallOptions::default().with_timeout(Duration::from_secs(60));
        assert_eq!(caller.say("left", hurry).await.unwrap().1, "some");
    }
    assert_eq!(running.stats().methods[0].ended[0], 6 * 4);
}

#[tokio::test]
async fn errors_carry_code_message_details_and_metadata() {
    let (_, running) = start(&[]).await;
    for (wire, caller) in all(&running).await {
        let error = caller.say("fail", CallOptions::default()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::NotFound, "{wire}");
        assert_eq!(error.message.as_deref(), Some("no such thing: \u{e9}%"), "{wire}");
        assert_eq!(error.details.len(), 1, "{wire}");
        assert!(error.details[0].type_url.ends_with("test.v1.Why"), "{wire}: {:?}", error.details);
        assert_eq!(error.details[0].value.as_deref(), Some("CAE"), "{wire}");
        // A Trailers-Only response has all in its head.
        let trailers = if wire == "grpc" { error.response_headers() } else { error.trailers() };
        assert_eq!(
            (&trailers["x-why"], &trailers["x-why-bin"]),
            (&"because".parse().unwrap(), &"AP8".parse().unwrap()),
            "{wire}"
        );
        assert_eq!(
            (&error.response_headers()["x-head"], &trailers["x-end"]),
            (&"first".parse().unwrap(), &"bye".parse().unwrap()),
            "{wire}: what the handler added before it failed"
        );
        let error = caller.say("panic", CallOptions::default()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Internal, "{wire}");
    }
    let ended = running.stats().methods[0].ended;
    assert_eq!((ended[0], ended[usize::from(Code::NotFound.number())]), (0, 6));
}

#[tokio::test]
async fn texts_of_handlers_stay_as_they_are() {
    let (_, running) = start(&[]).await;
    for (wire, caller) in all(&running).await {
        let unary = caller.say("resemble", CallOptions::default()).await.unwrap_err();
        let first = caller.count("resemble").await.3.expect("it fails");
        let late = caller.count("resemble late").await.3.expect("it fails");
        for (what, error) in [("unary", unary), ("first", first), ("late", late)] {
            assert_eq!(error.code, ErrorCode::ResourceExhausted, "{wire} {what}");
            let text = error.message.as_deref();
            assert_eq!(text, Some("message size 12 exceeds limit 10"), "{wire} {what}");
            assert_eq!(error.details.len(), 1, "{wire} {what}");
            assert!(!error.response_headers().contains_key("switchboard-own-text"), "{wire} {what}");
        }
    }
}

#[tokio::test]
async fn server_streams_end_with_trailers_or_an_error() {
    let (_, running) = start(&[]).await;
    for (wire, caller) in all(&running).await {
        let (head, words, trailers, failed) = caller.count("go").await;
        assert_eq!((words, failed.is_none()), (vec!["1".into(), "2".into(), "3".into()], true), "{wire}");
        assert_eq!(
            (&head["x-head"], &trailers["x-end"], &trailers["x-end-bin"]),
            (&"first".parse().unwrap(), &"bye".parse().unwrap(), &"AA".parse().unwrap()),
            "{wire}"
        );

        let (_, words, trailers, failed) = caller.count("fail").await;
        assert_eq!((words.len(), failed.map(|error| error.code)), (3, Some(ErrorCode::Aborted)), "{wire}");
        assert_eq!(trailers["x-end"], "bye", "{wire}");

        let (_, _, _, failed) = caller.count("panic").await;
        assert_eq!(failed.map(|error| error.code), Some(ErrorCode::Internal), "{wire}");

        let (head, words, trailers, failed) = caller.count("refuse").await;
        assert_eq!(
            (words.len(), failed.map(|error| error.code)),
            (0, Some(ErrorCode::PermissionDenied)),
            "{wire}"
        );
        assert_eq!(
            (&head["x-head"], &trailers["x-end"]),
            (&"first".parse().unwrap(), &"bye".parse().unwrap()),
            "{wire}"
        );

        let (head, words, trailers, _) = caller.count("late").await;
        assert_eq!((words.len(), &head["x-head"]), (3, &"first".parse().unwrap()), "{wire}");
        assert_eq!(trailers["x-late"], "yes", "{wire}: late metadata goes with the trailers");
    }
}

#[tokio::test]
async fn client_streams_and_bidi_streams_work() {
    let (_, running) = start(&[]).await;
    for (wire, caller) in all(&running).await {
        let words: Vec<_> = (0..1000).map(|number| text(format!("{number:0>99};"))).collect();
        let joined: String = words.iter().map(|word| word.value.as_str()).collect();
        let reply = call_client_stream::<_, StringValue, StringValueView<'static>>(
            &caller.transport,
            &caller.config,
            JOIN,
            stream_iter(words),
            CallOptions::default(),
        )
        .await
        .unwrap();
        assert_eq!(reply.into_owned().value, joined, "{wire}");

        let mut chat = call_bidi_stream::<_, StringValue, StringValueView<'static>>(
            &caller.transport,
            &caller.config,
            CHAT,
            CallOptions::default(),
        )
        .await
        .unwrap();
        for word in ["a", "b"] {
            chat.send(text(word)).await.unwrap();
            let reply = chat.message::<StringValue>().await.unwrap().unwrap();
            assert_eq!(reply.to_owned_message().value, format!("<{word}>"), "{wire}");
        }
        chat.close_send();
        assert!(chat.message::<StringValue>().await.unwrap().is_none(), "{wire}");
        assert_eq!(chat.trailers().unwrap()["x-end"], "bye", "{wire}");
    }
}

#[tokio::test]
async fn server_stops_the_handler_at_the_deadline() {
    let (echo, running) = start(&[]).await;
    let mut calls = 0;
    for (wire, caller) in all(&running).await {
        // The header alone, so that the client itself does not watch the clock.
        let name = if wire == "connect" { "connect-timeout-ms" } else { "grpc-timeout" };
        let value = if wire == "connect" { "20" } else { "20m" };
        let made = std::cell::Cell::new(0);
        echo.until_dropped(async |time| {
            let unit = if wire == "connect" { "" } else { "m" };
            let options = CallOptions::default().with_header(name, format!("{}{unit}", time.as_millis()));
            let error = caller.say("hang", options).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::DeadlineExceeded, "{wire}");
            made.set(made.get() + 1);
        })
        .await;
        calls += made.get();
        for input in ["hang", "hang after"] {
            let options = CallOptions::default().with_header(name, value);
            let mut stream = call_server_stream::<_, _, StringValueView<'static>>(
                &caller.transport,
                &caller.config,
                COUNT,
                text(input),
                options,
            )
            .await
            .unwrap();
            let failed = loop {
                match stream.message::<StringValue>().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break stream.error().cloned(),
                    Err(error) => break Some(error),
                }
            };
            assert_eq!(failed.map(|error| error.code), Some(ErrorCode::DeadlineExceeded), "{wire} {input}");
        }
    }
    let late = usize::from(Code::DeadlineExceeded.number());
    // One each; what was over before it was dispatched is not counted.
    assert!((6..=calls).contains(&running.stats().methods[0].ended[late]), "{calls}");
}

#[tokio::test]
async fn caller_that_goes_away_cancels_its_handler() {
    let (echo, running) = start(&[]).await;
    for (_, caller) in all(&running).await {
        let call = tokio::spawn(async move { caller.say("hang", CallOptions::default()).await });
        while running.stats().calls_in_flight == 0 {
            tokio::task::yield_now().await;
        }
        call.abort();
        echo.dropped.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn drain_lets_streams_end_and_kill_drops_their_handlers() {
    let (_, running) = start(&[]).await;
    let caller = caller(&running, Protocol::Grpc, CodecFormat::Proto).await;
    let mut chat = call_bidi_stream::<_, StringValue, StringValueView<'static>>(
        &caller.transport,
        &caller.config,
        CHAT,
        CallOptions::default(),
    )
    .await
    .unwrap();
    chat.send(text("a")).await.unwrap();
    assert!(chat.message::<StringValue>().await.unwrap().is_some());
    let drained = tokio::spawn(running.drain(Duration::from_secs(60)));
    chat.send(text("b")).await.unwrap();
    assert!(chat.message::<StringValue>().await.unwrap().is_some());
    chat.close_send();
    assert!(chat.message::<StringValue>().await.unwrap().is_none());
    assert_eq!(drained.await.unwrap().aborted, 0);

    let (echo, running) = start(&[]).await;
    let caller = self::caller(&running, Protocol::Grpc, CodecFormat::Proto).await;
    let call = tokio::spawn(async move { caller.say("hang", CallOptions::default()).await });
    while running.stats().calls_in_flight == 0 {
        tokio::task::yield_now().await;
    }
    running.kill();
    echo.dropped.acquire().await.unwrap().forget();
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn oneway_calls_are_answered_before_their_handler_ends() {
    let (echo, running) = start(&[]).await;
    for (_, caller) in all(&running).await {
        let format = caller.config.codec_format();
        let answer = call_unary::<_, StringValue, StringValueView<'static>>(
            &caller.transport,
            &caller.config,
            NOTE,
            text("x"),
            CallOptions::default(),
        )
        .await;
        assert!(answer.is_ok() || format == CodecFormat::Json, "{answer:?}");
        assert_eq!(echo.noted.available_permits(), 0);
        echo.gate.add_permits(1);
        echo.noted.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn unknown_methods_and_large_messages_are_refused() {
    let (_, running) = start(&[(Limit::MessageBytesMax, 1000)]).await;
    for (wire, caller) in all(&running).await {
        for (path, expected) in [
            ("/test.v1.Echo/Nope", "test.v1.Echo has Say, Count, Join"),
            ("/test.v1.Nope/Say", "unknown service test.v1.Nope"),
        ] {
            let spec = Spec::client(path, StreamType::Unary);
            let error = call_unary::<_, StringValue, StringValueView<'static>>(
                &caller.transport,
                &caller.config,
                spec,
                text("x"),
                CallOptions::default(),
            )
            .await
            .unwrap_err();
            assert_eq!(error.code, ErrorCode::Unimplemented, "{wire} {path}");
            assert!(error.message.as_deref().unwrap().contains(expected), "{wire}: {error}");
        }
        let large = "x".repeat(1001);
        let error = caller.say(&large, CallOptions::default()).await.unwrap_err();
        assert_too_large(wire, &error);
        let (_, _, _, error) = caller.count(&large).await;
        assert_too_large(wire, &error.unwrap());
        let error = call_client_stream::<_, StringValue, StringValueView<'static>>(
            &caller.transport,
            &caller.config,
            JOIN,
            stream_iter(vec![text("small"), text(&*large)]),
            CallOptions::default(),
        )
        .await
        .unwrap_err();
        assert_too_large(wire, &error);
        let config = caller.config.clone().compress_requests("gzip");
        let options = CallOptions::default();
        let bomb = text("x".repeat(100_000));
        let error = call_unary::<_, StringValue, StringValueView<'static>>(
            &caller.transport,
            &config,
            SAY,
            bomb,
            options,
        )
        .await
        .unwrap_err();
        assert_too_large(wire, &error);
        let just = "x".repeat(if caller.config.codec_format() == CodecFormat::Json { 998 } else { 997 });
        assert!(caller.say(&just, CallOptions::default()).await.is_ok(), "{wire}");
    }
}

fn assert_too_large(wire: &str, error: &ConnectError) {
    assert_eq!(error.code, ErrorCode::ResourceExhausted, "{wire}: {error}");
    let text = error.message.as_deref().unwrap();
    assert!(
        text.ends_with("over the limit of 1000 bytes (message_bytes_max of the receiver)"),
        "{wire}: {text}"
    );
}

#[tokio::test]
async fn timeouts_that_cannot_be_read_and_unknown_compressions_are_refused() {
    let (_, running) = start(&[]).await;
    for (wire, caller) in all(&running).await {
        let is_connect = wire == "connect";
        let name = if is_connect { "connect-timeout-ms" } else { "grpc-timeout" };
        let code = if is_connect { ErrorCode::InvalidArgument } else { ErrorCode::Internal };
        for value in ["soon", "12345678901", "1x", "-1S"] {
            let options = CallOptions::default().with_header(name, value);
            let error = caller.say("you", options).await.unwrap_err();
            assert_eq!(error.code, code, "{wire} {value}");
            assert!(error.message.as_deref().unwrap().contains("malformed"), "{wire}: {error}");
        }
        let name = if is_connect { "content-encoding" } else { "grpc-encoding" };
        // The native wire has the last two.
        for unknown in ["lzma", "lz4", "snappy"] {
            let options = CallOptions::default().with_header(name, unknown);
            let error = caller.say("you", options).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::Unimplemented, "{wire}");
            let text = error.message.as_deref().unwrap();
            assert!(text.contains(unknown) && text.contains("gzip"), "{wire}: {text}");
        }
    }
}

#[tokio::test]
async fn reads_are_answered_to_get_and_compressed_requests_are_read() {
    let (_, running) = start(&[]).await;
    for format in [CodecFormat::Proto, CodecFormat::Json] {
        let caller = caller(&running, Protocol::Connect, format).await;
        let reply = call_unary_get::<_, StringValue, StringValueView<'static>>(
            &caller.transport,
            &caller.config,
            SAY.with_idempotency_level(connectrpc::IdempotencyLevel::NoSideEffects),
            text("you"),
            CallOptions::default(),
        )
        .await
        .unwrap();
        assert_eq!(reply.into_owned().value, "hello you");
    }
    for encoding in ["gzip", "zstd"] {
        for (wire, mut caller) in all(&running).await {
            caller.config = caller.config.compress_requests(encoding);
            let large = "x".repeat(100_000);
            let reply = caller.say(&large, CallOptions::default()).await.unwrap().1;
            assert_eq!(reply.len(), large.len() + 6, "{wire} {encoding}");
        }
    }
}
