//! What the servers of a run do: each request says what is to become of it.

use super::{
    journal::Journal,
    messages::{read, write},
};
use crate::{
    Call, ClientMethod, Code, Idempotency, Kind, MethodInfo, Receiver, Reply, Result, Retry, Sender, Service,
    ServiceInfo, Status, balance::mix, stream::stream_reply,
};
use serde::{Deserialize, Serialize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

static INFO: ServiceInfo = ServiceInfo {
    name: "sim.Work",
    methods: &[
        MethodInfo::new("Read", Kind::Unary).idempotency(Idempotency::NoSideEffects),
        MethodInfo::new("Write", Kind::Unary),
        MethodInfo::new("List", Kind::ServerStream).idempotency(Idempotency::NoSideEffects),
        MethodInfo::new("Collect", Kind::ClientStream),
        MethodInfo::new("Chat", Kind::Bidi),
        MethodInfo::new("Tell", Kind::Unary).oneway(),
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
pub(super) static TELL: ClientMethod = method(5, "sim.Work/Tell");

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Ask {
    /// No two requests have the same, attempts of one do.
    pub(super) request: u64,
    pub(super) work_ms: u64,
    /// Of each reply.
    pub(super) bytes: u32,
    /// Replies of a stream.
    pub(super) count: u32,
    /// Of 100 attempts so many fail, each in a way of its own.
    pub(super) fails: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Told {
    pub(super) request: u64,
    pub(super) at: u32,
    pub(super) filler: Vec<u8>,
}

impl Told {
    fn to(ask: &Ask, at: u32) -> Told {
        Told { request: ask.request, at, filler: filler(ask.request, at, ask.bytes) }
    }

    /// Whether this is what the server answers to that.
    pub(super) fn answers(&self, ask: &Ask, at: u32) {
        assert_eq!((self.request, self.at), (ask.request, at), "a reply to another request");
        assert!(self.filler == filler(ask.request, at, ask.bytes), "a reply of other bytes");
    }
}

fn filler(request: u64, at: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|byte| mix(request ^ (u64::from(at) << 32) ^ u64::from(byte / 64)) as u8).collect()
}

/// What servers do with calls.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) journal: Arc<Journal>,
    /// Which server, and its which life.
    pub(super) place: (usize, u64),
    /// Of 100 attempts so many fail here, whatever their requests say.
    pub(super) sick: Arc<AtomicU64>,
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
                let mut requests = Receiver::of_request(requests, codec, read::<Ask>);
                let (mut last, mut count) = (None, 0);
                while let Some(ask) = requests.next().await? {
                    last = Some(ask);
                    count += 1;
                }
                let ask = last.ok_or_else(|| Status::invalid_argument("nothing came"))?;
                self.work(&ask).await?;
                Ok(Reply::one(write(&Told::to(&ask, count), codec)?, cx))
            }
            4 => {
                let (requests, cx) = call.into_many();
                let mut requests = Receiver::of_request(requests, codec, read::<Ask>);
                let work = self.clone();
                let chat = move |_, out: Sender<Told>| async move {
                    let mut at = 0;
                    while let Some(ask) = requests.next().await? {
                        work.work(&ask).await?;
                        out.send(Told::to(&ask, at)).await?;
                        at += 1;
                    }
                    Ok(())
                };
                Ok(stream_reply(cx, codec, write::<Told>, chat))
            }
            2 => {
                let (message, cx) = call.into_one()?;
                let ask: Ask = read(codec, message)?;
                let work = self.clone();
                let list = move |_, out: Sender<Told>| async move {
                    for at in 0..ask.count {
                        work.work(&ask).await?;
                        out.send(Told::to(&ask, at)).await?;
                    }
                    Ok(())
                };
                Ok(stream_reply(cx, codec, write::<Told>, list))
            }
            _ => {
                let (message, cx) = call.into_one()?;
                let ask: Ask = read(codec, message)?;
                // Some wires do not say which attempt it is.
                let _at_work = self.journal.arrives(ask.request, again);
                self.work(&ask).await?;
                Ok(Reply::one(write(&Told::to(&ask, 0), codec)?, cx))
            }
        }
    }
}

impl Work {
    /// Does what the request asks for: its effect first, then it takes its time.
    async fn work(&self, ask: &Ask) -> Result<()> {
        let luck = mix(ask.request ^ (self.place.1 << 40) ^ (crate::clock::now_ns() / 1_000_000));
        if luck % 100 < ask.fails.max(self.sick.load(Ordering::Relaxed)) {
            let pause = Duration::from_millis(luck % 30);
            match luck >> 32 & 7 {
                // Refused, with no effect.
                0 | 1 => return Err(Status::unavailable("not now").with_retry(Retry::Safe)),
                2 => return Err(Status::resource_exhausted("full").with_retry(Retry::After(pause))),
                3 => return Err(Status::not_found("nothing there").with_retry(Retry::No)),
                // Fails half way.
                _ => {
                    self.journal.effect(ask.request, self.place);
                    tokio::time::sleep(pause).await;
                    let code = [Code::Unavailable, Code::Internal, Code::Aborted][luck as usize % 3];
                    return Err(Status::new(code, "half way").with_retry(Retry::IfIdempotent));
                }
            }
        }
        self.journal.effect(ask.request, self.place);
        if ask.work_ms > 0 {
            tokio::time::sleep(Duration::from_millis(ask.work_ms)).await;
        }
        Ok(())
    }
}
