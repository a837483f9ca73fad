//! Leases: a registration that is kept until its holder ends.

use super::{Backend, Held, Instance, Options};
use crate::{Code, Result, Retry, Status, client};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::{sleep, timeout},
};

/// A registration that is renewed in the background; made by [`Registry::register`](super::Registry::register).
///
/// Dropping it deregisters without waiting, if the runtime goes on for long enough; [`end`](Lease::end) is surer.
#[must_use = "dropping a lease deregisters"]
pub struct Lease {
    id: String,
    service: String,
    orders: mpsc::Sender<Order>,
    held: watch::Receiver<bool>,
    task: AbortHandle,
}

enum Order {
    End(oneshot::Sender<Result<()>>),
    Replace(Box<Instance>, oneshot::Sender<Result<()>>),
}

impl Lease {
    /// The id of the instance.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The full name of the service.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Whether the registry has confirmed it in time; it is tried again and again while not.
    pub fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Says something else of the same instance: another state or weight, say.
    ///
    /// Cancel safe: dropped before its end, it may or may not be done.
    ///
    /// # Errors
    /// `InvalidArgument` for another id or service and what cannot be kept; what the registry says. The lease goes on
    /// in any case, and later renewals bring the new content after an error of the registry.
    pub async fn replace(&self, instance: Instance) -> Result<()> {
        if (&instance.id, &instance.service) != (&self.id, &self.service) {
            return Err(Status::new(
                Code::InvalidArgument,
                format!(
                    "the lease is for {} of {}, not for {} of {}: register that one",
                    self.id, self.service, instance.id, instance.service
                ),
            ));
        }
        let (done, answer) = oneshot::channel();
        self.order(Order::Replace(Box::new(instance), done), answer).await
    }

    /// Deregisters, and returns when the registry has confirmed it.
    ///
    /// Cancel safe: dropped before its end, it goes on in the background.
    ///
    /// # Errors
    /// What the registry says, or `Unavailable` after a third of the TTL, at least 2 s: it ends with its
    /// time then.
    pub async fn end(self) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.order(Order::End(done), answer).await
    }

    /// Stops renewing without deregistering, as a crash would; for tests.
    pub fn kill(self) {
        self.task.abort();
    }

    async fn order(&self, order: Order, answer: oneshot::Receiver<Result<()>>) -> Result<()> {
        let ended = || Status::unavailable("the runtime that kept the lease has ended");
        self.orders.send(order).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lease");
        debug.field("id", &self.id).field("service", &self.service);
        debug.field("is_held", &self.is_held()).finish_non_exhaustive()
    }
}

/// Registers once and keeps it from then on.
pub(super) async fn register(
    backend: Arc<dyn Backend>,
    instance: Instance,
    options: &Options,
) -> Result<Lease> {
    let limit = patience(options.ttl);
    let held = limited(limit, &*backend, backend.hold(&instance, options.ttl)).await?;
    // Few orders are given, and who gives one waits.
    let (orders, received) = mpsc::channel(4);
    let (is_held, holds) = watch::channel(true);
    let (id, service) = (instance.id.clone(), instance.service.clone());
    let keeper = Keeper { backend, instance, options: options.clone(), held: Some(held), is_held };
    let task = crate::runtime::spawn(keeper.run(received)).abort_handle();
    Ok(Lease { id, service, orders, held: holds, task })
}

/// For registering and deregistering: a third of the TTL, but a registry with a short one may be slow all the same.
fn patience(ttl: Duration) -> Duration {
    (ttl / 3).max(Duration::from_secs(2))
}

/// No registry may hold us for longer than one renewal may take.
async fn limited<T>(
    limit: Duration,
    backend: &dyn Backend,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| {
        let text = format!("{} did not answer within {limit:?}", backend.name());
        Err(Status::unavailable(text).with_retry(Retry::Safe))
    })
}

/// The task of a lease.
struct Keeper {
    backend: Arc<dyn Backend>,
    instance: Instance,
    options: Options,
    /// None while the registry is down or has forgotten it.
    held: Option<Box<dyn Held>>,
    is_held: watch::Sender<bool>,
}

impl Keeper {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let share = self.options.ttl / 3;
        let (mut failures, mut pause) = (0, share);
        loop {
            let order = tokio::select! {
                order = orders.recv() => Some(order),
                () = sleep(pause) => None,
            };
            let kept = match order {
                None => self.keep().await,
                Some(Some(Order::Replace(instance, done))) => {
                    self.instance = *instance;
                    let outcome = self.hold().await;
                    let kept = outcome.clone();
                    // Nobody waits any more: then nobody needs to know.
                    let _ = done.send(outcome);
                    kept
                }
                Some(Some(Order::End(done))) => {
                    let _ = done.send(self.release().await);
                    return;
                }
                Some(None) => {
                    if let Err(error) = self.release().await {
                        tracing::debug!(id = self.instance.id, %error, "deregistering after a lease was dropped");
                    }
                    return;
                }
            };
            failures = if kept.is_ok() { 0 } else { failures + 1 };
            pause =
                if kept.is_ok() { share } else { client::pause(failures, self.options.retry_max.min(share)) };
            self.tell(kept);
        }
    }

    async fn keep(&mut self) -> Result<()> {
        let share = self.options.ttl / 3;
        let Some(held) = &mut self.held else { return self.hold().await };
        match limited(share, &*self.backend, held.renew()).await {
            Ok(()) => Ok(()),
            // The registry may have forgotten it, after a restart, say.
            Err(_) => self.hold().await,
        }
    }

    async fn hold(&mut self) -> Result<()> {
        let ttl = self.options.ttl;
        self.held = None;
        self.instance.encode(self.options.instance_bytes_max)?;
        let held = limited(patience(ttl), &*self.backend, self.backend.hold(&self.instance, ttl)).await?;
        self.held = Some(held);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        match &mut self.held {
            Some(held) => limited(patience(self.options.ttl), &*self.backend, held.release()).await,
            None => Ok(()),
        }
    }

    fn tell(&self, kept: Result<()>) {
        let was_held = self.is_held.send_replace(kept.is_ok());
        let (id, service, registry) = (&self.instance.id, &self.instance.service, self.backend.name());
        match kept {
            Ok(()) if !was_held => tracing::info!(registry, service, id, "registered again"),
            Err(error) if was_held => {
                tracing::warn!(registry, service, id, %error, "cannot keep the registration: trying on");
            }
            _ => {}
        }
    }
}
