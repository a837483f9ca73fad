//! Pirate: requests to any worker of a pool, through a queue, with retries in the client.
//!
//! ```
//! use switchboard_core::Result;
//! use switchboard_pattern::pirate::{Client, Queue, Worker};
//!
//! async fn serve(mut worker: Worker) -> Result<()> {
//!     while let Some(request) = worker.next().await {
//!         let upper = request.body().body().to_ascii_uppercase();
//!         request.reply(upper).await?;
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let queue = Queue::bind("tcp://127.0.0.1:0", "tcp://127.0.0.1:0").await?;
//! tokio::spawn(serve(Worker::connect(&queue.workers_endpoint().to_string())?));
//!
//! let mut client = Client::connect(&queue.clients_endpoint().to_string())?;
//! assert_eq!(client.request("hello").await?.body(), b"HELLO");
//! # Ok(())
//! # }
//! ```
//!
//! - *Lazy Pirate* is the [`Client`]: a REQ socket whose requests are sent again on a new socket. It works with any
//!   REP or ROUTER server, also without a queue.
//! - *Simple Pirate* are workers with a REQ socket, [`WorkerBuilder::simple`]. The queue notices the end of their
//!   connection at once, and a network that is split by PINGs of ZMTP, after 20 s.
//! - *Paranoid Pirate* are workers that exchange heartbeats with the queue, PPP
//!   (<https://rfc.zeromq.org/spec/6/>).
//!
//! A [`Queue`] serves workers of both kinds at the same time.

mod client;
mod queue;
mod worker;

pub use crate::session::WorkerStats;
pub use client::{Client, ClientBuilder, ClientStats};
pub use queue::{Queue, QueueBuilder, QueueOptions, QueueStats};
pub use worker::{Request, Worker, WorkerBuilder};
