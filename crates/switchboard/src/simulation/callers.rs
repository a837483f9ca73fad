//! Callers: each makes one call after the other, of any kind, and checks the results.

use super::{
    clients::Client,
    journal::Journal,
    messages::{read, write},
    random::Random,
    service::{CHAT, COLLECT, LIST, POST, READ, WRITE, WorkRequest, WorkResponse},
};
use bytes::Bytes;
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use switchboard_core::{Compression, Result};
use switchboard_wire::{Code, Retry, Status};
use tokio::time::{Instant, sleep, timeout};

/// Allowed excess over a deadline: several timers with a resolution of one millisecond, one after the other.
const TIMER_TOLERANCE: Duration = Duration::from_millis(5);

pub(super) struct Caller {
    pub(super) name: u64,
    pub(super) client: Client,
    pub(super) random: Random,
    pub(super) journal: Arc<Journal>,
    pub(super) calls: u64,
    /// Percentage of attempts that fail at their servers.
    pub(super) fails: u64,
}

/// Options of a call, and its request.
struct Plan {
    request: WorkRequest,
    timeout: Option<Duration>,
    key: Option<u64>,
    /// Name of the retry option of a write: `write` (none), `twice` (idempotent) or `keyed` (with an idempotency key).
    writing: &'static str,
    compression: Compression,
}

type Calling<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

impl Caller {
    /// Makes all its calls.
    pub(super) async fn run(self) {
        for number in 0..self.calls {
            sleep(self.random.millis(0..=self.random.one_of(&[0, 5, 40]))).await;
            self.call(self.name << 32 | number).await;
        }
    }

    async fn call(&self, id: u64) {
        let (plan, streams) = (self.plan(id), self.client.wire.streams);
        let (kind, calling): (_, Calling<'_>) = match self.random.within(0..=99) {
            45..70 => (plan.writing, Box::pin(self.write(&plan))),
            70..80 if streams.replies => ("list", Box::pin(self.list(&plan))),
            80..87 if streams.requests => ("collect", Box::pin(self.collect(&plan))),
            87..95 if streams.both => ("chat", Box::pin(self.chat(&plan))),
            95.. => ("post", Box::pin(self.post(&plan))),
            _ => ("read", Box::pin(self.read(&plan))),
        };
        self.journal.begun();
        self.journal.note(format_args!("{id:x} {kind} within {:?}", plan.timeout));
        // Some callers cancel their call.
        let cancel_after = if self.random.percent(8) { self.random.millis(0..=60) } else { Duration::MAX };
        let (began, jumped) = (Instant::now(), self.journal.jumped());
        let ended = timeout(cancel_after, calling).await;
        let (took, jumps) = (began.elapsed(), self.journal.jumped().saturating_sub(jumped));
        self.journal.ended();
        // Servers recognize a retried write by its key, where the wire carries it. A write without a key is sent once,
        // unless its status says that the server did not begin it.
        let begun = |status: &Status| !matches!(status.retry(), Retry::Safe | Retry::After(_));
        let may_have_begun = ended.as_ref().map_or(true, |outcome| outcome.as_ref().err().is_none_or(begun));
        match kind {
            "keyed" if self.client.wire.metadata => self.journal.keyed(id),
            "keyed" | "write" => self.journal.at_most(id, u32::from(may_have_begun)),
            _ => {}
        }
        let Ok(outcome) = ended else {
            return self.journal.note(format_args!("{id:x} {kind}: canceled"));
        };
        let limit = plan.timeout.map(|timeout| timeout + TIMER_TOLERANCE + jumps);
        assert!(
            limit.is_none_or(|limit| took <= limit),
            "{id:x} {kind} took {took:?} of {:?}: {outcome:?}",
            plan.timeout
        );
        match &outcome {
            Ok(()) => {
                self.journal.observed(self.client.wire.name());
                self.journal.note(format_args!("{id:x} {kind}: ok"));
            }
            Err(status) => {
                self.journal.note(format_args!("{id:x} {kind}: {status}"));
                self.check(status, kind, &plan);
                self.client.observe_failures(&self.journal);
            }
        }
    }

    /// Makes a call of each kind after all faults have ended; every call must succeed.
    pub(super) async fn call_without_faults(&self) {
        let streams = self.client.wire.streams;
        for (at, kind) in ["read", "write", "list", "collect", "chat", "post"].into_iter().enumerate() {
            let id = (self.name << 32) | (self.calls + at as u64);
            let request = WorkRequest { id, work_ms: 1, bytes: 100, count: 3, fails: 0 };
            let plan =
                Plan { request, timeout: None, key: None, writing: "write", compression: Compression::None };
            let calling: Calling<'_> = match kind {
                "write" => Box::pin(self.write(&plan)),
                "list" if streams.replies => Box::pin(self.list(&plan)),
                "collect" if streams.requests => Box::pin(self.collect(&plan)),
                "chat" if streams.both => Box::pin(self.chat(&plan)),
                "post" => Box::pin(self.post(&plan)),
                _ => Box::pin(self.read(&plan)),
            };
            self.journal.begun();
            let outcome = calling.await;
            self.journal.ended();
            let wire = self.client.wire.name();
            self.journal.note(format_args!("{id:x} {kind} on {wire}, without faults: {outcome:?}"));
            if let Err(status) = outcome {
                panic!("{id:x} {kind} on {wire} ended with {status} without faults");
            }
        }
    }

    fn plan(&self, id: u64) -> Plan {
        let random = &self.random;
        let gzip = random.percent(10) && self.client.wire.compresses;
        let request = WorkRequest {
            id,
            work_ms: random.within(0..=random.one_of(&[0, 0, 10, 300])),
            bytes: (random.within(0..=random.one_of(&[20, 20, 2000, 100_000])) as u32)
                .min(self.client.wire.bytes_max),
            count: random.within(0..=12) as u32,
            fails: self.fails,
        };
        Plan {
            request,
            timeout: random.percent(75).then(|| random.millis(1..=random.one_of(&[20, 500, 5000]))),
            key: random.percent(20).then(|| random.within(0..=5)),
            writing: random.one_of(&["write", "write", "twice", "keyed"]),
            compression: if gzip { Compression::Gzip } else { Compression::None },
        }
    }

    /// Checks that a call may end with this status.
    fn check(&self, status: &Status, kind: &str, plan: &Plan) {
        let text = status.message();
        let expected = match status.code() {
            Code::Unavailable | Code::ResourceExhausted => true,
            Code::DeadlineExceeded => plan.timeout.is_some(),
            Code::Internal | Code::Aborted => text.contains("halfway"),
            Code::NotFound => text.contains("nothing there"),
            Code::InvalidArgument => kind == "collect" && text.contains("nothing came"),
            _ => false,
        };
        let expected = expected || self.client.wire.loses_code(status);
        assert!(expected, "{:x} {kind} ended with {status}", plan.request.id);
    }

    fn check_response(&self, response: &WorkResponse, plan: &Plan, at: u32) {
        response.check(&plan.request, at);
        assert!(self.journal.effects(plan.request.id) > 0, "a response without an effect");
    }

    fn encode(&self, plan: &Plan) -> Result<Bytes> {
        write(&plan.request, self.client.codec())
    }

    async fn read(&self, plan: &Plan) -> Result<()> {
        let message = self.encode(plan);
        let call =
            plan.set(self.client.channel.unary(&READ, self.client.codec(), message, read::<WorkResponse>));
        call.await.map(|response| self.check_response(&response, plan, 0))
    }

    async fn write(&self, plan: &Plan) -> Result<()> {
        let message = self.encode(plan);
        let mut call =
            plan.set(self.client.channel.unary(&WRITE, self.client.codec(), message, read::<WorkResponse>));
        match plan.writing {
            "twice" => call = call.idempotent(),
            "keyed" => call = call.idempotency_key(format!("{:x}", plan.request.id)),
            _ => {}
        }
        call.await.map(|response| self.check_response(&response, plan, 0))
    }

    async fn post(&self, plan: &Plan) -> Result<()> {
        plan.set(self.client.channel.oneway(&POST, self.client.codec(), self.encode(plan))).await
    }

    async fn list(&self, plan: &Plan) -> Result<()> {
        let message = self.encode(plan);
        let call = plan.set(self.client.channel.server_stream(
            &LIST,
            self.client.codec(),
            message,
            read::<WorkResponse>,
        ));
        let mut replies = call.await?;
        for at in 0..plan.request.count {
            match replies.next().await? {
                Some(response) => self.check_response(&response, plan, at),
                None => panic!("{:x} list ended after {at} of {}", plan.request.id, plan.request.count),
            }
        }
        assert!(replies.next().await?.is_none(), "more replies than requested");
        Ok(())
    }

    async fn collect(&self, plan: &Plan) -> Result<()> {
        let call = self.client.channel.client_stream(
            &COLLECT,
            self.client.codec(),
            write::<WorkRequest>,
            read::<WorkResponse>,
        );
        let upload = plan.set(call).await?;
        for _ in 0..plan.request.count {
            // The result of `finish` has the reason.
            if upload.send(plan.request).await.is_err() {
                break;
            }
        }
        upload.finish().await.map(|response| self.check_response(&response, plan, plan.request.count))
    }

    async fn chat(&self, plan: &Plan) -> Result<()> {
        let call =
            self.client.channel.bidi(&CHAT, self.client.codec(), write::<WorkRequest>, read::<WorkResponse>);
        let (sender, mut replies) = plan.set(call).await?;
        for at in 0..plan.request.count {
            if sender.send(plan.request).await.is_err() {
                break;
            }
            match replies.next().await? {
                Some(response) => self.check_response(&response, plan, at),
                None => panic!("{:x} chat ended after {at} of {}", plan.request.id, plan.request.count),
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
    switchboard_client::UnaryCall<WorkResponse>,
    switchboard_client::OnewayCall,
    switchboard_client::ServerStreamCall<WorkResponse>,
    switchboard_client::ClientStreamCall<WorkRequest, WorkResponse>,
    switchboard_client::BidiCall<WorkRequest, WorkResponse>
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
