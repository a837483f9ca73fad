//! Titanic: requests to services of Majordomo that are kept on disk until their reply is fetched.
//!
//! ```
//! use std::time::Duration;
//! use switchboard_core::Result;
//! use switchboard_pattern::{majordomo, titanic};
//!
//! async fn serve(mut worker: majordomo::Worker) -> Result<()> {
//!     while let Some(request) = worker.next().await {
//!         let upper = request.body().body().to_ascii_uppercase();
//!         request.reply(upper).await?;
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! # let folder = std::env::temp_dir().join(format!("titanic-doc-{}", std::process::id()));
//! let broker = majordomo::Broker::bind("tcp://127.0.0.1:0").await?;
//! let endpoint = broker.endpoint().to_string();
//! let titanic = titanic::Titanic::builder(&endpoint, &folder).start().await?;
//!
//! let client = titanic::Client::new(majordomo::Client::connect(&endpoint)?);
//! let id = client.store("upper", "hello").await?; // is on disk now, and no worker is needed yet
//!
//! tokio::spawn(serve(majordomo::Worker::connect(&endpoint, "upper")?));
//! let reply = client.wait(id, Duration::from_millis(20)).await?;
//! assert_eq!(reply.body(), b"HELLO");
//! client.close(id).await?;
//! # titanic.close().await;
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok(())
//! # }
//! ```
//!
//! The protocol is TSP (<https://rfc.zeromq.org/spec/9/>): the services `titanic.request`, `titanic.reply` and
//! `titanic.close`. They work with any broker of MDP/0.2, and with clients of any version that the broker serves.
//!
//! A request is executed at least once: after a crash, those without a stored reply are executed again.

mod client;
mod dispatch;
mod id;
mod operations;
mod service;
mod store;

pub use client::Client;
pub use id::RequestId;
pub use service::{SyncPolicy, Titanic, TitanicBuilder, TitanicOptions, TitanicStats};
