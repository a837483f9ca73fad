//! A service of which each server has its own books and configured failures.
#![allow(missing_docs, unreachable_pub, reason = "for these tests")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard::{Channel, Code, Cx, Receiver, Result, Retry, Running, Sender, Server, Status};
use tokio::sync::Notify;

#[switchboard::service(name = "test.Shelf")]
pub trait Shelf {
    /// Returns the titles that this shelf has.
    #[switchboard(idempotent)]
    async fn find(&self, cx: &Cx, titles: Vec<String>) -> Result<Vec<String>>;
    /// A method that is not idempotent.
    async fn add(&self, title: String) -> Result<String>;
    #[switchboard(oneway)]
    async fn note(&self, title: String) -> Result<()>;
    async fn list(&self, count: u32, out: Sender<String>) -> Result<()>;
    async fn count(&self, titles: Receiver<String>) -> Result<u32>;
}

/// Behaviour of a server for its calls.
#[derive(Clone, Copy, Debug, Default)]
pub enum Mood {
    #[default]
    Fine,
    Fails(Code, Retry),
    /// Never answers.
    Hangs,
}

#[derive(Default)]
pub struct Seen {
    pub mood: Mutex<Mood>,
    pub calls: AtomicU64,
    pub hanging: AtomicU64,
    pub notes: Mutex<Vec<String>>,
    pub changed: Notify,
    /// The metadata `x-who` and the time left of the last call.
    pub last: Mutex<Option<(Option<String>, Option<Duration>)>>,
}

#[derive(Clone)]
pub struct Books {
    name: String,
    seen: Arc<Seen>,
}

struct Hanging<'a>(&'a Seen);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.hanging.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

impl Books {
    async fn come(&self) -> Result<()> {
        self.seen.calls.fetch_add(1, Ordering::SeqCst);
        let mood = *self.seen.mood.lock().unwrap();
        match mood {
            Mood::Fine => Ok(()),
            Mood::Fails(code, retry) => {
                Err(Status::new(code, format!("{} fails", self.name)).with_retry(retry))
            }
            Mood::Hangs => {
                self.seen.hanging.fetch_add(1, Ordering::SeqCst);
                let _hanging = Hanging(&self.seen);
                self.seen.changed.notify_waiters();
                std::future::pending().await
            }
        }
    }
}

impl Shelf for Books {
    async fn find(&self, cx: &Cx, titles: Vec<String>) -> Result<Vec<String>> {
        let who = cx.metadata().text("x-who").map(str::to_owned);
        *self.seen.last.lock().unwrap() = Some((who, cx.time_left()));
        self.come().await?;
        Ok(titles.into_iter().map(|title| format!("{title} at {}", self.name)).collect())
    }

    async fn add(&self, title: String) -> Result<String> {
        self.come().await?;
        Ok(format!("{title} to {}", self.name))
    }

    async fn note(&self, title: String) -> Result<()> {
        self.seen.notes.lock().unwrap().push(title);
        self.seen.changed.notify_waiters();
        Ok(())
    }

    async fn list(&self, count: u32, out: Sender<String>) -> Result<()> {
        self.come().await?;
        for at in 0..count {
            out.send(format!("{at} of {}", self.name)).await?;
        }
        Ok(())
    }

    async fn count(&self, mut titles: Receiver<String>) -> Result<u32> {
        let mut count = 0;
        while titles.next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// A server and a channel to it.
pub struct Node {
    pub seen: Arc<Seen>,
    pub channel: Channel,
    /// The server, which runs until this is dropped.
    _running: Running,
}

impl Node {
    pub fn set(&self, mood: Mood) {
        *self.seen.mood.lock().unwrap() = mood;
    }

    pub fn calls(&self) -> u64 {
        self.seen.calls.load(Ordering::SeqCst)
    }

    /// Waits until the condition holds.
    pub async fn until(&self, holds: impl Fn(&Seen) -> bool) {
        let wait = async {
            loop {
                let changed = self.seen.changed.notified();
                if holds(&self.seen) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.expect("soon");
    }
}

/// Servers `a`, `b` and so on, of this test.
pub async fn nodes(test: &str, count: u8) -> Vec<Node> {
    let mut nodes = Vec::new();
    for at in 0..count {
        let name = char::from(b'a' + at).to_string();
        let address = format!("memory://{test}-{name}");
        let books = Books { name, seen: Arc::default() };
        let seen = books.seen.clone();
        let server = Server::new().add(ShelfServer::new(books)).listen(address);
        let running = server.start().await.unwrap();
        let channel = Channel::connect(&running.url()).await.unwrap();
        nodes.push(Node { seen, channel, _running: running });
    }
    nodes
}

pub fn channels(nodes: &[Node]) -> impl Iterator<Item = Channel> {
    nodes.iter().map(|node| node.channel.clone())
}

pub fn titles(titles: &[&str]) -> Vec<String> {
    titles.iter().map(|title| (*title).to_owned()).collect()
}
