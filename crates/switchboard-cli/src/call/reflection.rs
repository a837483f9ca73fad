//! Queries a server for its schema: the gRPC reflection service, version 1, or else v1alpha.
//!
//! Each list of queries is a separate call, whose requests end before its replies are read, so that wires without
//! bidirectional streams can carry it.

use super::failure::{Ended, Failure};
use bytes::Bytes;
use prost::Message;
use std::time::{Duration, Instant};
use switchboard::{Channel, ClientMethod, Code, Codec, Idempotency, Kind, Status};

const VERSIONS: [&str; 2] = [
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// Time limit for a server that accepts the connection and does not respond.
const PATIENCE: Duration = Duration::from_secs(10);
const WHAT: &str = "reading the schema from the server (reflection)";

/// The reflection service of a server.
#[derive(Debug)]
pub(crate) struct Reflection {
    channel: Channel,
    metadata: Vec<(String, Bytes)>,
    deadline: Option<Instant>,
    /// The version to which the server has responded.
    version: Option<&'static str>,
}

/// A query for a part of the schema.
#[derive(Clone, Debug)]
pub(super) enum Query {
    Services,
    FileOf(String),
    FileNamed(String),
}

/// The response to a query.
#[derive(Debug)]
pub(super) enum Response {
    Services(Vec<String>),
    /// Encoded `google.protobuf.FileDescriptorProto`s.
    Files(Vec<Vec<u8>>),
    /// The requested item does not exist.
    Unknown,
}

impl Reflection {
    pub(crate) fn new(
        channel: Channel,
        metadata: Vec<(String, Bytes)>,
        deadline: Option<Instant>,
    ) -> Reflection {
        Reflection { channel, metadata, deadline, version: None }
    }

    /// Returns the responses, one for each query.
    ///
    /// # Errors
    /// The status with which the call ended; with a tip if the server has no reflection.
    pub(super) async fn query(&mut self, queries: &[Query]) -> Result<Vec<Response>, Failure> {
        if let Some(version) = self.version {
            let responses = self.query_version(version, queries).await;
            return responses.map_err(|status| Failure::during(status, WHAT));
        }
        let mut last = None;
        for version in VERSIONS {
            match self.query_version(version, queries).await {
                Ok(responses) => {
                    self.version = Some(version);
                    return Ok(responses);
                }
                // Some servers respond `NotFound` for a service that they do not implement.
                Err(status) if matches!(status.code(), Code::Unimplemented | Code::NotFound) => {
                    last.get_or_insert(status);
                }
                Err(status) => return Err(Failure::during(status, WHAT)),
            }
        }
        Err(Failure::Status(Ended {
            status: last.unwrap_or_else(|| Status::internal("no version was tried")),
            during: Some(WHAT),
            tip: Some(
                "the server offers no reflection: give the schema with --proto FILE -I DIR \
                 or --descriptor-set FILE"
                    .into(),
            ),
        }))
    }

    async fn query_version(&self, version: &str, queries: &[Query]) -> Result<Vec<Response>, Status> {
        let method = ClientMethod::intern(version, Kind::Bidi, Idempotency::Unknown)?;
        let left =
            self.deadline.map_or(PATIENCE, |deadline| deadline.saturating_duration_since(Instant::now()));
        let mut call = self
            .channel
            .bidi::<Bytes, Bytes>(method, Codec::Proto, |bytes, _| Ok(bytes.clone()), |_, bytes| Ok(bytes))
            .timeout(left.min(PATIENCE));
        for (name, value) in &self.metadata {
            call = call.meta(name, value.clone());
        }
        let (sender, mut receiver) = call.await?;
        for query in queries {
            // The error of a call that has ended is reported when its replies are read.
            if sender.send(Request::from(query).encode_to_vec().into()).await.is_err() {
                break;
            }
        }
        sender.finish();
        let mut responses = Vec::new();
        while let Some(bytes) = receiver.next().await? {
            if responses.len() == queries.len() {
                return Err(Status::internal("the server sent more replies than requests"));
            }
            responses.push(response(&bytes)?);
        }
        if responses.len() < queries.len() {
            let (got, expected) = (responses.len(), queries.len());
            return Err(Status::internal(format!("the server sent {got} of {expected} replies")));
        }
        Ok(responses)
    }
}

fn response(bytes: &[u8]) -> Result<Response, Status> {
    let reply = Reply::decode(bytes)
        .map_err(|error| Status::internal(format!("the server's reply cannot be decoded: {error}")))?;
    match reply {
        Reply { error: Some(error), .. } => match Code::from_number(error.code as u16) {
            Code::NotFound => Ok(Response::Unknown),
            code => Err(Status::new(code, error.message)),
        },
        Reply { files: Some(files), .. } => Ok(Response::Files(files.files)),
        Reply { services: Some(list), .. } => {
            Ok(Response::Services(list.services.into_iter().map(|service| service.name).collect()))
        }
        _ => Err(Status::internal("the server's reply has no form of the reflection protocol")),
    }
}

impl From<&Query> for Request {
    fn from(query: &Query) -> Request {
        let mut request = Request::default();
        match query.clone() {
            Query::Services => request.list_services = Some("*".into()),
            Query::FileOf(symbol) => request.file_of = Some(symbol),
            Query::FileNamed(name) => request.file_named = Some(name),
        }
        request
    }
}

/// The fields of `ServerReflectionRequest` that are used.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, optional, tag = "3")]
    file_named: Option<String>,
    #[prost(string, optional, tag = "4")]
    file_of: Option<String>,
    #[prost(string, optional, tag = "7")]
    list_services: Option<String>,
}

/// The fields of `ServerReflectionResponse` that are used.
#[derive(Clone, PartialEq, Message)]
struct Reply {
    #[prost(message, optional, tag = "4")]
    files: Option<Files>,
    #[prost(message, optional, tag = "6")]
    services: Option<Services>,
    #[prost(message, optional, tag = "7")]
    error: Option<Refusal>,
}

/// `FileDescriptorResponse`.
#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

/// `ListServiceResponse`.
#[derive(Clone, PartialEq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<Service>,
}

/// `ServiceResponse`.
#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(string, tag = "1")]
    name: String,
}

/// `ErrorResponse`.
#[derive(Clone, PartialEq, Message)]
struct Refusal {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}
