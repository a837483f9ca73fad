//! Answers that are kept by `idempotency-key`.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use switchboard::{
    Call, Code, Reply, Retry, Service, ServiceInfo,
    auth::{Caller, Tokens},
    guard::ResultCache,
    layer,
};
use tokio::sync::{Notify, Semaphore};

/// The service behind the cache.
struct Runs {
    count: AtomicU64,
    changed: Notify,
    /// Calls that ask for it wait for a place here.
    gate: Semaphore,
}

/// A probe that counts its calls.
struct Counted(Probe, Arc<Runs>);

impl Service for Counted {
    fn info(&self) -> &'static ServiceInfo {
        self.0.info()
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let Counted(probe, seen) = self;
        seen.count.fetch_add(1, Ordering::SeqCst);
        seen.changed.notify_waiters();
        match call.cx().metadata().text("x-do") {
            Some("refuse") => return Err(Status::unavailable("not now").with_retry(Retry::Safe)),
            Some("wait") => seen.gate.acquire().await.unwrap().forget(),
            _ => {}
        }
        probe.call(call).await
    }
}

/// Starts a server that keeps the answers of all methods, and says what runs.
async fn keeping(server: Server) -> (Running, Arc<Runs>) {
    let runs = Arc::new(Runs { count: AtomicU64::new(0), changed: Notify::new(), gate: Semaphore::new(0) });
    let server =
        server.add(Counted(Probe::default(), runs.clone())).result_cache(ResultCache::of("test.Probe/*"));
    (server.listen("tcp://127.0.0.1:0").start().await.expect("start"), runs)
}

impl Runs {
    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    async fn until(&self, count: u64) {
        soon(async {
            loop {
                let changed = self.changed.notified();
                if self.count() == count {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }
}

fn echo(client: &Client, key: &str, sent: &[u8]) -> switchboard::UnaryCall<Vec<u8>> {
    client.call::<Vec<u8>>(&ECHO, &sent.to_vec()).idempotency_key(key.to_owned())
}

#[tokio::test]
async fn call_that_comes_twice_runs_once_on_every_wire() {
    let (running, runs) = keeping(Server::new()).await;
    // JSON-RPC has no metadata.
    for (at, (options, codec)) in WIRES.into_iter().take(5).enumerate() {
        let client = Client::on(&running, options, codec).await;
        let key = format!("key {options}");
        let first = soon(echo(&client, &key, &[1, 2])).await.unwrap();
        let again = soon(echo(&client, &key, &[1, 2])).await.unwrap();
        assert_eq!((&*first, &*again), (&vec![1, 2], &vec![1, 2]), "{options}");
        assert_eq!(first.meta().text("idempotency-replayed"), None, "{options}");
        assert_eq!(again.meta().text("idempotency-replayed"), Some("true"), "{options}");
        assert_eq!(runs.count(), at as u64 * 2 + 1, "{options}");
        let status = failed(soon(echo(&client, &key, &[3])).await);
        assert_eq!(status.code(), Code::InvalidArgument, "{options}: {status}");
        assert_eq!(client.echo().await.unwrap(), [1, 2], "without a key it runs");
        assert_eq!(runs.count(), at as u64 * 2 + 2, "{options}");
    }
    let client = Client::on(&running, "", Codec::Postcard).await;
    for wrong in ["", &"k".repeat(129)] {
        assert_eq!(failed(echo(&client, wrong, &[1]).await).code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn second_waits_for_the_first_which_cannot_be_canceled() {
    let (running, runs) = keeping(Server::new()).await;
    let client = Arc::new(Client::on(&running, "", Codec::Postcard).await);
    let calling = || {
        let client = client.clone();
        tokio::spawn(async move { echo(&client, "k", &[7]).meta("x-do", "wait").await })
    };
    let first = calling();
    runs.until(1).await;
    let others: Vec<_> = (0..10).map(|_| calling()).collect();
    first.abort();
    assert!(first.await.is_err());
    runs.gate.add_permits(1);
    for other in others {
        assert_eq!(*soon(other).await.unwrap().unwrap(), [7]);
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn failures_are_kept_unless_the_call_did_not_begin() {
    let (running, runs) = keeping(Server::new()).await;
    let client = Client::on(&running, "", Codec::Postcard).await;
    for _ in 0..3 {
        let call = client.call::<()>(&FAIL, &"gone").idempotency_key("a");
        let status = failed(soon(call).await);
        assert_eq!((status.code(), status.message()), (Code::NotFound, "gone"));
    }
    for _ in 0..3 {
        let call = client.call::<()>(&PANIC, &()).idempotency_key("a");
        assert_eq!(failed(soon(call).await).code(), Code::Internal);
    }
    assert_eq!(runs.count(), 2, "each method has its own");
    for count in 3..6 {
        let status = failed(soon(echo(&client, "b", &[1]).meta("x-do", "refuse")).await);
        assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe));
        assert_eq!(runs.count(), count);
    }
}

#[tokio::test]
async fn keys_of_one_caller_mean_nothing_to_another() {
    let tokens = Tokens::default().token("one", Caller::new("ann")).token("two", Caller::new("bob"));
    let (running, runs) = keeping(Server::new().auth(tokens)).await;
    for (token, count) in [("one", 1), ("two", 2), ("one", 2)] {
        let client = Client::on(&running, "", Codec::Postcard).await;
        let call = echo(&client, "same", &[1]).meta("authorization", format!("Bearer {token}"));
        soon(call).await.unwrap();
        assert_eq!(runs.count(), count);
    }
}

/// A layer authenticates here, by itself or so that others learn of the caller.
#[tokio::test]
async fn keys_of_callers_that_a_layer_knows_are_apart_and_layers_refuse_before_the_cache() {
    for is_named in [true, false] {
        let users = layer::from_fn("users", move |mut call, next| {
            Box::pin(async move {
                let header = if is_named { "x-user" } else { "authorization" };
                let user = call.cx().metadata().text(header).map(str::to_owned);
                let user = user.ok_or_else(|| Status::unauthenticated("who calls?"))?;
                if is_named {
                    call.cx_mut().set_caller(Caller::new(user));
                }
                next.call(call).await
            })
        });
        let server = Server::new().layer(users);
        let (running, runs) = keeping(server).await;
        let header = if is_named { "x-user" } else { "authorization" };
        for (user, count) in [("ann", 1), ("bob", 2), ("ann", 2)] {
            let client = Client::on(&running, "", Codec::Postcard).await;
            soon(echo(&client, "same", &[1]).meta(header, user)).await.unwrap();
            assert_eq!(runs.count(), count, "{user}");
        }
        let client = Client::on(&running, "", Codec::Postcard).await;
        let status = failed(soon(echo(&client, "same", &[1])).await);
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    }
}

/// A caller that cancels its calls repeatedly has at most as many running as the limit allows.
#[tokio::test]
async fn call_without_a_caller_holds_its_place_until_it_has_ended() {
    let (running, runs) = keeping(Server::new().concurrency(1)).await;
    let client = Arc::new(Client::on(&running, "", Codec::Postcard).await);
    let caller = client.clone();
    let first = tokio::spawn(async move { echo(&caller, "k", &[7]).meta("x-do", "wait").await });
    runs.until(1).await;
    first.abort();
    assert!(first.await.is_err());
    // On the same connection, behind the end of the first call.
    for key in ["k", "other"] {
        let status = failed(soon(echo(&client, key, &[7])).await);
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    assert_eq!((runs.count(), running.concurrency()[0].in_flight), (1, 1));
    runs.gate.add_permits(1);
    concurrency::until(|| running.concurrency()[0].in_flight == 0).await;
    assert_eq!(*soon(echo(&client, "k", &[7])).await.unwrap(), [7]);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn unknown_methods_are_refused() {
    let cache = ResultCache::of("test.Probe/Nope");
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0").result_cache(cache);
    let error = config_error(server.start().await);
    assert!(error.contains("result_cache: ") && error.contains("Nope"), "{error}");
}
