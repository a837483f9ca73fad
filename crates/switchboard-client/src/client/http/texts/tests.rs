//! Limit of the bytes that wait for a server that does not read.

use super::*;
use std::{
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};
use switchboard_core::Limits;
use tokio::io::DuplexStream;

/// The least that `outbox_bytes_max` may be.
const OUTBOX: usize = 64 << 10;
/// Bytes that the server takes without reading.
const PIPE: usize = 1 << 10;

/// A connection and its server; the connection's task writes until the server stops reading.
fn connection() -> (Arc<Texts>, DuplexStream) {
    let limits = Limits::default();
    let texts = Arc::new(Texts {
        state: Mutex::default(),
        wake: Notify::new(),
        peer: "test".to_owned(),
        calls_max: limits.get(Limit::CallsMax) as usize,
        message_bytes_max: limits.get(Limit::MessageBytesMax) as usize,
        window_bytes: limits.get(Limit::StreamWindowBytes) as usize,
        outbox_bytes_max: OUTBOX,
        room: Notify::new(),
    });
    let (near, far) = tokio::io::duplex(PIPE);
    let (writer, io) = (texts.clone(), Box::new(near) as Box<dyn Io>);
    tokio::spawn(async move { writer.write(tokio::io::split(io).1).await });
    (texts, far)
}

/// Parameters of half of what may wait.
fn half() -> Vec<u8> {
    format!("[\"{}\"]", "x".repeat(OUTBOX / 2)).into_bytes()
}

fn send(texts: &Arc<Texts>) -> Sent {
    texts.clone().send("a.B.C", &half(), None).expect("the connection is open")
}

fn has_room(texts: &Texts) -> bool {
    pin!(texts.room()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("this hangs")
}

/// Waits until a text is being written, and no longer in the queue.
async fn begun(texts: &Texts, queued: usize) {
    soon(async {
        while texts.lock().out.len() > queued {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Reads what was sent until nothing waits; the ids of the requests, and `cancel` for the rest.
async fn read_all(texts: &Texts, far: &mut DuplexStream) -> Vec<String> {
    let mut bytes = Vec::new();
    soon(async {
        while texts.lock().out_bytes > 0 {
            far.read_buf(&mut bytes).await.expect("the connection is open");
        }
    })
    .await;
    // The rest of the last text is in the pipe.
    while let Ok(Ok(1..)) = tokio::time::timeout(Duration::ZERO, far.read_buf(&mut bytes)).await {}
    let texts = serde_json::Deserializer::from_slice(&bytes).into_iter::<serde_json::Value>();
    let id = |text: serde_json::Value| match &text["id"] {
        serde_json::Value::Null => "cancel".to_owned(),
        id => id.to_string(),
    };
    texts.map(|text| id(text.expect("a whole text"))).collect()
}

#[tokio::test]
async fn calls_wait_while_the_server_does_not_read() {
    let (texts, mut far) = connection();
    let first = send(&texts);
    begun(&texts, 0).await;
    assert!(has_room(&texts), "half of the limit waits");
    let second = send(&texts);
    assert!(texts.lock().out_bytes >= OUTBOX);
    assert!(!has_room(&texts), "the text that is being written counts as well");
    let waiting = tokio::spawn({
        let texts = texts.clone();
        async move {
            texts.room().await;
            send(&texts)
        }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let mut ids = read_all(&texts, &mut far).await;
    let third = soon(waiting).await.unwrap();
    ids.extend(read_all(&texts, &mut far).await);
    assert_eq!(ids, ["1", "2", "3"]);
    assert_eq!(texts.lock().out_bytes, 0);
    drop((first, second, third));
}

#[tokio::test]
async fn what_abandoned_calls_left_is_not_written_and_makes_room() {
    let (texts, mut far) = connection();
    let first = send(&texts);
    begun(&texts, 0).await;
    let second = send(&texts);
    assert!(!has_room(&texts));
    let waiting = tokio::spawn({
        let texts = texts.clone();
        async move {
            texts.room().await;
            send(&texts)
        }
    });
    tokio::task::yield_now().await;
    drop(second);
    let third = soon(waiting).await.unwrap();
    // One that is being written is written to its end, and canceled behind all that waits.
    drop(first);
    assert_eq!(read_all(&texts, &mut far).await, ["1", "3", "cancel"]);
    assert_eq!(texts.lock().calls.len(), 1);
    drop(third);
}

#[tokio::test]
async fn calls_that_wait_end_with_their_connection() {
    let (texts, _far) = connection();
    let (_first, _second) = (send(&texts), send(&texts));
    assert!(!has_room(&texts));
    let waiting = tokio::spawn({
        let texts = texts.clone();
        async move {
            texts.room().await;
            texts.clone().send("a.B.C", b"[]", None).err()
        }
    });
    tokio::task::yield_now().await;
    texts.end("it was aborted");
    let status = soon(waiting).await.unwrap().expect("no call begins");
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe));
}
