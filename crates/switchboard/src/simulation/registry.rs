//! A registry that servers tell of themselves and that channels follow, until it goes away, or forgets.

use super::wires::Wire;
use crate::{
    Result, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options},
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// What the registry knows, and whether it says so.
#[derive(Clone)]
pub(super) struct Book(Arc<Shared>);

struct Shared {
    pages: Mutex<Pages>,
    changed: watch::Sender<()>,
}

struct Pages {
    answers: bool,
    /// By id: an instance, and when it is struck out.
    held: BTreeMap<String, (Instance, Instant)>,
}

/// The book, as channels that speak one wire read it.
struct Reader {
    book: Book,
    wire: &'static Wire,
}

impl Book {
    pub(super) fn new() -> Book {
        let pages = Mutex::new(Pages { answers: true, held: BTreeMap::new() });
        Book(Arc::new(Shared { pages, changed: watch::Sender::new(()) }))
    }

    /// A registry of it, whose instances are called on this wire.
    pub(super) fn registry(&self, wire: &'static Wire) -> Arc<Discovery> {
        Arc::new(Discovery::new(Reader { book: self.clone(), wire }, Options::new()))
    }

    /// Whether it answers from now on.
    pub(super) fn answer(&self, answers: bool) {
        self.pages().answers = answers;
        self.0.changed.send_replace(());
    }

    /// Forgets everybody, as one does that was restarted.
    pub(super) fn forget(&self) {
        self.pages().held.clear();
        self.0.changed.send_replace(());
    }

    pub(super) fn answers(&self) -> bool {
        self.pages().answers
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.pages.lock().unwrap()
    }

    /// The pages, of one who answers.
    fn open(&self) -> Result<MutexGuard<'_, Pages>> {
        let pages = self.pages();
        if pages.answers { Ok(pages) } else { Err(Status::unavailable("the registry is away")) }
    }
}

impl Backend for Reader {
    fn name(&self) -> &str {
        "the book of the run"
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(async move {
            let mut changed = self.book.0.changed.subscribe();
            loop {
                changed.mark_unchanged();
                let (listed, next): (Vec<_>, _) = {
                    let (mut pages, now) = (self.book.open()?, Instant::now());
                    pages.held.retain(|_, (_, until)| *until > now);
                    let of_service = pages.held.values().filter(|(instance, _)| instance.service == service);
                    let called = |(instance, _): &(Instance, Instant)| {
                        Ok(Instance { address: self.wire.at(&instance.address), ..instance.clone() })
                    };
                    (of_service.map(called).collect(), pages.held.values().map(|(_, until)| *until).min())
                };
                feed.publish(listed);
                let struck = async {
                    match next {
                        Some(next) => sleep_until(next).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    // The sender is in the book.
                    _ = changed.changed() => {}
                    () = struck => {}
                }
            }
        })
    }

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let until = Instant::now() + ttl;
            self.book.open()?.held.insert(instance.id.clone(), (instance.clone(), until));
            self.book.0.changed.send_replace(());
            Ok(Box::new(Entry { book: self.book.clone(), id: instance.id.clone(), ttl }) as Box<dyn Held>)
        })
    }
}

/// One who is in the book.
struct Entry {
    book: Book,
    id: String,
    ttl: Duration,
}

impl Held for Entry {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let mut pages = self.book.open()?;
            let entry = pages.held.get_mut(&self.id).filter(|(_, until)| *until > Instant::now());
            let (_, until) = entry.ok_or_else(|| Status::not_found("not in the book any more"))?;
            *until = Instant::now() + self.ttl;
            Ok(())
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.book.open()?.held.remove(&self.id);
            self.book.0.changed.send_replace(());
            Ok(())
        })
    }
}
