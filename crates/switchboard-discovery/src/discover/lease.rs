//! Leases: registrations that are renewed until their holder ends.

use super::{Backend, Instance, Options, Registration};
use std::{fmt, sync::Arc, time::Duration};
use switchboard_core::{Result, backoff};
use switchboard_wire::{Code, Retry, Status};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::{sleep, timeout},
};

/// A registration that is renewed in the background; made by [`Registry::register`](super::Registry::register).
///
/// Dropping it deregisters in the background, if the runtime continues for long enough; [`end`](Lease::end) waits for
/// the confirmation.
#[must_use = "dropping a lease deregisters"]
pub struct Lease {
    id: String,
    service: String,
    commands: mpsc::Sender<Command>,
    held: watch::Receiver<bool>,
    task: AbortHandle,
}

enum Command {
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

    /// Returns true while the registry has confirmed the registration in time; failed renewals are retried.
    pub fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Replaces the content of the same instance, for example its state or weight.
    ///
    /// Cancel safe: if dropped before its end, the replacement may or may not happen.
    ///
    /// # Errors
    /// `InvalidArgument` for another id or service or an instance that cannot be registered; otherwise the error of the
    /// registry. The lease continues in any case; after an error of the registry, later renewals register the new
    /// content.
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
        let (done, result) = oneshot::channel();
        self.command(Command::Replace(Box::new(instance), done), result).await
    }

    /// Deregisters, and returns when the registry has confirmed it.
    ///
    /// Cancel safe: if dropped before its end, deregistering continues in the background.
    ///
    /// # Errors
    /// The error of the registry, or `Unavailable` after a third of the TTL, at least 2 s: the registration then ends
    /// with its TTL.
    pub async fn end(self) -> Result<()> {
        let (done, result) = oneshot::channel();
        self.command(Command::End(done), result).await
    }

    /// Stops renewing without deregistering, as a crash would; for tests.
    pub fn kill(self) {
        self.task.abort();
    }

    async fn command(&self, command: Command, result: oneshot::Receiver<Result<()>>) -> Result<()> {
        let ended = || Status::unavailable("the runtime that kept the lease has ended");
        self.commands.send(command).await.map_err(|_| ended())?;
        result.await.map_err(|_| ended())?
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lease");
        debug.field("id", &self.id).field("service", &self.service);
        debug.field("is_held", &self.is_held()).finish_non_exhaustive()
    }
}

/// Registers the instance once and starts the task that renews it.
pub(super) async fn register(
    backend: Arc<dyn Backend>,
    instance: Instance,
    options: &Options,
) -> Result<Lease> {
    let limit = request_timeout(options.ttl);
    let registration = limited(limit, &*backend, backend.register(&instance, options.ttl)).await?;
    // Commands are rare, and each sender waits for its result.
    let (commands, received) = mpsc::channel(4);
    let (is_held, held) = watch::channel(true);
    let (id, service) = (instance.id.clone(), instance.service.clone());
    let keeper =
        Keeper { backend, instance, options: options.clone(), registration: Some(registration), is_held };
    let task = switchboard_core::runtime::spawn(keeper.run(received)).abort_handle();
    Ok(Lease { id, service, commands, held, task })
}

/// Time limit for registering and deregistering: a third of the TTL, and at least 2 s, because a registry with a short
/// TTL may be slow too.
fn request_timeout(ttl: Duration) -> Duration {
    (ttl / 3).max(Duration::from_secs(2))
}

/// Limits a request to the registry; returns `Unavailable` when it takes longer than `limit`.
async fn limited<T>(
    limit: Duration,
    backend: &dyn Backend,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| {
        let text = format!("{} did not respond within {limit:?}", backend.name());
        Err(Status::unavailable(text).with_retry(Retry::Safe))
    })
}

/// The task of a lease.
struct Keeper {
    backend: Arc<dyn Backend>,
    instance: Instance,
    options: Options,
    /// `None` while the registry is down or has lost the registration.
    registration: Option<Box<dyn Registration>>,
    is_held: watch::Sender<bool>,
}

impl Keeper {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let share = self.options.ttl / 3;
        let (mut failures, mut pause) = (0, share);
        loop {
            let command = tokio::select! {
                command = commands.recv() => Some(command),
                () = sleep(pause) => None,
            };
            let kept = match command {
                None => self.keep().await,
                Some(Some(Command::Replace(instance, done))) => {
                    self.instance = *instance;
                    let outcome = self.register_unless_superseded().await;
                    let kept = outcome.clone();
                    // The receiver may be gone; the result is then not needed.
                    let _ = done.send(outcome);
                    kept
                }
                Some(Some(Command::End(done))) => {
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
            pause = if kept.is_ok() {
                share
            } else {
                backoff::pause(failures, backoff::CONNECT_MIN, self.options.retry_max.min(share))
            };
            self.report(kept);
        }
    }

    async fn keep(&mut self) -> Result<()> {
        let share = self.options.ttl / 3;
        let Some(registration) = &mut self.registration else { return self.register().await };
        match limited(share, &*self.backend, registration.renew()).await {
            Ok(()) => Ok(()),
            // The registry may have lost the registration, for example after a restart.
            Err(_) => self.register_unless_superseded().await,
        }
    }

    /// Registers again. A newer registration with the same service and id stays: it is renewed by its own process.
    async fn register_unless_superseded(&mut self) -> Result<()> {
        if self.is_superseded().await.unwrap_or(false) {
            return Ok(());
        }
        self.register().await
    }

    async fn is_superseded(&mut self) -> Result<bool> {
        let Some(registration) = &mut self.registration else { return Ok(false) };
        limited(request_timeout(self.options.ttl), &*self.backend, registration.is_superseded()).await
    }

    async fn register(&mut self) -> Result<()> {
        let ttl = self.options.ttl;
        self.registration = None;
        self.instance.encode(self.options.instance_bytes_max)?;
        let registration =
            limited(request_timeout(ttl), &*self.backend, self.backend.register(&self.instance, ttl)).await?;
        self.registration = Some(registration);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        // When the check fails, the registration is left until its TTL ends: releasing it could remove a newer one.
        if self.is_superseded().await? {
            return Ok(());
        }
        match &mut self.registration {
            Some(registration) => {
                limited(request_timeout(self.options.ttl), &*self.backend, registration.release()).await
            }
            None => Ok(()),
        }
    }

    fn report(&self, kept: Result<()>) {
        let was_held = self.is_held.send_replace(kept.is_ok());
        let (id, service, registry) = (&self.instance.id, &self.instance.service, self.backend.name());
        match kept {
            Ok(()) if !was_held => tracing::info!(registry, service, id, "registered again"),
            Err(error) if was_held => {
                tracing::warn!(registry, service, id, %error, "cannot keep the registration: retrying");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::{BoxFuture, Feed, State};
    use std::{
        convert::Infallible,
        sync::{Mutex, atomic::AtomicBool, atomic::Ordering},
    };

    /// A back end for one registration, which records the requests it gets.
    #[derive(Clone, Default)]
    struct Recorder {
        requests: Arc<Mutex<Vec<&'static str>>>,
        is_superseded: Arc<AtomicBool>,
    }

    impl Recorder {
        fn record<T: Send + 'static>(
            &self,
            request: &'static str,
            result: Result<T>,
        ) -> BoxFuture<'static, Result<T>> {
            self.requests.lock().unwrap().push(request);
            Box::pin(async { result })
        }

        fn take(&self) -> Vec<&'static str> {
            std::mem::take(&mut *self.requests.lock().unwrap())
        }
    }

    impl Backend for Recorder {
        fn name(&self) -> &str {
            "a recorder"
        }

        fn follow<'a>(&'a self, _: &'a str, _: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
            Box::pin(std::future::pending())
        }

        fn register<'a>(
            &'a self,
            _: &'a Instance,
            _: Duration,
        ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
            self.record("register", Ok(Box::new(self.clone()) as Box<dyn Registration>))
        }
    }

    impl Registration for Recorder {
        fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
            self.record("renew", Err(Status::not_found("the registration is lost")))
        }

        fn release(&mut self) -> BoxFuture<'_, Result<()>> {
            self.record("release", Ok(()))
        }

        fn is_superseded(&mut self) -> BoxFuture<'_, Result<bool>> {
            let is_superseded = self.is_superseded.load(Ordering::SeqCst);
            Box::pin(async move { Ok(is_superseded) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_registration_is_neither_replaced_nor_released() {
        let options = Options::new().ttl(Duration::from_secs(9));
        let instance = Instance::new("s", "tcp://h:1");
        for (is_superseded, renewed, replaced, ended) in [
            (false, &["renew", "register"][..], &["register"][..], &["release"][..]),
            (true, &["renew"], &[], &[]),
        ] {
            let recorder = Recorder::default();
            let lease = register(Arc::new(recorder.clone()), instance.clone(), &options).await.unwrap();
            assert_eq!(recorder.take(), ["register"]);
            recorder.is_superseded.store(is_superseded, Ordering::SeqCst);
            sleep(Duration::from_millis(3_500)).await;
            assert_eq!(recorder.take(), renewed);
            lease.replace(instance.clone().state(State::Draining)).await.unwrap();
            assert_eq!(recorder.take(), replaced);
            lease.end().await.unwrap();
            assert_eq!(recorder.take(), ended);
        }
    }
}
