//! HTTP/JSON: a POST to the name of the method, as curl would send it.

use crate::{
    http::{metadata, post, timeout, written},
    spec::{CallSpec, Failure, Outcome, sorted},
};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use serde_json::Value;
use std::net::SocketAddr;
use switchboard::{Code, Kind};

pub(crate) async fn run(address: SocketAddr, spec: &CallSpec) -> Outcome {
    let body: String = spec.messages.iter().map(|body| format!("{}\n", body.json())).collect();
    let head =
        format!("content-type: application/json\r\nte: trailers\r\n{}{}", timeout(spec), written(spec));
    let got = post(address, &format!("/test.v1.Wires/{}", spec.method), &head, body.as_bytes()).await;
    let mut answer = Outcome::default();
    // Unary calls are answered as Connect does, streams as grpc-gateway does.
    if spec.kind == Kind::Unary {
        let value: Value = serde_json::from_slice(&got.body)
            .unwrap_or_else(|_| panic!("{}: {}", got.status, String::from_utf8_lossy(&got.body)));
        if got.status == 200 {
            answer.head = metadata(&got.headers, "");
            answer.trailers = metadata(&got.headers, "trailer-");
            answer.messages.push(text(&value));
        } else {
            let metadata = [metadata(&got.headers, ""), metadata(&got.headers, "trailer-")].concat();
            answer.failure = Some(Failure { metadata: sorted(metadata), ..failure(&value) });
        }
        return answer;
    }
    answer.head = metadata(&got.headers, "grpc-metadata-");
    answer.trailers = metadata(&got.trailers, "grpc-trailer-");
    for line in got.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let value: Value = serde_json::from_slice(line).unwrap();
        if let Some(error) = value.get("error").or((got.status != 200).then_some(&value)) {
            // The head of a stream that has begun is not the failure's.
            let head = std::mem::take(&mut answer.head);
            let mut metadata = std::mem::take(&mut answer.trailers);
            if got.status != 200 {
                metadata = sorted([head, crate::http::metadata(&got.headers, "grpc-trailer-")].concat());
            }
            answer.failure = Some(Failure { metadata, ..failure(error) });
        } else {
            answer.messages.push(text(value.get("result").unwrap_or(&value)));
        }
    }
    answer
}

pub(crate) fn text(message: &Value) -> String {
    message.get("text").map_or("", |text| text.as_str().unwrap()).to_owned()
}

/// An error object with its code by number or by name.
fn failure(error: &Value) -> Failure {
    let code = match &error["code"] {
        Value::Number(number) => Code::from_number(number.as_u64().unwrap() as u16),
        name => Code::ALL.into_iter().find(|code| Some(code.name()) == name.as_str()).unwrap(),
    };
    let detail = |detail: &Value| {
        let name = detail.get("type").or(detail.get("@type")).unwrap().as_str().unwrap();
        let value = STANDARD_NO_PAD.decode(detail["value"].as_str().unwrap().trim_end_matches('=')).unwrap();
        (name.rsplit('/').next().unwrap().to_owned(), value)
    };
    Failure {
        code: Some(code),
        message: error["message"].as_str().unwrap_or_default().to_owned(),
        details: error["details"].as_array().into_iter().flatten().map(detail).collect(),
        metadata: Vec::new(),
    }
}
