//! Asks a server for its schema: the reflection service of gRPC, version 1, else its older twin v1alpha.
//!
//! Each question has a call of its own, whose requests end before its replies are read, so that wires without streams
//! both ways at once can carry it.

use super::failure::{Ended, Failure};
use bytes::Bytes;
use prost::Message;
use std::time::{Duration, Instant};
use switchboard::{Channel, ClientMethod, Code, Codec, Idempotency, Kind, Status};

const VERSIONS: [&str; 2] = [
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// For a server that accepts and says nothing.
const PATIENCE: Duration = Duration::from_secs(10);
const WHAT: &str = "asking the server for its schema (reflection)";

/// The reflection service of a server.
#[derive(Debug)]
pub(crate) struct Reflection {
    channel: Channel,
    metadata: Vec<(String, Bytes)>,
    deadline: Option<Instant>,
    /// The version that has answered.
    version: Option<&'static str>,
}

/// What can be asked for.
#[derive(Clone, Debug)]
pub(super) enum Question {
    Services,
    FileOf(String),
    FileNamed(String),
}

/// What was answered.
#[derive(Debug)]
pub(super) enum Answer {
    Services(Vec<String>),
    /// Encoded `google.protobuf.FileDescriptorProto`s.
    Files(Vec<Vec<u8>>),
    /// There is no such thing.
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

    /// The answers, one for each question.
    ///
    /// # Errors
    /// What ended the call; with a way out if the server has no reflection.
    pub(super) async fn ask(&mut self, questions: &[Question]) -> Result<Vec<Answer>, Failure> {
        if let Some(version) = self.version {
            let answers = self.ask_version(version, questions).await;
            return answers.map_err(|status| Failure::during(status, WHAT));
        }
        let mut last = None;
        for version in VERSIONS {
            match self.ask_version(version, questions).await {
                Ok(answers) => {
                    self.version = Some(version);
                    return Ok(answers);
                }
                // Some servers say that they do not find what they do not implement.
                Err(status) if matches!(status.code(), Code::Unimplemented | Code::NotFound) => {
                    last.get_or_insert(status);
                }
                Err(status) => return Err(Failure::during(status, WHAT)),
            }
        }
        Err(Failure::Status(Ended {
            status: last.unwrap_or_else(|| Status::internal("no version was asked for")),
            during: Some(WHAT),
            tip: Some(
                "the server offers no reflection: give the schema with --proto FILE -I DIR \
                 or --descriptor-set FILE"
                    .into(),
            ),
        }))
    }

    async fn ask_version(&self, version: &str, questions: &[Question]) -> Result<Vec<Answer>, Status> {
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
        for question in questions {
            // A call that has ended says why when its replies are read.
            if sender.send(Request::from(question).encode_to_vec().into()).await.is_err() {
                break;
            }
        }
        sender.finish();
        let mut answers = Vec::new();
        while let Some(bytes) = receiver.next().await? {
            if answers.len() == questions.len() {
                return Err(Status::internal("the server answered more than it was asked"));
            }
            answers.push(answer(&bytes)?);
        }
        if answers.len() < questions.len() {
            let (got, asked) = (answers.len(), questions.len());
            return Err(Status::internal(format!("the server answered {got} of {asked} questions")));
        }
        Ok(answers)
    }
}

fn answer(bytes: &[u8]) -> Result<Answer, Status> {
    let reply = Reply::decode(bytes)
        .map_err(|error| Status::internal(format!("the server's answer cannot be read: {error}")))?;
    match reply {
        Reply { error: Some(error), .. } => match Code::from_number(error.code as u16) {
            Code::NotFound => Ok(Answer::Unknown),
            code => Err(Status::new(code, error.message)),
        },
        Reply { files: Some(files), .. } => Ok(Answer::Files(files.files)),
        Reply { services: Some(list), .. } => {
            Ok(Answer::Services(list.services.into_iter().map(|service| service.name).collect()))
        }
        _ => Err(Status::internal("the server's answer has none of the forms that reflection has")),
    }
}

impl From<&Question> for Request {
    fn from(question: &Question) -> Request {
        let mut request = Request::default();
        match question.clone() {
            Question::Services => request.list_services = Some("*".into()),
            Question::FileOf(symbol) => request.file_of = Some(symbol),
            Question::FileNamed(name) => request.file_named = Some(name),
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
