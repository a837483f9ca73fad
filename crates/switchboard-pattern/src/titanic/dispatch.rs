//! Executes stored requests: passes them to their services, and stores the replies.

use super::{
    RequestId, TitanicOptions,
    operations::{Done, Operation, StoreHandle},
    service::Shared,
};
use crate::majordomo;
use bytes::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use switchboard_core::{Result, clock};
use switchboard_socket::Message;
use switchboard_wire::{Code, Status};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

/// Bounds of the pause between two looks at services that failed.
const TICK_MIN: Duration = Duration::from_millis(5);
const TICK_MAX: Duration = Duration::from_millis(250);

/// Time to wait for the reply of mmi.service, which a broker answers itself.
const QUERY_TIMEOUT_MAX: Duration = Duration::from_secs(2);

pub(super) struct Dispatcher {
    client: majordomo::Client,
    store: StoreHandle,
    shared: Arc<Shared>,
    outstanding_max: usize,
    per_service_max: usize,
    retry_pause: Duration,
    /// Time to wait for the reply of mmi.service.
    query_timeout: Duration,
    services: BTreeMap<Bytes, Service>,
    /// The last service whose request was started. The next turn begins behind it.
    last: Bytes,
}

/// Requests to a service.
#[derive(Debug, Default)]
struct Service {
    waiting: VecDeque<RequestId>,
    outstanding: usize,
    /// The service has workers, as far as the dispatcher knows. Before that it has one probe, and no request.
    is_probed: bool,
    /// End of the pause after a failure.
    paused: Option<Instant>,
}

/// Result of an execution, or of a probe, which has no request.
struct Executed {
    id: Option<RequestId>,
    service: Bytes,
    result: Result<()>,
}

impl Dispatcher {
    pub(super) fn new(
        client: majordomo::Client,
        store: StoreHandle,
        shared: Arc<Shared>,
        options: &TitanicOptions,
    ) -> Dispatcher {
        Dispatcher {
            client,
            store,
            shared,
            outstanding_max: options.outstanding_max,
            per_service_max: options.outstanding_per_service_max,
            retry_pause: options.retry_pause,
            query_timeout: (options.execution_timeout / 2).min(QUERY_TIMEOUT_MAX),
            services: BTreeMap::new(),
            last: Bytes::new(),
        }
    }

    /// Runs until the server is dropped. `pending` are the requests without a reply that the store has.
    pub(super) async fn run(
        mut self,
        pending: Vec<RequestId>,
        mut added: mpsc::Receiver<(RequestId, Bytes)>,
    ) {
        self.load(pending).await;
        let mut running = JoinSet::new();
        let mut ticks = interval((self.retry_pause / 4).clamp(TICK_MIN, TICK_MAX));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.start(&mut running);
            tokio::select! {
                request = added.recv() => {
                    let Some((id, service)) = request else { return };
                    self.services.entry(service).or_default().waiting.push_back(id);
                }
                Some(Ok(executed)) = running.join_next() => self.finish(executed),
                _ = ticks.tick() => {}
            }
        }
    }

    /// Reads the services of the requests from before the start.
    async fn load(&mut self, pending: Vec<RequestId>) {
        for id in pending {
            match self.store.run(Operation::Load { id }).await {
                Ok(Done::Loaded(Some((service, _)))) => {
                    self.services.entry(service).or_default().waiting.push_back(id);
                }
                Ok(_) => {}
                Err(failure) => {
                    tracing::warn!(target: "switchboard::pattern", %id, %failure, "titanic: request cannot be read");
                }
            }
        }
    }

    /// Starts executions up to the limits. The services take turns.
    fn start(&mut self, running: &mut JoinSet<Executed>) {
        let now = clock::now();
        while running.len() < self.outstanding_max {
            let Some(name) = self.next_service(now) else { break };
            self.last = name.clone();
            let Some(service) = self.services.get_mut(&name) else { break };
            service.outstanding += 1;
            let (client, store, query_timeout) =
                (self.client.clone(), self.store.clone(), self.query_timeout);
            let id = if service.is_probed { service.waiting.pop_front() } else { None };
            running.spawn(async move {
                let result = match id {
                    Some(id) => execute(&client, &store, id).await,
                    None => probe(&client, &name, query_timeout).await,
                };
                Executed { id, service: name, result }
            });
        }
        self.shared.outstanding.store(running.len(), Relaxed);
    }

    /// Returns the first service behind the last one that may start a request.
    fn next_service(&self, now: Instant) -> Option<Bytes> {
        let behind = (Bound::Excluded(&self.last), Bound::Unbounded);
        let behind = self.services.range::<Bytes, _>(behind);
        let before = self.services.range::<Bytes, _>(..=&self.last);
        let mut services = behind.chain(before);
        let is_ready = |service: &Service| {
            let max = if service.is_probed { self.per_service_max } else { 1 };
            !service.waiting.is_empty()
                && service.outstanding < max
                && service.paused.is_none_or(|end| now >= end)
        };
        services.find(|(_, service)| is_ready(service)).map(|(name, _)| name.clone())
    }

    fn finish(&mut self, executed: Executed) {
        let Executed { id, service: name, result } = executed;
        let Some(service) = self.services.get_mut(&name) else { return };
        service.outstanding = service.outstanding.saturating_sub(1);
        service.is_probed = result.is_ok();
        match result {
            Ok(()) => {
                self.shared.executed.fetch_add(u64::from(id.is_some()), Relaxed);
                service.paused = None;
            }
            Err(failure) => {
                tracing::debug!(
                    target: "switchboard::pattern", ?id, service = %name.escape_ascii(), %failure,
                    "titanic: execution has failed"
                );
                self.shared.failed.fetch_add(1, Relaxed);
                service.paused = Some(clock::after(clock::now(), self.retry_pause));
                // Behind the others, so that one request that fails always does not stop them.
                service.waiting.extend(id);
            }
        }
        if service.outstanding == 0 && service.waiting.is_empty() {
            self.services.remove(&name);
        }
    }
}

/// Queries the broker for the workers of a service, which spares the bodies of requests to one without workers.
///
/// # Errors
/// Returns `Unavailable` for a service without workers, and the errors of the client.
async fn probe(client: &majordomo::Client, service: &Bytes, timeout: Duration) -> Result<()> {
    match client.call("mmi.service").timeout(timeout).send(Message::from([service.clone()])).await {
        Ok(reply) if reply.body() == b"404" => Err(Status::unavailable("the service has no worker")),
        Ok(_) => Ok(()),
        // A broker without mmi.service, which queues requests to it.
        Err(failure) if failure.code() == Code::DeadlineExceeded => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Executes a request and stores its reply. A request that was deleted needs no execution.
async fn execute(client: &majordomo::Client, store: &StoreHandle, id: RequestId) -> Result<()> {
    let Done::Loaded(Some((service, body))) = store.run(Operation::Load { id }).await? else { return Ok(()) };
    let name =
        std::str::from_utf8(&service).map_err(|_| Status::internal("name of the service is not UTF-8"))?;
    let reply = client.call(name).send(Message::from(body)).await?;
    store.run(Operation::Reply { id, body: reply.into_frames() }).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_service_has_one_probe_first_and_services_take_turns() {
        let mut options = TitanicOptions::default();
        (options.outstanding_max, options.outstanding_per_service_max) = (4, 3);
        let client = majordomo::Client::connect("tcp://127.0.0.1:1").unwrap();
        let (operations, _receiver) = mpsc::channel(64);
        let (store, shared) = (StoreHandle::new(operations), Arc::default());
        let mut dispatcher = Dispatcher::new(client, store, shared, &options);
        let names = ["a", "b", "c"].map(Bytes::from);
        for name in &names {
            let waiting = (0..20).map(|number| RequestId::from_bytes([number; 16])).collect();
            dispatcher.services.insert(name.clone(), Service { waiting, ..Service::default() });
        }
        let outstanding =
            |dispatcher: &Dispatcher| names.each_ref().map(|name| dispatcher.services[name].outstanding);
        let mut running = JoinSet::new();
        dispatcher.start(&mut running);
        assert_eq!(outstanding(&dispatcher), [1, 1, 1], "probes");
        let probed =
            |service: &str, result| Executed { id: None, service: service.to_owned().into(), result };
        dispatcher.finish(probed("a", Ok(())));
        dispatcher.finish(probed("b", Err(Status::unavailable("the service has no worker"))));
        dispatcher.finish(probed("c", Ok(())));
        running = JoinSet::new();
        dispatcher.start(&mut running);
        assert_eq!(outstanding(&dispatcher), [2, 0, 2], "b pauses");
        assert_eq!(dispatcher.services["b".as_bytes()].waiting.len(), 20);
        let id = Some(RequestId::from_bytes([0; 16]));
        dispatcher.finish(Executed { id, service: names[0].clone(), result: Ok(()) });
        dispatcher.finish(Executed { id, service: names[0].clone(), result: Ok(()) });
        running = JoinSet::new();
        dispatcher.start(&mut running);
        assert_eq!(outstanding(&dispatcher), [3, 0, 3], "up to the limit of a service");
    }
}
