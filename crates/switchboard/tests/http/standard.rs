//! Health and reflection, which every server brings.

use crate::{
    dialects::caller,
    rest::{as_json, send, with_body},
    service::{start, text},
};
use buffa_types::google::protobuf::{__buffa::view::Int32ValueView, Int32Value, StringValue};
use bytes::Bytes;
use connectrpc::{
    CodecFormat, ErrorCode, HasMessageView, Protocol, Spec, StreamType,
    client::{CallOptions, call_bidi_stream, call_server_stream, call_unary},
};
use connectrpc_reflection::wire::v1::{
    ExtensionRequest, ServerReflectionRequest, ServerReflectionResponse,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use serde_json::json;
use std::time::Duration;
use switchboard::{Channel, ClientMethod, Codec, Idempotency, Kind};

const CHECK: Spec = Spec::client("/grpc.health.v1.Health/Check", StreamType::Unary);

#[tokio::test]
async fn health_knows_the_server_and_each_service() {
    let (_, running) = start(&[]).await;
    let caller = caller(&running, Protocol::Grpc, CodecFormat::Proto).await;
    // The messages have the bytes of these wrappers; 1 is SERVING.
    let check = async |name: &str| {
        let options = CallOptions::default();
        call_unary::<_, StringValue, Int32ValueView<'static>>(
            &caller.transport,
            &caller.config,
            CHECK,
            text(name),
            options,
        )
        .await
        .map(|reply| reply.into_owned().value)
    };
    assert_eq!(check("").await.unwrap(), 1);
    assert_eq!(check("test.v1.Echo").await.unwrap(), 1);
    assert_eq!(check("test.v1.Nope").await.unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn health_lists_all_services() {
    const LIST: &str = "grpc.health.v1.Health/List";
    let (_, running) = start(&[]).await;
    for wire in ["grpc", "grpc-web", "connect"] {
        let channel = Channel::connect(&format!("{}?wire={wire}", running.url())).await.unwrap();
        let method = ClientMethod::intern(LIST, Kind::Unary, Idempotency::Unknown).unwrap();
        let listed = channel.unary(method, Codec::Proto, Ok(Bytes::new()), |_, bytes| Ok(bytes.to_vec()));
        // Entries of the map: 1 is the name, 2 the response, whose 1 is SERVING.
        let entry = |name: &str| {
            let status = b"\x12\x02\x08\x01";
            let entry = [&[10, name.len() as u8], name.as_bytes(), status].concat();
            [&[10, entry.len() as u8], &entry[..]].concat()
        };
        assert_eq!(*listed.await.unwrap(), [entry(""), entry("test.v1.Echo")].concat(), "{wire}");
    }
    let answered = send(&running, &with_body("POST", &format!("/{LIST}"), "{}")).await;
    let serving = json!({"status": "SERVING"});
    assert_eq!(as_json(&answered.1), json!({"statuses": {"": serving, "test.v1.Echo": serving}}));
}

#[tokio::test]
async fn reflection_lists_services_and_gives_their_files() {
    let (_, running) = start(&[]).await;
    let caller = caller(&running, Protocol::Grpc, CodecFormat::Proto).await;
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo").leak();
        let mut stream = call_bidi_stream::<
            _,
            ServerReflectionRequest,
            <ServerReflectionResponse as HasMessageView>::View<'static>,
        >(
            &caller.transport,
            &caller.config,
            Spec::client(path, StreamType::BidiStream),
            CallOptions::default(),
        )
        .await
        .unwrap();
        let mut ask = async |request| {
            let request = ServerReflectionRequest { message_request: Some(request), ..Default::default() };
            stream.send(request).await.unwrap();
            let reply = stream.message::<ServerReflectionResponse>().await.unwrap().unwrap();
            reply.to_owned_message().message_response.unwrap()
        };
        let MessageResponse::ListServicesResponse(list) =
            ask(MessageRequest::ListServices(String::new())).await
        else {
            panic!("no list of services");
        };
        let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
                "test.v1.Echo"
            ]
        );
        // Tools query every listed name, and some stop at the first that has no file.
        for name in names.iter().copied().chain(["grpc.health.v1.Health.List", "grpc.health.v1.Health.Watch"])
        {
            let answer = ask(MessageRequest::FileContainingSymbol(name.to_owned())).await;
            assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{name}: {answer:?}");
        }
        let symbol = MessageRequest::FileContainingSymbol("test.v1.Echo.Chat".into());
        let MessageResponse::FileDescriptorResponse(files) = ask(symbol).await else {
            panic!("no file of the service");
        };
        assert_eq!(files.file_descriptor_proto.len(), 1);
        // An unknown name does not end the stream.
        for request in [
            MessageRequest::FileContainingSymbol("test.v1.Nope".into()),
            MessageRequest::FileByFilename("nope.proto".into()),
        ] {
            let answer = ask(request).await;
            assert!(
                matches!(&answer, MessageResponse::ErrorResponse(error) if error.error_code == 5),
                "{answer:?}"
            );
        }
        let again = ask(MessageRequest::ListServices(String::new())).await;
        assert!(matches!(again, MessageResponse::ListServicesResponse(_)), "{again:?}");
    }
}

#[tokio::test]
async fn reflection_answers_every_kind_of_question() {
    let (_, running) = start(&[]).await;
    let caller = caller(&running, Protocol::Grpc, CodecFormat::Proto).await;
    let mut stream = call_bidi_stream::<
        _,
        ServerReflectionRequest,
        <ServerReflectionResponse as HasMessageView>::View<'static>,
    >(
        &caller.transport,
        &caller.config,
        Spec::client("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", StreamType::BidiStream),
        CallOptions::default(),
    )
    .await
    .unwrap();
    let mut ask = async |request: MessageRequest| {
        let request = ServerReflectionRequest {
            host: "h".into(),
            message_request: Some(request),
            ..Default::default()
        };
        stream.send(request.clone()).await.unwrap();
        let reply = stream.message::<ServerReflectionResponse>().await.unwrap().unwrap().to_owned_message();
        // Tools match responses to requests by the echoed fields.
        assert_eq!(reply.valid_host, "h");
        assert_eq!(reply.original_request.as_option(), Some(&request));
        reply.message_response.unwrap()
    };
    let file = |answer: &MessageResponse| match answer {
        MessageResponse::FileDescriptorResponse(files) => files.file_descriptor_proto.len(),
        other => panic!("no file: {other:?}"),
    };
    for symbol in ["test.v1.Echo", "test.v1.Text", "test.v1.Echo.Say"] {
        assert_eq!(file(&ask(MessageRequest::FileContainingSymbol(symbol.into())).await), 1, "{symbol}");
    }
    assert_eq!(file(&ask(MessageRequest::FileByFilename("test/v1/echo.proto".into())).await), 1);
    let numbers = ask(MessageRequest::AllExtensionNumbersOfType("test.v1.Text".into())).await;
    let MessageResponse::AllExtensionNumbersResponse(numbers) = &numbers else { panic!("{numbers:?}") };
    assert_eq!((numbers.base_type_name.as_str(), numbers.extension_number.len()), ("test.v1.Text", 0));
    let extension = ExtensionRequest {
        containing_type: "test.v1.Text".into(),
        extension_number: 5,
        ..Default::default()
    };
    for unknown in [
        MessageRequest::AllExtensionNumbersOfType("test.v1.Nope".into()),
        MessageRequest::FileContainingExtension(Box::new(extension)),
    ] {
        let answer = ask(unknown).await;
        assert!(
            matches!(&answer, MessageResponse::ErrorResponse(error) if error.error_code == 5),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn watchers_of_an_unknown_service_get_its_status_and_stay() {
    const WATCH: Spec = Spec::client("/grpc.health.v1.Health/Watch", StreamType::ServerStream);
    const SERVICE_UNKNOWN: i32 = 3;
    let (_, running) = start(&[]).await;
    for protocol in [Protocol::Grpc, Protocol::GrpcWeb, Protocol::Connect] {
        let caller = caller(&running, protocol, CodecFormat::Proto).await;
        let mut unknown = call_server_stream::<_, _, Int32ValueView<'static>>(
            &caller.transport,
            &caller.config,
            WATCH,
            text("test.v1.Nope"),
            CallOptions::default(),
        )
        .await
        .unwrap();
        let first = unknown.message::<Int32Value>().await.unwrap().unwrap();
        assert_eq!(first.to_owned_message().value, SERVICE_UNKNOWN);
        // Nothing more comes, and it does not end: not before the answer to a later question is here.
        let mut next = Box::pin(unknown.message::<Int32Value>());
        assert!(crate::client_faults::is_pending(&mut next).await);
        let check = call_unary::<_, StringValue, Int32ValueView<'static>>(
            &caller.transport,
            &caller.config,
            CHECK,
            text(""),
            CallOptions::default(),
        )
        .await;
        assert_eq!(check.unwrap().into_owned().value, 1);
        assert!(crate::client_faults::is_pending(&mut next).await);
    }
}

#[tokio::test]
async fn watchers_of_health_are_notified_of_the_drain() {
    const WATCH: Spec = Spec::client("/grpc.health.v1.Health/Watch", StreamType::ServerStream);
    const SERVING: i32 = 1;
    const NOT_SERVING: i32 = 2;
    let (_, running) = start(&[]).await;
    let caller = caller(&running, Protocol::Grpc, CodecFormat::Proto).await;
    let mut known = call_server_stream::<_, _, Int32ValueView<'static>>(
        &caller.transport,
        &caller.config,
        WATCH,
        text("test.v1.Echo"),
        CallOptions::default(),
    )
    .await
    .unwrap();
    let first = known.message::<Int32Value>().await.unwrap().unwrap();
    assert_eq!(first.to_owned_message().value, SERVING);
    let drained = tokio::spawn(running.drain(Duration::from_secs(60)));
    let next = known.message::<Int32Value>().await.unwrap().unwrap();
    assert_eq!(next.to_owned_message().value, NOT_SERVING);
    drop(known);
    drained.await.unwrap();
}
