//! The service of gRPC's interop tests: payloads of the requested size, statuses and metadata sent back.

use crate::proto::grpc::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse, StreamingOutputCallRequest, StreamingOutputCallResponse, TestService,
};
use buffa::MessageField;
use std::time::Duration;
use switchboard::{Code, Cx, Receiver, Result, Retry, Sender, Status, codegen::Bytes};

/// Metadata that comes back before the first message.
const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";
/// Metadata that comes back with the end.
const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";

/// Tests of several calls check that one server answered all of them.
const SERVER_ID: &str = "switchboard";

/// No test requests more than a third of a megabyte.
const PAYLOAD_MAX: usize = 16 << 20;

/// Answers the interop tests.
#[derive(Debug)]
pub struct Interop;

impl TestService for Interop {
    async fn empty_call(&self, _: Empty, _: &Cx) -> Result<Empty> {
        Ok(Empty::default())
    }

    async fn unary_call(&self, request: SimpleRequest, cx: &Cx) -> Result<SimpleResponse> {
        echo_metadata(cx)?;
        check(&request.response_status)?;
        let server_id = if request.fill_server_id { SERVER_ID.to_owned() } else { String::new() };
        Ok(SimpleResponse { payload: payload(request.response_size)?, server_id, ..Default::default() })
    }

    async fn cacheable_unary_call(&self, request: SimpleRequest, cx: &Cx) -> Result<SimpleResponse> {
        self.unary_call(request, cx).await
    }

    async fn streaming_output_call(
        &self,
        request: StreamingOutputCallRequest,
        _: &Cx,
        out: Sender<StreamingOutputCallResponse>,
    ) -> Result<()> {
        send(&request.response_parameters, &out).await?;
        check(&request.response_status)
    }

    async fn streaming_input_call(
        &self,
        mut input: Receiver<StreamingInputCallRequest>,
        _: &Cx,
    ) -> Result<StreamingInputCallResponse> {
        let mut sum = 0;
        while let Some(request) = input.next().await? {
            sum += request.payload.body.len();
        }
        let sum = i32::try_from(sum).map_err(|_| Status::out_of_range("the sum is over 31 bits"))?;
        Ok(StreamingInputCallResponse { aggregated_payload_size: sum, ..Default::default() })
    }

    async fn full_duplex_call(
        &self,
        mut input: Receiver<StreamingOutputCallRequest>,
        cx: &Cx,
        out: Sender<StreamingOutputCallResponse>,
    ) -> Result<()> {
        echo_metadata(cx)?;
        while let Some(request) = input.next().await? {
            check(&request.response_status)?;
            send(&request.response_parameters, &out).await?;
        }
        Ok(())
    }

    async fn half_duplex_call(
        &self,
        mut input: Receiver<StreamingOutputCallRequest>,
        _: &Cx,
        out: Sender<StreamingOutputCallResponse>,
    ) -> Result<()> {
        let mut parameters = Vec::new();
        while let Some(request) = input.next().await? {
            parameters.extend(request.response_parameters);
        }
        send(&parameters, &out).await
    }
}

async fn send(parameters: &[ResponseParameters], out: &Sender<StreamingOutputCallResponse>) -> Result<()> {
    for parameters in parameters {
        if let Ok(interval @ 1..) = u64::try_from(parameters.interval_us) {
            tokio::time::sleep(Duration::from_micros(interval)).await;
        }
        let payload = payload(parameters.size)?;
        out.send(StreamingOutputCallResponse { payload, ..Default::default() }).await?;
    }
    Ok(())
}

fn payload<P: buffa::ProtoBox<Payload>>(size: i32) -> Result<MessageField<Payload, P>> {
    let size = usize::try_from(size).ok().filter(|size| *size <= PAYLOAD_MAX);
    let size =
        size.ok_or_else(|| Status::invalid_argument(format!("payloads have 0 to {PAYLOAD_MAX} bytes")))?;
    Ok(MessageField::some(Payload { body: Bytes::from(vec![0; size]), ..Default::default() }))
}

/// # Errors
/// The status that the caller requested.
fn check(status: &EchoStatus) -> Result<()> {
    match status.code {
        0 => Ok(()),
        code => {
            let code = u16::try_from(code).map_or(Code::Unknown, Code::from_number);
            let status = Status::new(code, status.message.clone());
            Err(match pause(status.message()) {
                None => status,
                Some(pause) => status.with_retry(Retry::After(pause)),
            })
        }
    }
}

/// Parses the pause in a text such as `retry in 200 ms`.
fn pause(text: &str) -> Option<Duration> {
    let millis = text.strip_prefix("retry in ")?.strip_suffix(" ms")?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

fn echo_metadata(cx: &Cx) -> Result<()> {
    if let Some(value) = cx.metadata().value(ECHO_INITIAL) {
        cx.reply_metadata(ECHO_INITIAL, value.clone())?;
    }
    if let Some(value) = cx.metadata().value(ECHO_TRAILING) {
        cx.reply_trailer(ECHO_TRAILING, value.clone())?;
    }
    Ok(())
}
