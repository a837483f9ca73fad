//! Callers: each makes one call after the other, of any kind, and checks what it is told.

use super::{
    chance::Chance,
    journal::Journal,
    messages::{read, write},
    service::{Ask, CHAT, COLLECT, LIST, READ, TELL, Told, WRITE},
    ways::Way,
};
use crate::{Code, Compression, Result, Retry, Status};
use bytes::Bytes;
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// What timers that are a millisecond fine, and several of them one after the other, may add to a deadline.
const SLACK: Duration = Duration::from_millis(5);

pub(super) struct Caller {
    pub(super) name: u64,
    pub(super) way: Way,
    pub(super) chance: Chance,
    pub(super) journal: Arc<Journal>,
    pub(super) calls: u64,
    /// Of 100 attempts so many fail at their servers.
    pub(super) fails: u64,
}

/// What a call is like, beside what it asks for.
struct Plan {
    ask: Ask,
    timeout: Option<Duration>,
    key: Option<u64>,
    /// Whether it may be sent twice, if it is a write: `write`, `twice` or `keyed`.
    writing: &'static str,
    compression: Compression,
}

type Calling<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

impl Caller {
    /// Makes all its calls.
    pub(super) async fn run(self) {
        for number in 0..self.calls {
            sleep(self.chance.millis(0..=self.chance.one_of(&[0, 5, 40]))).await;
            self.call(self.name << 32 | number).await;
        }
    }

    async fn call(&self, request: u64) {
        let (plan, streams) = (self.plan(request), self.way.wire.streams);
        let (kind, calling): (_, Calling<'_>) = match self.chance.within(0..=99) {
            45..70 => (plan.writing, Box::pin(self.write(&plan))),
            70..80 if streams.replies => ("list", Box::pin(self.list(&plan))),
            80..87 if streams.requests => ("collect", Box::pin(self.collect(&plan))),
            87..95 if streams.both => ("chat", Box::pin(self.chat(&plan))),
            95.. => ("tell", Box::pin(self.tell(&plan))),
            _ => ("read", Box::pin(self.read(&plan))),
        };
        self.journal.begun();
        self.journal.note(format_args!("{request:x} {kind} within {:?}", plan.timeout));
        // Some callers lose interest.
        let patience = if self.chance.percent(8) { self.chance.millis(0..=60) } else { Duration::MAX };
        let (began, jumped) = (Instant::now(), self.journal.jumped());
        let ended = timeout(patience, calling).await;
        let (took, jumps) = (began.elapsed(), self.journal.jumped() - jumped);
        self.journal.ended();
        // Servers know a write again by its key, where they see it; one that nobody knows again is sent once, unless
        // the peers surely did not begin.
        let begun = |status: &Status| !matches!(status.retry(), Retry::Safe | Retry::After(_));
        let may_have_begun = ended.as_ref().map_or(true, |outcome| outcome.as_ref().err().is_none_or(begun));
        match kind {
            "keyed" if self.way.wire.metadata => self.journal.keyed(request),
            "keyed" | "write" => self.journal.at_most(request, u32::from(may_have_begun)),
            _ => {}
        }
        let Ok(outcome) = ended else {
            return self.journal.note(format_args!("{request:x} {kind}: given up"));
        };
        let limit = plan.timeout.map(|timeout| timeout + SLACK + jumps);
        assert!(
            limit.is_none_or(|limit| took <= limit),
            "{request:x} {kind} took {took:?} of {:?}: {outcome:?}",
            plan.timeout
        );
        match &outcome {
            Ok(()) => {
                self.journal.saw(self.way.wire.name());
                self.journal.note(format_args!("{request:x} {kind}: ok"));
            }
            Err(status) => {
                self.journal.note(format_args!("{request:x} {kind}: {status}"));
                self.check(status, kind, &plan);
                self.way.look(&self.journal);
            }
        }
    }

    /// Makes a call of each kind, which all succeed: what was wrong is over.
    pub(super) async fn call_when_all_is_well(&self) {
        let streams = self.way.wire.streams;
        for (at, kind) in ["read", "write", "list", "collect", "chat", "tell"].into_iter().enumerate() {
            let request = (self.name << 32) | (self.calls + at as u64);
            let ask = Ask { request, work_ms: 1, bytes: 100, count: 3, fails: 0 };
            let plan =
                Plan { ask, timeout: None, key: None, writing: "write", compression: Compression::None };
            let calling: Calling<'_> = match kind {
                "write" => Box::pin(self.write(&plan)),
                "list" if streams.replies => Box::pin(self.list(&plan)),
                "collect" if streams.requests => Box::pin(self.collect(&plan)),
                "chat" if streams.both => Box::pin(self.chat(&plan)),
                "tell" => Box::pin(self.tell(&plan)),
                _ => Box::pin(self.read(&plan)),
            };
            self.journal.begun();
            let outcome = calling.await;
            self.journal.ended();
            let wire = self.way.wire.name();
            self.journal.note(format_args!("{request:x} {kind} on {wire}, all being well: {outcome:?}"));
            if let Err(status) = outcome {
                panic!("{request:x} {kind} on {wire} ended with {status} when all was well");
            }
        }
    }

    fn plan(&self, request: u64) -> Plan {
        let chance = &self.chance;
        let gzip = chance.percent(10) && self.way.wire.compresses;
        let ask = Ask {
            request,
            work_ms: chance.within(0..=chance.one_of(&[0, 0, 10, 300])),
            bytes: (chance.within(0..=chance.one_of(&[20, 20, 2000, 100_000])) as u32)
                .min(self.way.wire.bytes_max),
            count: chance.within(0..=12) as u32,
            fails: self.fails,
        };
        Plan {
            ask,
            timeout: chance.percent(75).then(|| chance.millis(1..=chance.one_of(&[20, 500, 5000]))),
            key: chance.percent(20).then(|| chance.within(0..=5)),
            writing: chance.one_of(&["write", "write", "twice", "keyed"]),
            compression: if gzip { Compression::Gzip } else { Compression::None },
        }
    }

    /// Whether a call may end so.
    fn check(&self, status: &Status, kind: &str, plan: &Plan) {
        let text = status.message();
        let expected = match status.code() {
            Code::Unavailable | Code::ResourceExhausted => true,
            Code::DeadlineExceeded => plan.timeout.is_some(),
            Code::Internal | Code::Aborted => text.contains("half way"),
            Code::NotFound => text.contains("nothing there"),
            Code::InvalidArgument => kind == "collect" && text.contains("nothing came"),
            _ => false,
        };
        let expected = expected || self.way.wire.blurs(status);
        assert!(expected, "{:x} {kind} ended with {status}", plan.ask.request);
    }

    fn answered(&self, told: &Told, plan: &Plan, at: u32) {
        told.answers(&plan.ask, at);
        assert!(self.journal.effects(plan.ask.request) > 0, "a reply to what never ran");
    }

    fn asks(&self, plan: &Plan) -> Result<Bytes> {
        write(&plan.ask, self.way.codec())
    }

    async fn read(&self, plan: &Plan) -> Result<()> {
        let request = self.asks(plan);
        let call = plan.set(self.way.channel.unary(&READ, self.way.codec(), request, read::<Told>));
        call.await.map(|told| self.answered(&told, plan, 0))
    }

    async fn write(&self, plan: &Plan) -> Result<()> {
        let request = self.asks(plan);
        let mut call = plan.set(self.way.channel.unary(&WRITE, self.way.codec(), request, read::<Told>));
        match plan.writing {
            "twice" => call = call.idempotent(),
            "keyed" => call = call.idempotency_key(format!("{:x}", plan.ask.request)),
            _ => {}
        }
        call.await.map(|told| self.answered(&told, plan, 0))
    }

    async fn tell(&self, plan: &Plan) -> Result<()> {
        plan.set(self.way.channel.oneway(&TELL, self.way.codec(), self.asks(plan))).await
    }

    async fn list(&self, plan: &Plan) -> Result<()> {
        let request = self.asks(plan);
        let call = plan.set(self.way.channel.server_stream(&LIST, self.way.codec(), request, read::<Told>));
        let mut replies = call.await?;
        for at in 0..plan.ask.count {
            match replies.next().await? {
                Some(told) => self.answered(&told, plan, at),
                None => panic!("{:x} list ended after {at} of {}", plan.ask.request, plan.ask.count),
            }
        }
        assert!(replies.next().await?.is_none(), "more replies than there are");
        Ok(())
    }

    async fn collect(&self, plan: &Plan) -> Result<()> {
        let call = self.way.channel.client_stream(&COLLECT, self.way.codec(), write::<Ask>, read::<Told>);
        let upload = plan.set(call).await?;
        for _ in 0..plan.ask.count {
            // Why it failed says the end.
            if upload.send(plan.ask).await.is_err() {
                break;
            }
        }
        upload.finish().await.map(|told| self.answered(&told, plan, plan.ask.count))
    }

    async fn chat(&self, plan: &Plan) -> Result<()> {
        let call = self.way.channel.bidi(&CHAT, self.way.codec(), write::<Ask>, read::<Told>);
        let (sender, mut replies) = plan.set(call).await?;
        for at in 0..plan.ask.count {
            if sender.send(plan.ask).await.is_err() {
                break;
            }
            match replies.next().await? {
                Some(told) => self.answered(&told, plan, at),
                None => panic!("{:x} chat ended after {at} of {}", plan.ask.request, plan.ask.count),
            }
        }
        sender.finish();
        match replies.next().await? {
            None => Ok(()),
            Some(_) => panic!("more replies than requests"),
        }
    }
}

/// Options that all kinds of calls have.
trait Options: Sized {
    fn timed(self, timeout: Duration) -> Self;
    fn keyed(self, key: u64) -> Self;
    fn compressed(self, compression: Compression) -> Self;
}

macro_rules! options {
    ($($call:ty),*) => {
        $(impl Options for $call {
            fn timed(self, timeout: Duration) -> Self {
                self.timeout(timeout)
            }

            fn keyed(self, key: u64) -> Self {
                self.hash_key(key.to_le_bytes().to_vec())
            }

            fn compressed(self, compression: Compression) -> Self {
                self.compression(compression)
            }
        })*
    };
}

options!(
    crate::UnaryCall<Told>,
    crate::OnewayCall,
    crate::ServerStreamCall<Told>,
    crate::ClientStreamCall<Ask, Told>,
    crate::BidiCall<Ask, Told>
);

impl Plan {
    fn set<C: Options>(&self, call: C) -> C {
        let call = call.compressed(self.compression);
        let call = match self.key {
            Some(key) => call.keyed(key),
            None => call,
        };
        match self.timeout {
            Some(timeout) => call.timed(timeout),
            None => call,
        }
    }
}
