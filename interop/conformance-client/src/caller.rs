//! Makes one call as the suite describes it.

use crate::{
    proto::{__buffa::oneof::job::cancel::Timing, Header, Job, Seen},
    seen::{failed, received, replied},
};
use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use buffa::Message;
use conformance::{
    pem::Folder,
    proto::connect::{
        BidiStreamRequest, ClientStreamRequest, ConformanceServiceClient, IdempotentUnaryRequest,
        ServerStreamRequest, UnaryRequest, UnimplementedRequest, conformance_payload::RequestInfo,
    },
};
use std::time::Duration;
use switchboard::{Channel, Result, Status};
use tokio::time::sleep;

/// The stream type that alternates requests and replies.
const FULL_DUPLEX: i32 = 5;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Makes the call and says what came back; `files` takes the certificates of TLS.
///
/// # Errors
/// When the call cannot be made; the outcome of the call itself is in [`Seen`].
pub async fn make(job: &Job, files: &Folder) -> Result<Seen> {
    let channel = channel(job, files).await?;
    let client = ConformanceServiceClient::new(channel);
    let mut seen = Seen::default();
    match job.method.as_deref().unwrap_or_default() {
        "Unary" => {
            let call = with(job, client.unary(message::<UnaryRequest>(job)?));
            let outcome = unless_given_up(job, call.into_future()).await;
            replied(&mut seen, outcome, |reply| reply.payload.into_option());
        }
        "IdempotentUnary" => {
            let call = with(job, client.idempotent_unary(message::<IdempotentUnaryRequest>(job)?));
            let outcome = unless_given_up(job, call.into_future()).await;
            replied(&mut seen, outcome, |reply| reply.payload.into_option());
        }
        "Unimplemented" => {
            let call = with(job, client.unimplemented(message::<UnimplementedRequest>(job)?));
            replied(&mut seen, call.await, |_| None::<RequestInfo>);
        }
        "ServerStream" => server_stream(job, &client, &mut seen).await?,
        "ClientStream" => client_stream(job, &client, &mut seen).await?,
        "BidiStream" => bidi_stream(job, &client, &mut seen).await?,
        other => return Err(Status::unimplemented(format!("no method {other:?}"))),
    }
    Ok(seen)
}

/// Notes why the call failed, which is no failure of the job.
fn ended(seen: &mut Seen, status: &Status) -> Result<()> {
    failed(seen, status);
    Ok(())
}

async fn server_stream(job: &Job, client: &ConformanceServiceClient, seen: &mut Seen) -> Result<()> {
    let call = with(job, client.server_stream(message::<ServerStreamRequest>(job)?));
    let mut replies = match call.await {
        Ok(replies) => replies,
        Err(status) => return ended(seen, &status),
    };
    let give_up = sleep_until_cancel(job);
    tokio::pin!(give_up);
    loop {
        if Some(seen.payloads.len()) == responses_before_cancel(job) {
            return ended(seen, &given_up());
        }
        tokio::select! {
            biased;
            more = received(seen, &mut replies, |reply| reply.payload.into_option()) => if !more { return Ok(()) },
            () = &mut give_up => return ended(seen, &given_up()),
        }
    }
}

async fn client_stream(job: &Job, client: &ConformanceServiceClient, seen: &mut Seen) -> Result<()> {
    let upload = match with(job, client.client_stream()).await {
        Ok(upload) => upload,
        Err(status) => return ended(seen, &status),
    };
    let requests = messages::<ClientStreamRequest>(job)?;
    let count = requests.len();
    for (at, request) in requests.into_iter().enumerate() {
        delay(job).await;
        if upload.send(request).await.is_err() {
            seen.num_unsent_requests = (count - at) as i32;
            break;
        }
    }
    if cancels_before_close(job) {
        return ended(seen, &given_up());
    }
    let outcome = unless_given_up(job, upload.finish()).await;
    replied(seen, outcome, |reply| reply.payload.into_option());
    Ok(())
}

async fn bidi_stream(job: &Job, client: &ConformanceServiceClient, seen: &mut Seen) -> Result<()> {
    let (sender, mut replies) = match with(job, client.bidi_stream()).await {
        Ok(both) => both,
        Err(status) => return ended(seen, &status),
    };
    let requests = messages::<BidiStreamRequest>(job)?;
    let count = requests.len();
    for (at, request) in requests.into_iter().enumerate() {
        delay(job).await;
        if sender.send(request).await.is_err() {
            seen.num_unsent_requests = (count - at) as i32;
            break;
        }
        if job.stream_type == FULL_DUPLEX {
            if !received(seen, &mut replies, |reply| reply.payload.into_option()).await {
                return Ok(());
            }
            if Some(seen.payloads.len()) == responses_before_cancel(job) {
                return ended(seen, &given_up());
            }
        }
    }
    if cancels_before_close(job) {
        return ended(seen, &given_up());
    }
    sender.finish();
    let give_up = sleep_until_cancel(job);
    tokio::pin!(give_up);
    loop {
        tokio::select! {
            biased;
            more = received(seen, &mut replies, |reply| reply.payload.into_option()) => if !more { return Ok(()) },
            () = &mut give_up => return ended(seen, &given_up()),
        }
        if Some(seen.payloads.len()) == responses_before_cancel(job) {
            return ended(seen, &given_up());
        }
    }
}

async fn channel(job: &Job, files: &Folder) -> Result<Channel> {
    let mut channel = Channel::builder(&url(job));
    if is_tls(job) {
        let file = |content| {
            files.file(content).map_err(|error| Status::internal(format!("write a certificate: {error}")))
        };
        channel = channel.ca(file(&job.server_certificate)?);
        if let Some(identity) = job.identity.as_option() {
            channel = channel.identity(file(&identity.certificate)?, file(&identity.key)?);
        }
    }
    channel.connect().await
}

fn is_tls(job: &Job) -> bool {
    !job.server_certificate.is_empty()
}

fn url(job: &Job) -> String {
    let scheme = if is_tls(job) { "tls" } else { "tcp" };
    let wire = ["", "connect", "grpc", "grpc-web"].get(job.protocol as usize).copied().unwrap_or_default();
    let codec = if job.codec == 2 { "json" } else { "proto" };
    let compression = match job.compression {
        2 => "gzip",
        4 => "zstd",
        5 => "deflate",
        _ => "none",
    };
    let mut url = format!(
        "{scheme}://{}:{}?connections=1&wire={wire}&http={}&codec={codec}&compression={compression}&get={}",
        job.host, job.port, job.http_version, job.use_get_http_method
    );
    // While there are two engines for gRPC, the suite runs with each.
    if wire == "grpc"
        && let Ok(engine) = std::env::var("GRPC_ENGINE")
    {
        url += &format!("&engine={engine}");
    }
    if job.message_receive_limit > 0 {
        url += &format!("&message_bytes_max={}", job.message_receive_limit);
    }
    url
}

/// The options that every kind of call has.
trait Options {
    fn timeout(self, timeout: Duration) -> Self;
    fn meta(self, name: &str, value: Vec<u8>) -> Self;
}

macro_rules! options {
    ($($call:ident<$($type:ident),+>),*) => {$(
        impl<$($type),+> Options for switchboard::$call<$($type),+> {
            fn timeout(self, timeout: Duration) -> Self {
                self.timeout(timeout)
            }

            fn meta(self, name: &str, value: Vec<u8>) -> Self {
                self.meta(name, value)
            }
        }
    )*};
}

options!(UnaryCall<R>, ServerStreamCall<R>, ClientStreamCall<Q, R>, BidiCall<Q, R>);

fn with<C: Options>(job: &Job, mut call: C) -> C {
    if let Some(millis) = job.timeout_ms {
        call = call.timeout(Duration::from_millis(millis.into()));
    }
    for Header { name, value: values, .. } in &job.request_headers {
        for value in values {
            // Binary values come as the text that goes over the wire; one that is none goes as it is.
            let bytes = match name.to_ascii_lowercase().ends_with("-bin") {
                true => BASE64.decode(value).unwrap_or_else(|_| value.clone().into_bytes()),
                false => value.clone().into_bytes(),
            };
            call = call.meta(name, bytes);
        }
    }
    call
}

fn message<M: Message + Default>(job: &Job) -> Result<M> {
    messages(job)?.into_iter().next().ok_or_else(|| Status::invalid_argument("a request is missing"))
}

fn messages<M: Message + Default>(job: &Job) -> Result<Vec<M>> {
    let all = job.request_messages.iter().map(|packed| M::decode_from_slice(&packed.value));
    all.collect::<Result<_, _>>().map_err(|error| Status::invalid_argument(format!("a request: {error}")))
}

fn given_up() -> Status {
    Status::canceled("canceled, as the suite requested")
}

fn timing(job: &Job) -> Option<&Timing> {
    job.cancel.as_option()?.timing.as_ref()
}

fn cancels_before_close(job: &Job) -> bool {
    matches!(timing(job), Some(Timing::BeforeCloseSend(_)))
}

fn responses_before_cancel(job: &Job) -> Option<usize> {
    match timing(job) {
        Some(Timing::AfterNumResponses(count)) => Some(*count as usize),
        _ => None,
    }
}

/// Ends when the client is to give up after its last request; never, if it is not.
async fn sleep_until_cancel(job: &Job) {
    match timing(job) {
        Some(Timing::AfterCloseSendMs(millis)) => sleep(Duration::from_millis((*millis).into())).await,
        _ => std::future::pending().await,
    }
}

async fn unless_given_up<T>(job: &Job, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        outcome = call => outcome,
        () = sleep_until_cancel(job) => Err(given_up()),
    }
}

async fn delay(job: &Job) {
    if job.request_delay_ms > 0 {
        sleep(Duration::from_millis(job.request_delay_ms.into())).await;
    }
}
