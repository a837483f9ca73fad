//! The interop cases of gRPC that need neither TLS nor credentials, as its specification describes them.

use buffa::{Message, MessageField};
use conformance::proto::grpc::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, StreamingInputCallRequest,
    StreamingOutputCallRequest, StreamingOutputCallResponse, TestServiceClient,
};
use std::{pin::Pin, time::Duration};
use switchboard::{
    Channel, ClientMethod, Code, Codec, Kind, MethodInfo, Result, ServiceInfo, Status,
    codec::proto::{decode, encode},
    codegen::Bytes,
};

type Check = for<'a> fn(&'a TestServiceClient) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Every case: its name in the specification, and the calls that it makes.
pub const ALL: [(&str, Check); 14] = [
    ("cancel_after_begin", |client| Box::pin(cancel_after_begin(client))),
    ("cancel_after_first_response", |client| Box::pin(cancel_after_first_response(client))),
    ("client_streaming", |client| Box::pin(client_streaming(client))),
    ("custom_metadata", |client| Box::pin(custom_metadata(client))),
    ("empty_stream", |client| Box::pin(empty_stream(client))),
    ("empty_unary", |client| Box::pin(empty_unary(client))),
    ("large_unary", |client| Box::pin(large_unary(client))),
    ("ping_pong", |client| Box::pin(ping_pong(client))),
    ("server_streaming", |client| Box::pin(server_streaming(client))),
    ("special_status_message", |client| Box::pin(special_status_message(client))),
    ("status_code_and_message", |client| Box::pin(status_code_and_message(client))),
    ("timeout_on_sleeping_server", |client| Box::pin(timeout_on_sleeping_server(client))),
    ("unimplemented_method", |client| Box::pin(unimplemented(client, &UNIMPLEMENTED_METHOD))),
    ("unimplemented_service", |client| Box::pin(unimplemented(client, &UNIMPLEMENTED_SERVICE))),
];

const LARGE_REQUEST: usize = 271_828;
const LARGE_REPLY: usize = 314_159;
const REQUESTS: [usize; 4] = [27_182, 8, 1_828, 45_904];
const REPLIES: [usize; 4] = [31_415, 9, 2_653, 58_979];

static METHODS: &[MethodInfo] = &[MethodInfo::new("UnimplementedCall", Kind::Unary)];
static SERVICE: ServiceInfo =
    ServiceInfo { name: "grpc.testing.TestService", methods: METHODS, descriptor: &[] };
static UNIMPLEMENTED_METHOD: ClientMethod =
    ClientMethod { service: &SERVICE, index: 0, path: "grpc.testing.TestService/UnimplementedCall" };
static UNIMPLEMENTED_SERVICE: ClientMethod =
    ClientMethod { service: &SERVICE, index: 0, path: "grpc.testing.UnimplementedService/UnimplementedCall" };

async fn empty_unary(client: &TestServiceClient) -> Result<()> {
    let reply = client.empty_call(Empty::default()).await?;
    check(reply.encode_to_vec().is_empty(), "the reply is not empty")
}

async fn large_unary(client: &TestServiceClient) -> Result<()> {
    let reply = client.unary_call(large()).await?;
    check(reply.payload.body.len() == LARGE_REPLY, "the reply has another size")
}

async fn client_streaming(client: &TestServiceClient) -> Result<()> {
    let upload = client.streaming_input_call().await?;
    for size in REQUESTS {
        upload
            .send(StreamingInputCallRequest {
                payload: MessageField::some(payload(size)),
                ..Default::default()
            })
            .await?;
    }
    let reply = upload.finish().await?;
    check(reply.aggregated_payload_size == 74_922, "the sizes were not added up")
}

async fn server_streaming(client: &TestServiceClient) -> Result<()> {
    let parameters = REPLIES.map(parameters);
    let request =
        StreamingOutputCallRequest { response_parameters: parameters.to_vec(), ..Default::default() };
    let mut replies = client.streaming_output_call(request).await?;
    for size in REPLIES {
        expect(replies.next().await?, size)?;
    }
    check(replies.next().await?.is_none(), "there are more replies than were requested")
}

async fn ping_pong(client: &TestServiceClient) -> Result<()> {
    let (sender, mut replies) = client.full_duplex_call().await?;
    for (request, reply) in REQUESTS.into_iter().zip(REPLIES) {
        sender.send(ping(request, reply)).await?;
        expect(replies.next().await?, reply)?;
    }
    sender.finish();
    check(replies.next().await?.is_none(), "there are more replies than requests")
}

async fn empty_stream(client: &TestServiceClient) -> Result<()> {
    let (sender, mut replies) = client.full_duplex_call().await?;
    sender.finish();
    check(replies.next().await?.is_none(), "there is a reply to no request")
}

async fn timeout_on_sleeping_server(client: &TestServiceClient) -> Result<()> {
    let call = client.full_duplex_call().timeout(Duration::from_millis(1)).await;
    let outcome = match call {
        Err(status) => Err(status),
        Ok((sender, mut replies)) => {
            // It may have failed by now; the replies have the reason.
            let _ = sender.send(ping(REQUESTS[0], REPLIES[0])).await;
            // The request does not end on the server by itself.
            let mut outcome = replies.next().await;
            while matches!(outcome, Ok(Some(_))) {
                outcome = replies.next().await;
            }
            outcome.map(drop)
        }
    };
    refused(outcome, Code::DeadlineExceeded, None)
}

async fn cancel_after_begin(client: &TestServiceClient) -> Result<()> {
    drop(client.streaming_input_call().await?);
    // The connection is as good as before.
    empty_unary(client).await
}

async fn cancel_after_first_response(client: &TestServiceClient) -> Result<()> {
    let (sender, mut replies) = client.full_duplex_call().await?;
    sender.send(ping(REQUESTS[0], REPLIES[0])).await?;
    expect(replies.next().await?, REPLIES[0])?;
    drop((sender, replies));
    empty_unary(client).await
}

async fn status_code_and_message(client: &TestServiceClient) -> Result<()> {
    let text = "test status message";
    let request = SimpleRequest { response_status: MessageField::some(status(text)), ..Default::default() };
    refused(client.unary_call(request).await, Code::Unknown, Some(text))?;
    let (sender, mut replies) = client.full_duplex_call().await?;
    sender
        .send(StreamingOutputCallRequest {
            response_status: MessageField::some(status(text)),
            ..Default::default()
        })
        .await?;
    sender.finish();
    refused(replies.next().await, Code::Unknown, Some(text))
}

async fn special_status_message(client: &TestServiceClient) -> Result<()> {
    let text = "\t\ntest with whitespace\r\nand Unicode BMP \u{263a} and non-BMP \u{1f608}\t\n";
    let request = SimpleRequest { response_status: MessageField::some(status(text)), ..Default::default() };
    refused(client.unary_call(request).await, Code::Unknown, Some(text))
}

async fn custom_metadata(client: &TestServiceClient) -> Result<()> {
    const INITIAL: (&str, &str) = ("x-grpc-test-echo-initial", "test_initial_metadata_value");
    const TRAILING: (&str, &[u8]) = ("x-grpc-test-echo-trailing-bin", &[0xAB, 0xAB, 0xAB]);
    let reply = client.unary_call(large()).meta(INITIAL.0, INITIAL.1).meta(TRAILING.0, TRAILING.1).await?;
    check(reply.meta().text(INITIAL.0) == Some(INITIAL.1), "the first metadata is missing")?;
    check(reply.trailers().value(TRAILING.0).is_some_and(|value| value == TRAILING.1), "no trailer")?;

    let call = client.full_duplex_call().meta(INITIAL.0, INITIAL.1).meta(TRAILING.0, TRAILING.1);
    let (sender, mut replies) = call.await?;
    sender.send(ping(LARGE_REQUEST, LARGE_REPLY)).await?;
    sender.finish();
    let head = replies.metadata().await;
    check(head.text(INITIAL.0) == Some(INITIAL.1), "the first metadata of the stream is missing")?;
    expect(replies.next().await?, LARGE_REPLY)?;
    check(replies.next().await?.is_none(), "there are more replies than requests")?;
    check(replies.trailers().value(TRAILING.0).is_some_and(|value| value == TRAILING.1), "no trailer")
}

async fn unimplemented(client: &TestServiceClient, method: &'static ClientMethod) -> Result<()> {
    let channel: &Channel = client.channel();
    let request = encode(&Empty::default(), Codec::Proto);
    refused(channel.unary(method, Codec::Proto, request, decode::<Empty>).await, Code::Unimplemented, None)
}

fn payload(size: usize) -> Payload {
    Payload { body: Bytes::from(vec![0; size]), ..Default::default() }
}

fn large() -> SimpleRequest {
    SimpleRequest {
        response_size: LARGE_REPLY as i32,
        payload: MessageField::some(payload(LARGE_REQUEST)),
        ..Default::default()
    }
}

fn parameters(size: usize) -> ResponseParameters {
    ResponseParameters { size: size as i32, ..Default::default() }
}

fn ping(request: usize, reply: usize) -> StreamingOutputCallRequest {
    StreamingOutputCallRequest {
        response_parameters: vec![parameters(reply)],
        payload: MessageField::some(payload(request)),
        ..Default::default()
    }
}

fn status(text: &str) -> EchoStatus {
    EchoStatus { code: 2, message: text.to_owned(), ..Default::default() }
}

fn check(holds: bool, text: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Status::failed_precondition(text)) }
}

fn expect(reply: Option<StreamingOutputCallResponse>, size: usize) -> Result<()> {
    check(reply.is_some_and(|reply| reply.payload.body.len() == size), "a reply has another size")
}

/// Returns whether a call failed as it should.
fn refused<T>(outcome: Result<T>, code: Code, text: Option<&str>) -> Result<()> {
    match outcome {
        Err(status) if status.code() == code && text.is_none_or(|text| text == status.message()) => Ok(()),
        Err(status) => Err(status),
        Ok(_) => check(false, "the call went well"),
    }
}
