//! A watch that is dropped while it connects, lists or follows leaves no connection, task or back end behind.
#![allow(clippy::unwrap_used, reason = "what fails to be set up fails the test")]

mod suite;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use switchboard::{
    Result, Running, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Instance, Registration, Registry},
};

/// A list arrives after fewer polls of its watch.
const POLLS_MAX: usize = 60;

/// Polls at most so often, while everything else goes on; true when it has ended.
async fn poll_times(work: impl Future, times: usize) -> bool {
    let mut work = pin!(work);
    for _ in 0..times {
        if poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await.is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Waits until `is` holds, in time that jumps, far sooner than an idle connection would be closed.
async fn soon(is: impl Fn() -> bool, what: &str) {
    for _ in 0..100 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}");
}

/// Drops a watch, and then its registry, after each number of polls until the first list is there.
#[allow(dead_code, reason = "none of the registries here may be compiled")]
async fn dropped_at_each_poll(server: &Running, connect: impl Fn() -> Box<dyn Registry>) {
    let mut ended = false;
    for times in 0..POLLS_MAX {
        let registry = connect();
        let mut watch = registry.watch("s");
        ended = poll_times(watch.changed(), times).await;
        drop(watch);
        drop(registry);
        let what = format!("connections stay open after {times} polls");
        soon(|| server.stats().connections == 0, &what).await;
        if ended {
            break;
        }
    }
    assert!(ended, "no list arrived within {POLLS_MAX} polls");
}

#[cfg(feature = "etcd")]
#[tokio::test(start_paused = true)]
async fn watch_of_etcd_is_dropped_at_each_poll() {
    let (fault, _) = suite::fault();
    let (changes, _) = tokio::sync::broadcast::channel(8);
    let server = suite::etcd::serve("memory://dropped-etcd", fault, changes).await;
    dropped_at_each_poll(&server, || {
        let registry = switchboard_registry::Etcd::connect("memory://dropped-etcd", "", suite::believing());
        Box::new(registry.unwrap())
    })
    .await;
}

#[cfg(feature = "embedded")]
#[tokio::test(start_paused = true)]
async fn watch_of_the_embedded_registry_is_dropped_at_each_poll() {
    let server = switchboard::Server::new().add(switchboard_registry::EmbeddedServer::new());
    let server = server.listen("memory://dropped-embedded").start().await.unwrap();
    dropped_at_each_poll(&server, || {
        let url = "memory://dropped-embedded";
        Box::new(switchboard_registry::Embedded::connect(url, suite::believing()).unwrap())
    })
    .await;
}

/// Publishes one instance after a few turns, and holds its token for as long as it follows.
struct Slow(Arc<()>);

impl Backend for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn follow<'a>(&'a self, _: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<std::convert::Infallible>> {
        let token = self.0.clone();
        Box::pin(async move {
            let _token = token;
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            feed.publish([Ok(suite::instance("s", 1))]);
            std::future::pending().await
        })
    }

    fn register<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async { Err(Status::unimplemented("nothing is registered here")) })
    }
}

#[tokio::test(start_paused = true)]
async fn back_end_follows_no_longer_than_it_is_watched_and_goes_with_its_registry() {
    let mut ended = false;
    for times in 0..POLLS_MAX {
        let token = Arc::new(());
        let registry = Discovery::new(Slow(token.clone()), suite::believing());
        let mut watch = registry.watch("s");
        let other = watch.clone();
        ended = poll_times(watch.changed(), times).await;
        drop(watch);
        // The test, the back end and what it follows for the other watch.
        assert_eq!(Arc::strong_count(&token), 3, "after {times} polls");
        drop(other);
        soon(|| Arc::strong_count(&token) == 2, &format!("it follows on after {times} polls")).await;
        drop(registry);
        soon(|| Arc::strong_count(&token) == 1, &format!("the back end stays after {times} polls")).await;
        if ended {
            break;
        }
    }
    assert!(ended, "no list arrived within {POLLS_MAX} polls");
}
