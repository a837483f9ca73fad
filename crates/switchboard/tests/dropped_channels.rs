//! A channel that is dropped while it dials, connects again or is yet to hear of its servers leaves no connection.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use bytes::Bytes;
use std::{future::Future, pin::pin, task::Context, time::Duration};
use support::{
    mirror::{Mirror, SHOW},
    raw::soon,
};
use switchboard::{Channel, Codec, Result, Running, Server, StopOptions};

const OPTIONS: [&str; 9] = [
    "",
    "?compression=gzip",
    "?wire=rpcx&network=http",
    "?wire=thrift",
    "?wire=grpc",
    "?wire=connect&http=1",
    "?wire=jsonrpc",
    "?balance=random",
    "?connections=2&wire=baidu_std",
];
/// A call to a server in memory is answered after fewer polls.
const POLLS_MAX: usize = 40;

async fn call(channel: &Channel) -> Result<()> {
    let codec = channel.codec(Codec::Proto);
    let message = if codec == Codec::Json { Bytes::from_static(b"{}") } else { Bytes::from_static(&[0]) };
    channel.unary(&SHOW, codec, Ok(message), |_, bytes| Ok(bytes)).await.map(drop)
}

/// Polls at most so often, while everything else goes on; true when it has ended.
async fn poll_times(work: impl Future, times: usize) -> bool {
    let mut work = pin!(work);
    for _ in 0..times {
        let polled =
            std::future::poll_fn(|cx: &mut Context<'_>| std::task::Poll::Ready(work.as_mut().poll(cx)));
        if polled.await.is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// A server at a name that the one before gives up soon.
async fn start(address: &str) -> Running {
    let started = async {
        loop {
            if let Ok(running) = Server::new().add(Mirror).listen(address).start().await {
                return running;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(started).await
}

/// With a clock that jumps, far sooner than the server would close connections on which nothing is said.
async fn all_closed(running: &Running, of: &str) {
    for _ in 0..300 {
        if running.stats().connections == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{of}: {} connections stay open", running.stats().connections);
}

#[tokio::test(start_paused = true)]
async fn dropped_at_each_poll_of_the_first_call() {
    let running = Server::new().add(Mirror).listen("memory://dropped-first").start().await.unwrap();
    for options in OPTIONS {
        let mut ended = false;
        for times in 1..POLLS_MAX {
            let channel = Channel::builder(&format!("memory://dropped-first{options}")).lazy().unwrap();
            ended = poll_times(call(&channel), times).await;
            drop(channel);
            all_closed(&running, &format!("{options}, after {times} polls")).await;
            if ended {
                break;
            }
        }
        assert!(ended, "{options}: no call was answered within {POLLS_MAX} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_at_each_poll_of_a_call_that_connects_again() {
    for options in OPTIONS {
        for times in 1..POLLS_MAX {
            let first = start("memory://dropped-again").await;
            let channel = Channel::connect(&format!("memory://dropped-again{options}")).await.unwrap();
            soon(call(&channel)).await.unwrap();
            first.stop(StopOptions::new().drain(Duration::ZERO).close(Duration::from_secs(1))).await;
            let second = start("memory://dropped-again").await;
            let ended = poll_times(call(&channel), times).await;
            drop(channel);
            all_closed(&second, &format!("{options}, after {times} polls")).await;
            second.stop(StopOptions::new().drain(Duration::ZERO).close(Duration::from_secs(1))).await;
            if ended {
                break;
            }
        }
    }
}
