//! The service of Connect's conformance suite: requests say how they are to be answered, replies what was seen.

use crate::proto::connect::{
    __buffa::oneof::unary_response_definition::Response, BidiStreamRequest, BidiStreamResponse,
    ClientStreamRequest, ClientStreamResponse, ConformancePayload, ConformanceService, Error, Header,
    IdempotentUnaryRequest, IdempotentUnaryResponse, ServerStreamRequest, ServerStreamResponse,
    StreamResponseDefinition, UnaryRequest, UnaryResponse, UnaryResponseDefinition, UnimplementedRequest,
    UnimplementedResponse, conformance_payload::RequestInfo,
};
use buffa::{Message, MessageField, MessageName};
use buffa_types::google::protobuf::Any;
use std::time::Duration;
use switchboard::{Code, Cx, Receiver, Result, Sender, Status, codegen::Bytes};

/// Prefix of the name of a message in the type of an `Any`.
const URL: &str = "type.googleapis.com/";

/// Responds as the request demands.
#[derive(Debug)]
pub struct Obedient;

/// Makes the messages of this service known to `Any`, which the suite uses in JSON too. Call it once, at the start.
pub fn register_types() {
    let mut registry = buffa::type_registry::TypeRegistry::new();
    buffa_types::register_wkt_types(&mut registry);
    crate::proto::connect::register_types(&mut registry);
    buffa::type_registry::set_type_registry(registry);
}

impl ConformanceService for Obedient {
    async fn unary(&self, request: UnaryRequest, cx: &Cx) -> Result<UnaryResponse> {
        let requests = vec![any(&request)];
        let payload = one(request.response_definition.into_option(), requests, cx).await?;
        Ok(UnaryResponse { payload: MessageField::some(payload), ..Default::default() })
    }

    async fn idempotent_unary(
        &self,
        request: IdempotentUnaryRequest,
        cx: &Cx,
    ) -> Result<IdempotentUnaryResponse> {
        let requests = vec![any(&request)];
        let payload = one(request.response_definition.into_option(), requests, cx).await?;
        Ok(IdempotentUnaryResponse { payload: MessageField::some(payload), ..Default::default() })
    }

    async fn unimplemented(&self, _: UnimplementedRequest, _: &Cx) -> Result<UnimplementedResponse> {
        Err(Status::unimplemented("Unimplemented is there to be missing"))
    }

    async fn client_stream(
        &self,
        mut input: Receiver<ClientStreamRequest>,
        cx: &Cx,
    ) -> Result<ClientStreamResponse> {
        let (mut definition, mut requests) = (None, Vec::new());
        while let Some(request) = input.next().await? {
            requests.push(any(&request));
            definition.get_or_insert(request.response_definition.into_option());
        }
        let payload = one(definition.flatten(), requests, cx).await?;
        Ok(ClientStreamResponse { payload: MessageField::some(payload), ..Default::default() })
    }

    async fn server_stream(
        &self,
        request: ServerStreamRequest,
        cx: &Cx,
        out: Sender<ServerStreamResponse>,
    ) -> Result<()> {
        let mut seen = Some(info(cx, vec![any(&request)]));
        let Some(definition) = request.response_definition.into_option() else { return Ok(()) };
        add_metadata(cx, &definition.response_headers, &definition.response_trailers)?;
        for data in definition.response_data {
            pause(definition.response_delay_ms).await;
            let payload = payload(data, seen.take());
            out.send(ServerStreamResponse { payload: MessageField::some(payload), ..Default::default() })
                .await?;
        }
        definition.error.into_option().map_or(Ok(()), |error| Err(status(error, seen.as_ref())))
    }

    async fn bidi_stream(
        &self,
        mut input: Receiver<BidiStreamRequest>,
        cx: &Cx,
        out: Sender<BidiStreamResponse>,
    ) -> Result<()> {
        let mut definition: Option<StreamResponseDefinition> = None;
        let (mut full_duplex, mut requests, mut sent) = (false, Vec::new(), 0);
        let (mut is_first, mut left) = (true, Vec::new().into_iter());
        while let Some(request) = input.next().await? {
            requests.push(any(&request));
            if is_first {
                is_first = false;
                full_duplex = request.full_duplex;
                definition = request.response_definition.into_option();
                if let Some(definition) = &mut definition {
                    add_metadata(cx, &definition.response_headers, &definition.response_trailers)?;
                    left = std::mem::take(&mut definition.response_data).into_iter();
                }
            }
            if full_duplex {
                let Some(data) = left.next() else { break };
                pause(definition.as_ref().map_or(0, |definition| definition.response_delay_ms)).await;
                let requests = std::mem::take(&mut requests);
                let seen = match sent {
                    0 => info(cx, requests),
                    _ => RequestInfo { requests, ..Default::default() },
                };
                let payload = payload(data, Some(seen));
                out.send(BidiStreamResponse { payload: MessageField::some(payload), ..Default::default() })
                    .await?;
                sent += 1;
            }
        }
        let mut seen = (sent == 0).then(|| info(cx, requests));
        let Some(definition) = definition else { return Ok(()) };
        for data in left {
            pause(definition.response_delay_ms).await;
            let payload = payload(data, seen.take());
            out.send(BidiStreamResponse { payload: MessageField::some(payload), ..Default::default() })
                .await?;
        }
        definition.error.into_option().map_or(Ok(()), |error| Err(status(error, seen.as_ref())))
    }
}

/// The payload, or the error, of a reply of one message.
async fn one(
    definition: Option<UnaryResponseDefinition>,
    requests: Vec<Any>,
    cx: &Cx,
) -> Result<ConformancePayload> {
    let seen = info(cx, requests);
    let Some(definition) = definition else { return Ok(payload(Bytes::new(), Some(seen))) };
    add_metadata(cx, &definition.response_headers, &definition.response_trailers)?;
    pause(definition.response_delay_ms).await;
    match definition.response {
        Some(Response::Error(error)) => Err(status(*error, Some(&seen))),
        Some(Response::ResponseData(data)) => Ok(payload(data, Some(seen))),
        None => Ok(payload(Bytes::new(), Some(seen))),
    }
}

/// The error as it was ordered; `seen` is added to its details if no message carried it.
fn status(error: Error, seen: Option<&RequestInfo>) -> Status {
    let code = Code::from_number(error.code.to_i32() as u16);
    let mut status = Status::new(code, error.message.unwrap_or_default());
    for detail in error.details.into_iter().chain(seen.map(any)) {
        let name = detail.type_url.rsplit('/').next().unwrap_or_default();
        status = status.with_detail(name, detail.value.clone());
    }
    status
}

fn payload(data: Bytes, seen: Option<RequestInfo>) -> ConformancePayload {
    let request_info = seen.map_or_else(MessageField::none, MessageField::some);
    ConformancePayload { data, request_info, ..Default::default() }
}

/// Returns the metadata, deadline and requests of a call.
fn info(cx: &Cx, requests: Vec<Any>) -> RequestInfo {
    let mut request_headers: Vec<Header> = Vec::new();
    for (name, value) in cx.metadata().iter() {
        // The suite sends text only.
        let value = String::from_utf8_lossy(value).into_owned();
        match request_headers.iter_mut().find(|header| header.name == name) {
            Some(header) => header.value.push(value),
            None => {
                request_headers.push(Header {
                    name: name.to_owned(),
                    value: vec![value],
                    ..Default::default()
                });
            }
        }
    }
    let timeout_ms = cx.time_left().map(|left| left.as_millis() as i64);
    RequestInfo { request_headers, timeout_ms, requests, ..Default::default() }
}

fn add_metadata(cx: &Cx, headers: &[Header], trailers: &[Header]) -> Result<()> {
    for (name, value) in pairs(headers) {
        cx.reply_metadata(name, value.clone())?;
    }
    for (name, value) in pairs(trailers) {
        cx.reply_trailer(name, value.clone())?;
    }
    Ok(())
}

fn pairs(headers: &[Header]) -> impl Iterator<Item = (&str, &String)> {
    headers.iter().flat_map(|header| header.value.iter().map(|value| (header.name.as_str(), value)))
}

fn any<M: Message + MessageName>(message: &M) -> Any {
    Any::pack(message, format!("{URL}{}", M::FULL_NAME))
}

async fn pause(milliseconds: u32) {
    if milliseconds > 0 {
        tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
    }
}
