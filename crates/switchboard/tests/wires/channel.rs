//! Calls through our own client, on whatever wire its channel has.

use crate::{
    probe::{METHODS, decode, encode},
    spec::{Body, CallSpec, Failure, Outcome, pairs},
};
use bytes::Bytes;
use switchboard::{Channel, ClientMethod, Codec, Kind, Receiver, Status};

/// Applies the options that every kind of call has.
macro_rules! with_options {
    ($call:expr, $spec:expr) => {{
        let mut call = $call;
        for (name, value) in &$spec.metadata {
            call = call.meta(name, value.clone());
        }
        match $spec.timeout {
            Some(timeout) => call.timeout(timeout),
            None => call,
        }
    }};
}

pub(crate) async fn run(channel: &Channel, spec: &CallSpec) -> Outcome {
    let codec = channel.codec(Codec::Proto);
    let mut answer = Outcome::default();
    if let Err(status) = call(channel, codec, spec, &mut answer).await {
        answer.failure = Some(Failure::from(&status));
        // The client has put the metadata of a failure into the status.
        answer.head.clear();
        answer.trailers.clear();
    }
    answer
}

async fn call(channel: &Channel, codec: Codec, spec: &CallSpec, answer: &mut Outcome) -> Result<(), Status> {
    let method: &'static ClientMethod =
        METHODS.iter().find(|method| method.path.ends_with(spec.method)).unwrap();
    match spec.kind {
        Kind::Unary => {
            let request = Ok(bytes(&spec.messages[0], codec));
            let call = channel.unary(method, codec, request, decode);
            let reply = with_options!(call, spec).await?;
            (answer.head, answer.trailers) = (pairs(reply.meta()), pairs(reply.trailers()));
            answer.messages.push(reply.into_inner());
        }
        Kind::ServerStream => {
            let request = Ok(bytes(&spec.messages[0], codec));
            let call = channel.server_stream(method, codec, request, decode);
            let replies = with_options!(call, spec).await?;
            read(replies, answer).await?;
        }
        Kind::ClientStream => {
            let call = channel.client_stream(method, codec, encode, decode);
            let upload = with_options!(call, spec).await?;
            for body in &spec.messages {
                upload.send(text(body)).await?;
            }
            let reply = upload.finish().await?;
            (answer.head, answer.trailers) = (pairs(reply.meta()), pairs(reply.trailers()));
            answer.messages.push(reply.into_inner());
        }
        Kind::Bidi => {
            let call = channel.bidi(method, codec, encode, decode);
            let (sender, replies) = with_options!(call, spec).await?;
            for body in &spec.messages {
                sender.send(text(body)).await?;
            }
            sender.finish();
            read(replies, answer).await?;
        }
    }
    Ok(())
}

async fn read(mut replies: Receiver<String>, answer: &mut Outcome) -> Result<(), Status> {
    answer.head = pairs(&replies.metadata().await);
    while let Some(reply) = replies.next().await? {
        answer.messages.push(reply);
    }
    answer.trailers = pairs(&replies.trailers());
    Ok(())
}

pub(crate) fn bytes(body: &Body, codec: Codec) -> Bytes {
    match codec {
        Codec::Json => body.json().to_string().into(),
        _ => body.proto(),
    }
}

fn text(body: &Body) -> String {
    match body {
        Body::Text(text) => text.clone(),
        Body::Bad => unreachable!("streams of this table have good messages"),
    }
}
