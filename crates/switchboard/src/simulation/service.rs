//! The service of the servers of a run: each request says what to do and how it ends.

use super::{
    journal::Journal,
    messages::{read, write},
};
use serde::{Deserialize, Serialize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_client::ClientMethod;
use switchboard_core::{Call, Receiver, Reply, Result, Sender, Service, clock::mix, stream::stream_reply};
use switchboard_wire::{Code, Idempotency, Kind, MethodInfo, Retry, ServiceInfo, Status};

static INFO: ServiceInfo = ServiceInfo {
    name: "sim.Work",
    methods: &[
        MethodInfo::new("Read", Kind::Unary).idempotency(Idempotency::NoSideEffects),
        MethodInfo::new("Write", Kind::Unary),
        MethodInfo::new("List", Kind::ServerStream).idempotency(Idempotency::NoSideEffects),
        MethodInfo::new("Collect", Kind::ClientStream),
        MethodInfo::new("Chat", Kind::Bidi),
        MethodInfo::new("Post", Kind::Unary).oneway(),
    ],
    descriptor: &[],
};

const fn method(index: u16, path: &'static str) -> ClientMethod {
    ClientMethod { service: &INFO, index, path }
}

pub(super) static READ: ClientMethod = method(0, "sim.Work/Read");
pub(super) static WRITE: ClientMethod = method(1, "sim.Work/Write");
pub(super) static LIST: ClientMethod = method(2, "sim.Work/List");
pub(super) static COLLECT: ClientMethod = method(3, "sim.Work/Collect");
pub(super) static CHAT: ClientMethod = method(4, "sim.Work/Chat");
pub(super) static POST: ClientMethod = method(5, "sim.Work/Post");

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct WorkRequest {
    /// Number of the request; its attempts share it.
    pub(super) id: u64,
    pub(super) work_ms: u64,
    /// Bytes of filler in each reply.
    pub(super) bytes: u32,
    /// Number of replies of a stream.
    pub(super) count: u32,
    /// Percentage of attempts that fail, in various ways.
    pub(super) fails: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct WorkResponse {
    pub(super) id: u64,
    pub(super) at: u32,
    pub(super) filler: Vec<u8>,
}

impl WorkResponse {
    fn to(request: &WorkRequest, at: u32) -> WorkResponse {
        WorkResponse { id: request.id, at, filler: filler(request.id, at, request.bytes) }
    }

    /// Asserts that this is the server's response number `at` to the request.
    pub(super) fn check(&self, request: &WorkRequest, at: u32) {
        assert_eq!((self.id, self.at), (request.id, at), "a response to another call");
        assert!(self.filler == filler(request.id, at, request.bytes), "a response with other bytes");
    }
}

fn filler(id: u64, at: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|byte| mix(id ^ (u64::from(at) << 32) ^ u64::from(byte / 64)) as u8).collect()
}

/// The service.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) journal: Arc<Journal>,
    /// Number of the server, and of its start.
    pub(super) incarnation: (usize, u64),
    /// Percentage of attempts that fail on this server, when it is higher than that of the request.
    pub(super) fail_percent: Arc<AtomicU64>,
}

impl Service for Work {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, method) = (call.codec(), call.method());
        let again = call.cx().metadata().text("switchboard-attempt").is_some();
        if again {
            self.journal.retried();
        }
        match method {
            3 => {
                let (requests, cx) = call.into_many();
                let mut requests = Receiver::of_request(requests, codec, read::<WorkRequest>);
                let (mut last, mut count) = (None, 0);
                while let Some(request) = requests.next().await? {
                    last = Some(request);
                    count += 1;
                }
                let request = last.ok_or_else(|| Status::invalid_argument("nothing came"))?;
                self.work(&request).await?;
                Ok(Reply::one(write(&WorkResponse::to(&request, count), codec)?, cx))
            }
            4 => {
                let (requests, cx) = call.into_many();
                let mut requests = Receiver::of_request(requests, codec, read::<WorkRequest>);
                let work = self.clone();
                let chat = move |_, out: Sender<WorkResponse>| async move {
                    let mut at = 0;
                    while let Some(request) = requests.next().await? {
                        work.work(&request).await?;
                        out.send(WorkResponse::to(&request, at)).await?;
                        at += 1;
                    }
                    Ok(())
                };
                Ok(stream_reply(cx, codec, write::<WorkResponse>, chat))
            }
            2 => {
                let (message, cx) = call.into_one()?;
                let request: WorkRequest = read(codec, message)?;
                let work = self.clone();
                let list = move |_, out: Sender<WorkResponse>| async move {
                    for at in 0..request.count {
                        work.work(&request).await?;
                        out.send(WorkResponse::to(&request, at)).await?;
                    }
                    Ok(())
                };
                Ok(stream_reply(cx, codec, write::<WorkResponse>, list))
            }
            _ => {
                let (message, cx) = call.into_one()?;
                let request: WorkRequest = read(codec, message)?;
                // Some wires do not carry the number of the attempt.
                let _running = self.journal.attempt_arrived(request.id, again);
                self.work(&request).await?;
                Ok(Reply::one(write(&WorkResponse::to(&request, 0), codec)?, cx))
            }
        }
    }
}

impl Work {
    /// Handles a request: records its effect first, then waits for its duration.
    async fn work(&self, request: &WorkRequest) -> Result<()> {
        let random =
            mix(request.id ^ (self.incarnation.1 << 40) ^ (switchboard_core::clock::now_ns() / 1_000_000));
        if random % 100 < request.fails.max(self.fail_percent.load(Ordering::Relaxed)) {
            let pause = Duration::from_millis(random % 30);
            match random >> 32 & 7 {
                // Rejected, without an effect.
                0 | 1 => return Err(Status::unavailable("not now").with_retry(Retry::Safe)),
                2 => return Err(Status::resource_exhausted("full").with_retry(Retry::After(pause))),
                3 => return Err(Status::not_found("nothing there").with_retry(Retry::No)),
                // Fails after the effect.
                _ => {
                    self.journal.effect(request.id, self.incarnation);
                    tokio::time::sleep(pause).await;
                    let code = [Code::Unavailable, Code::Internal, Code::Aborted][random as usize % 3];
                    return Err(Status::new(code, "halfway").with_retry(Retry::IfIdempotent));
                }
            }
        }
        self.journal.effect(request.id, self.incarnation);
        if request.work_ms > 0 {
            tokio::time::sleep(Duration::from_millis(request.work_ms)).await;
        }
        Ok(())
    }
}
