//! Answers that are kept for a while, so that a call that comes twice runs once: safe retries of writes.
//!
//! A caller gives a call a key of its own, the metadata `idempotency-key`, and sends it again under the same key when
//! it does not know what became of it. The first runs, to its end, whatever becomes of its caller; the others get what
//! it answered. Works on every wire that has metadata.

mod store;

use crate::{
    Call, Code, Kind, Layer, Metadata, Next, Reply, Result, Retry, Status,
    call::{ReplyBody, ReplyParts, RequestBody},
    context,
    layer::BoxFuture,
};
use bytes::Bytes;
use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};
use store::{Begun, Store};

/// Answers of these methods that are kept, see [`Server::result_cache`](crate::Server::result_cache).
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
    /// Keeps what the unary methods among these answer, `package.Service/Method`, in which a star stands for anything:
    /// 10,000 answers of 16 MiB in all, for five minutes.
    pub fn of(methods: impl Into<String>) -> ResultCache {
        let (entries, bytes, age) = (10_000, 16 << 20, Duration::from_secs(300));
        ResultCache { methods: methods.into(), entries, bytes, age, refuses: false }
    }

    /// So many answers, calls that run included. When there are more, the oldest is forgotten: the same key then runs
    /// again. While all of them run, further calls with a key are refused with `ResourceExhausted`.
    pub fn entries(mut self, most: usize) -> ResultCache {
        self.entries = most.max(1);
        self
    }

    /// So many bytes of answers, keys and metadata included; above, the oldest are forgotten. Of an answer that has
    /// more than a quarter of it only that it was given is kept: the same key gets `AlreadyExists`.
    pub fn bytes(mut self, most: usize) -> ResultCache {
        self.bytes = most.max(1024);
        self
    }

    /// For so long, from the end of a call.
    pub fn age(mut self, age: Duration) -> ResultCache {
        self.age = age;
        self
    }

    /// Forgets nothing before its time: while there is no room, calls with a key are refused with
    /// `ResourceExhausted` and the time after which to try again.
    pub fn refuse_when_full(mut self) -> ResultCache {
        self.refuses = true;
        self
    }

    /// The cache itself.
    pub(super) fn build(&self) -> Arc<Store> {
        Arc::new(Store::new(self.entries, self.bytes, self.age, self.refuses))
    }
}

/// The metadata with a call's key.
pub(crate) const KEY: &str = "idempotency-key";
/// Set on answers that were kept.
const REPLAYED: &str = "idempotency-replayed";
/// Bytes of a key.
const KEY_MAX: usize = 128;

/// The part of a chain that keeps answers of one service.
pub(super) struct Keeper {
    store: Arc<Store>,
    /// Tells services that share a store apart.
    service: u16,
    /// Which methods, by index.
    methods: Vec<bool>,
    seeds: RandomState,
}

impl Keeper {
    pub(super) fn new(store: Arc<Store>, service: u16, methods: Vec<bool>) -> Keeper {
        Keeper { store, service, methods, seeds: RandomState::new() }
    }

    /// Answers a call that has a key.
    async fn answer(&self, call: Call, key: Bytes, next: Next<'_>) -> Result<Reply> {
        if key.is_empty() || key.len() > KEY_MAX {
            let text = format!("{KEY} has {} bytes where 1 to {KEY_MAX} belong", key.len());
            return Err(Status::invalid_argument(text));
        }
        let RequestBody::One(message) = call.body() else { return next.call(call).await };
        let request = self.seeds.hash_one((call.codec(), &message[..]));
        let key = self.key(&call, &key);
        loop {
            match self.store.begin(&key, request, crate::clock::now()) {
                Begun::First(running) => {
                    let (deadline, trace) = (call.cx().deadline(), call.cx().shared_trace());
                    let mut work = next.detached(call);
                    // Nobody who hangs up can stop it half way.
                    let work = crate::runtime::spawn(async move {
                        let poll = |cx: &mut std::task::Context<'_>| {
                            context::scope(deadline, trace.as_ref(), || work.as_mut().poll(cx))
                        };
                        match Kept::of(poll_fn(poll).await) {
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
                // Whoever began it gives up its place without an answer when it did not begin.
                Begun::Runs(mut end) => {
                    // It never changes, and its end is an error.
                    let _ = end.changed().await;
                }
                Begun::Ended(kept) => return kept.reply(true),
                Begun::Another => {
                    let text = format!("this {KEY} belongs to a call with another request");
                    return Err(Status::invalid_argument(text));
                }
                Begun::Full(pause) => {
                    let text = "no room to keep another answer (result_cache)";
                    return Err(Status::resource_exhausted(text).with_retry(Retry::After(pause)));
                }
            }
        }
    }

    /// Keys belong to a method and to a caller: nobody gets what another one was told.
    fn key(&self, call: &Call, key: &[u8]) -> Arc<[u8]> {
        let caller = call.cx().caller().map_or(&b""[..], |caller| caller.name.as_bytes());
        let parts = [&self.service.to_le_bytes()[..], &call.method().to_le_bytes()];
        let length = (caller.len() as u32).to_le_bytes();
        [parts[0], parts[1], &length, caller, key].concat().into()
    }
}

impl Layer for Keeper {
    fn name(&self) -> &str {
        "result cache"
    }

    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        let covered = self.methods.get(usize::from(call.method())).is_some_and(|covered| *covered)
            && call.cx().method().kind == Kind::Unary;
        match call.cx().metadata().value(KEY).filter(|_| covered).cloned() {
            Some(key) => Box::pin(self.answer(call, key, next)),
            None => next.call(call),
        }
    }
}

/// An answer that can be given again.
#[derive(Debug)]
enum Kept {
    Answer {
        message: Bytes,
        head: Metadata,
        trailers: Metadata,
    },
    Failure(Status),
    /// It was too large to be kept.
    Bytes(usize),
}

impl Kept {
    /// The answer of a call that ran.
    ///
    /// # Errors
    /// The failure of one that surely did not begin: the next try is to run.
    fn of(answer: Result<Reply>) -> Result<Kept> {
        match answer.map(Reply::into_parts) {
            Ok(ReplyParts { metadata: head, trailers, body: ReplyBody::One(message) }) => {
                Ok(Kept::Answer { message: message.into_whole(), head, trailers })
            }
            Ok(_) => Err(Status::internal("a stream of replies where one belongs")),
            Err(status) if matches!(status.retry(), Retry::Safe | Retry::After(_)) => Err(status),
            // It would be the same failure again.
            Err(status) => Ok(Kept::Failure(status.with_retry(Retry::No))),
        }
    }

    fn reply(&self, again: bool) -> Result<Reply> {
        match self {
            Kept::Answer { message, head, trailers } => {
                let mut head = head.clone();
                if again {
                    // A full head stays as it is.
                    let _ = head.insert(REPLAYED, "true");
                }
                let body = ReplyBody::One(message.clone().into());
                Ok(ReplyParts { metadata: head, trailers: trailers.clone(), body }.into())
            }
            Kept::Failure(status) => Err(status.clone()),
            Kept::Bytes(bytes) => {
                let text = format!("the call has run; its answer of {bytes} bytes was too large to be kept");
                Err(Status::new(Code::AlreadyExists, text))
            }
        }
    }

    /// Bytes that it takes.
    fn len(&self) -> usize {
        let of = |metadata: &Metadata| {
            metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
        };
        match self {
            Kept::Answer { message, head, trailers } => message.len() + of(head) + of(trailers),
            Kept::Failure(status) => {
                let details = status.details().iter().map(|detail| detail.value.len()).sum::<usize>();
                status.message().len() + details + of(status.metadata())
            }
            Kept::Bytes(_) => 0,
        }
    }
}
