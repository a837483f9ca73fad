//! Receivers as streams of `futures`, and receivers that a fake of a service returns.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use futures_core::Stream;
use futures_sink::Sink;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};
use support::{chat, count, raw::soon, served};
use switchboard::{Code, Receiver, Result, Status};

/// Polls a stream to its end, and once more.
async fn all<T>(stream: impl Stream<Item = Result<T>>) -> (Vec<T>, Option<Status>) {
    let (mut stream, mut messages, mut failure) = (pin!(stream), Vec::new(), None);
    while let Some(next) = soon(poll_fn(|cx| stream.as_mut().poll_next(cx))).await {
        assert!(failure.is_none(), "a message after the error");
        match next {
            Ok(message) => messages.push(message),
            Err(status) => failure = Some(status),
        }
    }
    (messages, failure)
}

/// Yields numbers, waits once before each, and fails after the last.
struct Numbers {
    next: u32,
    last: u32,
    is_ready: bool,
}

impl Stream for Numbers {
    type Item = Result<u32>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<u32>>> {
        self.is_ready = !self.is_ready;
        if self.is_ready {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.next += 1;
        assert!(self.next <= self.last + 1, "polled after the error");
        Poll::Ready(Some(if self.next > self.last { Err(Status::aborted("enough")) } else { Ok(self.next) }))
    }
}

#[tokio::test]
async fn replies_are_a_stream() {
    let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
    let (messages, failure) = all(count(&channel, 5, 10).await.unwrap()).await;
    assert_eq!((messages.len(), failure.map(|status| status.code())), (5, None));
    let limited = count(&channel, 1000, 5000).reply_bytes_max(4000).await.unwrap();
    let (messages, failure) = all(limited).await;
    assert_eq!((messages.len(), failure.unwrap().code()), (0, Code::ResourceExhausted));
}

#[tokio::test]
async fn senders_are_sinks() {
    let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
    let (sender, mut replies) = chat(&channel).await.unwrap();
    let mut sender = pin!(sender);
    for text in ["a", "b"] {
        soon(poll_fn(|cx| sender.as_mut().poll_ready(cx))).await.unwrap();
        sender.as_mut().start_send(text.to_owned()).unwrap();
        soon(poll_fn(|cx| sender.as_mut().poll_flush(cx))).await.unwrap();
        assert!(soon(replies.next()).await.unwrap().unwrap().eq_ignore_ascii_case(text));
    }
    soon(poll_fn(|cx| sender.as_mut().poll_close(cx))).await.unwrap();
    assert_eq!(sender.as_mut().start_send("late".into()).unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(all(replies).await.1.map(|status| status.code()), None);
}

#[tokio::test]
async fn a_full_sink_is_not_ready() {
    let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
    let (sender, replies) = chat(&channel).await.unwrap();
    let mut sender = pin!(sender);
    let text = "x".repeat(16 << 10);
    // Without a wait in between, the connection cannot send.
    let accepted = poll_fn(|cx| {
        let mut accepted = 0;
        while sender.as_mut().poll_ready(cx)?.is_ready() {
            sender.as_mut().start_send(text.clone())?;
            accepted += 1;
            assert!(accepted < 10_000, "the queue has no limit");
        }
        Poll::Ready(Ok::<_, Status>(accepted))
    });
    assert!(accepted.await.unwrap() > 0);
    drop(replies);
    let failed = soon(poll_fn(|cx| sender.as_mut().poll_ready(cx))).await.unwrap_err();
    assert_eq!(failed.code(), Code::Canceled);
}

#[tokio::test]
async fn fakes_return_receivers() {
    let mut listed: Receiver<u32> = (1..=3).collect();
    assert!(listed.metadata().await.is_empty() && listed.trailers().is_empty());
    assert_eq!(listed.next().await.unwrap(), Some(1));
    assert_eq!(all(listed).await.0, [2, 3]);

    let numbers = || Receiver::from_stream(Numbers { next: 0, last: 2, is_ready: false });
    let (messages, failure) = all(numbers()).await;
    assert_eq!((messages, failure.unwrap().code()), (vec![1, 2], Code::Aborted));
    let mut read = numbers();
    assert_eq!((read.next().await.unwrap(), read.next().await.unwrap()), (Some(1), Some(2)));
    assert_eq!(read.next().await.unwrap_err().code(), Code::Aborted);
    assert_eq!(read.next().await.unwrap(), None);
}
