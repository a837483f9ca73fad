//! Calls through our own client, on whatever wire its channel has.

use crate::{
    asked::{Answer, Asked, Body, Failure, pairs},
    probe::{METHODS, decode, encode},
};
use bytes::Bytes;
use switchboard::{Channel, ClientMethod, Codec, Kind, Receiver, Status};

/// Applies what every kind of call has.
macro_rules! with_options {
    ($call:expr, $asked:expr) => {{
        let mut call = $call;
        for (name, value) in &$asked.metadata {
            call = call.meta(name, value.clone());
        }
        match $asked.timeout {
            Some(timeout) => call.timeout(timeout),
            None => call,
        }
    }};
}

pub(crate) async fn ask(channel: &Channel, asked: &Asked) -> Answer {
    let codec = channel.codec(Codec::Proto);
    let mut answer = Answer::default();
    if let Err(status) = call(channel, codec, asked, &mut answer).await {
        answer.failure = Some(Failure::from(&status));
        // What a client makes of a failure's metadata is in the status.
        answer.head.clear();
        answer.trailers.clear();
    }
    answer
}

async fn call(channel: &Channel, codec: Codec, asked: &Asked, answer: &mut Answer) -> Result<(), Status> {
    let method: &'static ClientMethod =
        METHODS.iter().find(|method| method.path.ends_with(asked.method)).unwrap();
    match asked.kind {
        Kind::Unary => {
            let request = Ok(bytes(&asked.messages[0], codec));
            let call = channel.unary(method, codec, request, decode);
            let reply = with_options!(call, asked).await?;
            (answer.head, answer.trailers) = (pairs(reply.meta()), pairs(reply.trailers()));
            answer.messages.push(reply.into_inner());
        }
        Kind::ServerStream => {
            let request = Ok(bytes(&asked.messages[0], codec));
            let call = channel.server_stream(method, codec, request, decode);
            let replies = with_options!(call, asked).await?;
            read(replies, answer).await?;
        }
        Kind::ClientStream => {
            let call = channel.client_stream(method, codec, encode, decode);
            let upload = with_options!(call, asked).await?;
            for body in &asked.messages {
                upload.send(text(body)).await?;
            }
            let reply = upload.finish().await?;
            (answer.head, answer.trailers) = (pairs(reply.meta()), pairs(reply.trailers()));
            answer.messages.push(reply.into_inner());
        }
        Kind::Bidi => {
            let call = channel.bidi(method, codec, encode, decode);
            let (sender, replies) = with_options!(call, asked).await?;
            for body in &asked.messages {
                sender.send(text(body)).await?;
            }
            sender.finish();
            read(replies, answer).await?;
        }
    }
    Ok(())
}

async fn read(mut replies: Receiver<String>, answer: &mut Answer) -> Result<(), Status> {
    answer.head = pairs(&replies.metadata().await);
    while let Some(reply) = replies.next().await? {
        answer.messages.push(reply);
    }
    answer.trailers = pairs(&replies.trailers());
    Ok(())
}

fn bytes(body: &Body, codec: Codec) -> Bytes {
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
