//! gRPC-Web as text: frames in base64 on HTTP/1.1, as browsers send them.

use crate::{
    http::{metadata, post, written},
    probe::decode,
    spec::{CallSpec, Failure, Outcome, sorted},
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use std::net::SocketAddr;
use switchboard::{Code, Codec};

pub(crate) async fn run(address: SocketAddr, spec: &CallSpec) -> Outcome {
    let frames = spec.messages.iter().map(|body| {
        let message = body.proto();
        let frame = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
        STANDARD.encode(frame)
    });
    let timeout =
        spec.timeout.map_or(String::new(), |time| format!("grpc-timeout: {}m\r\n", time.as_millis()));
    let head = format!("content-type: application/grpc-web-text\r\n{timeout}{}", written(spec));
    let body = frames.collect::<String>();
    let got = post(address, &format!("/test.v1.Wires/{}", spec.method), &head, body.as_bytes()).await;
    assert_eq!(got.status, 200);
    let mut answer = Outcome { head: metadata(&got.headers, ""), ..Outcome::default() };
    let groups = got.body.chunks(4).flat_map(|group| STANDARD.decode(group).unwrap()).collect::<Vec<_>>();
    let mut rest = &groups[..];
    // Without a body the head is the trailers too.
    let mut fields = got.headers.clone();
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (frame, after) = after.split_at(length);
        rest = after;
        if head[0] & 0x80 == 0 {
            answer.messages.push(decode(Codec::Proto, frame.to_vec().into()).unwrap());
        } else {
            let lines = std::str::from_utf8(frame).unwrap().lines();
            fields = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
                .collect();
        }
    }
    let value = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let code = Code::from_number(value("grpc-status").unwrap().parse().unwrap());
    answer.trailers = metadata(&fields, "");
    if code != Code::Ok {
        let details = value("grpc-status-details-bin").map_or_else(Vec::new, |text| {
            details(&STANDARD_NO_PAD.decode(text.trim_end_matches('=')).unwrap())
        });
        let message = unescaped(value("grpc-message").unwrap_or_default());
        // Without a message there was no head of its own: all is the failure's.
        let mut metadata = std::mem::take(&mut answer.trailers);
        if answer.messages.is_empty() && !groups.is_empty() {
            metadata = sorted([metadata, std::mem::take(&mut answer.head)].concat());
        }
        answer.head.clear();
        answer.failure = Some(Failure { code: Some(code), message, details, metadata });
    }
    answer
}

/// The details in a `google.rpc.Status`, whose fields are short here.
fn details(mut status: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut details = Vec::new();
    while let Some((number, value, rest)) = field(status) {
        status = rest;
        if number == 3 {
            let (mut any, mut detail) = (value, (String::new(), Vec::new()));
            while let Some((number, value, rest)) = field(any) {
                any = rest;
                match number {
                    1 => {
                        detail.0 =
                            String::from_utf8(value.to_vec()).unwrap().rsplit('/').next().unwrap().to_owned();
                    }
                    _ => detail.1 = value.to_vec(),
                }
            }
            details.push(detail);
        }
    }
    details
}

/// The next field: its number, its bytes if it has a length, and what follows.
fn field(message: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = message.split_first()?;
    let (first, rest) = rest.split_first().unwrap();
    assert!(*first < 0x80, "a field of this test is short");
    let length = if tag & 7 == 2 { usize::from(*first) } else { 0 };
    let (value, rest) = rest.split_at(length);
    Some((tag >> 3, value, rest))
}

fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let escape = (*first == b'%')
            .then(|| u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
        bytes.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap()
}
