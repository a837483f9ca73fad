//! Result cache: stored responses, so that a repeated call runs once and writes can be retried safely.
//!
//! A caller sends a key with each call, in the metadata `idempotency-key`, and repeats the call under the
//! same key if its outcome is unknown. The first call runs to its end, even if its caller cancels; the
//! repeated calls get its response. Works on every wire with metadata.

mod store;

use bytes::Bytes;
use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};
use store::{KeyLookup, Store};
use switchboard_core::{
    Call, Layer, Next, Reply, Result,
    call::{ReplyBody, ReplyParts, RequestBody},
    context,
    layer::BoxFuture,
    reserved::IDEMPOTENCY_KEY,
};
use switchboard_wire::{Code, Kind, Metadata, Retry, Status};

/// Stores responses of the selected methods, see `Server::result_cache`.
///
/// ```
/// use std::time::Duration;
/// use switchboard::guard::ResultCache;
///
/// let server = switchboard::Server::new()
///     .result_cache(ResultCache::of("shop.Orders/*").entries(50_000).age(Duration::from_secs(600)));
/// ```
#[derive(Clone, Debug)]
#[must_use = "it holds once a server has it"]
pub struct ResultCache {
    pub(super) methods: String,
    entries: usize,
    bytes: usize,
    age: Duration,
    refuses: bool,
}

impl ResultCache {
    /// Stores responses of the unary methods that match the pattern, `package.Service/Method`, in which a
    /// star matches any text. The defaults are 10,000 responses of 16 MiB in all, for five minutes.
    pub fn of(methods: impl Into<String>) -> ResultCache {
        let (entries, bytes, age) = (10_000, 16 << 20, Duration::from_secs(300));
        ResultCache { methods: methods.into(), entries, bytes, age, refuses: false }
    }

    /// Sets the maximum number of responses, including running calls. Above it the oldest response is
    /// dropped, and a call with its key runs again. While all of them are running calls, further calls with a
    /// key are rejected with `ResourceExhausted`.
    pub fn entries(mut self, most: usize) -> ResultCache {
        self.entries = most.max(1);
        self
    }

    /// Sets the maximum number of bytes of responses, including keys and metadata; above it the oldest are
    /// dropped. Of a response that needs more than a quarter of it, only the fact that it was sent is stored:
    /// a call with the same key gets `AlreadyExists`.
    pub fn bytes(mut self, most: usize) -> ResultCache {
        self.bytes = most.max(1024);
        self
    }

    /// Sets how long a response is stored, from the end of its call.
    pub fn age(mut self, age: Duration) -> ResultCache {
        self.age = age;
        self
    }

    /// Drops no response before its time: while the cache is full, calls with a key are rejected with
    /// `ResourceExhausted` and the time after which to retry.
    pub fn refuse_when_full(mut self) -> ResultCache {
        self.refuses = true;
        self
    }

    /// Creates the cache.
    pub(super) fn build(&self) -> Arc<Store> {
        Arc::new(Store::new(self.entries, self.bytes, self.age, self.refuses))
    }
}

/// Metadata that is set on stored responses.
const REPLAYED: &str = "idempotency-replayed";
/// Metadata that distinguishes callers where no guard and no layer identifies the caller.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];
/// Maximum length of a key in bytes.
const KEY_MAX: usize = 128;

/// The layer that stores the responses of one service.
pub(super) struct Keeper {
    store: Arc<Store>,
    /// Distinguishes services that share a store.
    service: u16,
    /// Selected methods, by index.
    methods: Vec<bool>,
    seeds: RandomState,
}

impl Keeper {
    pub(super) fn new(store: Arc<Store>, service: u16, methods: Vec<bool>) -> Keeper {
        Keeper { store, service, methods, seeds: RandomState::new() }
    }

    /// Serves a call that has a key.
    async fn answer(&self, call: Call, key: Bytes, next: Next<'_>) -> Result<Reply> {
        if key.is_empty() || key.len() > KEY_MAX {
            let text = format!("{IDEMPOTENCY_KEY} has {} bytes where 1 to {KEY_MAX} belong", key.len());
            return Err(Status::invalid_argument(text));
        }
        let RequestBody::One(message) = call.body() else { return next.call(call).await };
        let request = self.seeds.hash_one((call.codec(), &message[..]));
        let key = self.key(&call, &key);
        loop {
            match self.store.begin(&key, request, switchboard_core::clock::now()) {
                KeyLookup::First(running) => {
                    let (deadline, trace) = (call.cx().deadline(), call.cx().shared_trace());
                    let mut work = next.detached(call);
                    // A canceled call must not stop the work half way.
                    let work = switchboard_core::runtime::spawn(async move {
                        let poll = |cx: &mut std::task::Context<'_>| {
                            context::scope(deadline, trace.as_ref(), || work.as_mut().poll(cx))
                        };
                        match StoredResponse::of(poll_fn(poll).await) {
                            Ok(kept) => Ok(running.end(kept)),
                            Err(status) => {
                                running.not_begun();
                                Err(status)
                            }
                        }
                    });
                    return match work.await {
                        Ok(Ok(kept)) => kept.reply(false),
                        Ok(Err(status)) => Err(status),
                        Err(_) => Err(Status::internal("handler panicked")),
                    };
                }
                // If the running call ends without having started its work, this call tries again.
                KeyLookup::Runs(mut end) => {
                    // The channel carries no values; its closing signals the end.
                    let _ = end.changed().await;
                }
                KeyLookup::Ended(kept) => return kept.reply(true),
                KeyLookup::Another => {
                    let text = format!("this {IDEMPOTENCY_KEY} belongs to a call with another request");
                    return Err(Status::invalid_argument(text));
                }
                KeyLookup::Full(pause) => {
                    let text = "the result cache is full (result_cache); retry later";
                    return Err(Status::resource_exhausted(text).with_retry(Retry::After(pause)));
                }
            }
        }
    }

    /// Builds the cache key: it includes the method and the caller, so that no caller gets the response of
    /// another caller's call.
    fn key(&self, call: &Call, key: &[u8]) -> Arc<[u8]> {
        let cx = call.cx();
        // A layer that authenticates without `set_caller` does so with metadata of the call, usually one of
        // these entries.
        let unnamed = || {
            let brought = CREDENTIALS.map(|name| cx.metadata().value(name));
            let identity = cx.peer().identity.as_ref().map(|identity| &identity.subject);
            self.seeds.hash_one((brought, identity)).to_le_bytes()
        };
        let hashed;
        let (is_named, caller) = match cx.caller() {
            Some(caller) => (1, caller.name.as_bytes()),
            None => {
                hashed = unnamed();
                (0, &hashed[..])
            }
        };
        let parts = [&self.service.to_le_bytes()[..], &call.method().to_le_bytes(), &[is_named]];
        let length = (caller.len() as u32).to_le_bytes();
        [parts[0], parts[1], parts[2], &length, caller, key].concat().into()
    }
}

impl Layer for Keeper {
    fn name(&self) -> &str {
        "result cache"
    }

    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        let covered = self.methods.get(usize::from(call.method())).is_some_and(|covered| *covered)
            && call.cx().method().kind == Kind::Unary;
        match call.cx().metadata().value(IDEMPOTENCY_KEY).filter(|_| covered).cloned() {
            Some(key) => Box::pin(self.answer(call, key, next)),
            None => next.call(call),
        }
    }
}

/// A stored response.
#[derive(Debug)]
enum StoredResponse {
    Reply {
        message: Bytes,
        head: Metadata,
        trailers: Metadata,
    },
    Failure(Status),
    /// The response was too large to be stored.
    Bytes(usize),
}

impl StoredResponse {
    /// Builds the stored response of a call that ran.
    ///
    /// # Errors
    /// Returns the error of a call that certainly did not start: the next attempt must run.
    fn of(answer: Result<Reply>) -> Result<StoredResponse> {
        match answer.map(Reply::into_parts) {
            Ok(ReplyParts { metadata: head, trailers, body: ReplyBody::One(message) }) => {
                Ok(StoredResponse::Reply { message: message.into_whole(), head, trailers })
            }
            Ok(_) => Err(Status::internal("a stream of replies where one belongs")),
            Err(status) if matches!(status.retry(), Retry::Safe | Retry::After(_)) => Err(status),
            // A retry would fail in the same way.
            Err(status) => Ok(StoredResponse::Failure(status.with_retry(Retry::No))),
        }
    }

    fn reply(&self, again: bool) -> Result<Reply> {
        match self {
            StoredResponse::Reply { message, head, trailers } => {
                let mut head = head.clone();
                if again {
                    // Full metadata is sent unchanged.
                    let _ = head.insert(REPLAYED, "true");
                }
                let body = ReplyBody::One(message.clone().into());
                Ok(ReplyParts { metadata: head, trailers: trailers.clone(), body }.into())
            }
            StoredResponse::Failure(status) => Err(status.clone()),
            StoredResponse::Bytes(bytes) => {
                let text =
                    format!("the call has run; its response of {bytes} bytes was too large to be stored");
                Err(Status::new(Code::AlreadyExists, text))
            }
        }
    }

    /// Returns the size in bytes.
    fn len(&self) -> usize {
        let of = |metadata: &Metadata| {
            metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
        };
        match self {
            StoredResponse::Reply { message, head, trailers } => message.len() + of(head) + of(trailers),
            StoredResponse::Failure(status) => {
                let details = status.details().iter().map(|detail| detail.value.len()).sum::<usize>();
                status.message().len() + details + of(status.metadata())
            }
            StoredResponse::Bytes(_) => 0,
        }
    }
}
