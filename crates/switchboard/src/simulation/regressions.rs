//! What simulations have found, each in as few steps as it takes.

use crate::{Channel, Code, Codec, net::memory, simulation::service::READ};
use bytes::Bytes;
use std::{future::IntoFuture, time::Duration};
use tokio::time::{advance, timeout};

const SOON: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn deadline_that_passes_as_the_connection_is_given_up_ends_its_call() {
    let mut silent = memory::Listener::bind("sim-silent").unwrap();
    let channel = Channel::builder("memory://sim-silent").keepalive(Duration::from_secs(1)).lazy().unwrap();
    let call = channel.unary(&READ, Codec::Postcard, Ok(Bytes::new()), |_, reply: Bytes| Ok(reply));
    let call = tokio::spawn(call.timeout(Duration::from_secs(3)).into_future());
    let held = silent.accept().await.unwrap();
    // The ping that nobody answers, and long after it everything at once.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    advance(Duration::from_secs(60)).await;
    let status = timeout(SOON, call).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    drop(held);
}
