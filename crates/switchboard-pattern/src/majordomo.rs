//! Majordomo: requests to named services, whose workers come and go, through a broker.
//!
//! ```
//! use switchboard_core::Result;
//! use switchboard_pattern::majordomo::{Broker, Client, Worker};
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
//! let broker = Broker::bind("tcp://127.0.0.1:0").await?;
//! let endpoint = broker.endpoint().to_string();
//! tokio::spawn(serve(Worker::connect(&endpoint, "upper")?));
//!
//! let client = Client::connect(&endpoint)?;
//! assert_eq!(client.request("upper", "hello").await?.body(), b"HELLO");
//! # Ok(())
//! # }
//! ```
//!
//! The protocol is MDP/0.2 (<https://rfc.zeromq.org/spec/18/>), with `mmi.service` of
//! <https://rfc.zeromq.org/spec/8/>; the broker serves peers of MDP/0.1 (<https://rfc.zeromq.org/spec/7/>) as well.
//!
//! A broker of this module understands an extension: the command frame of a request, one byte in the protocol, has 14
//! more bytes: the priority (1), the maximum number of deliveries (1), the time in milliseconds that the request may
//! wait (4), and a number (8) that the command frames of its replies repeat behind a status code. Integers are
//! big-endian. Other brokers refuse such a request, so clients send it with [`ClientBuilder::extended`] only.

mod broker;
mod client;
mod command;
mod worker;

pub use crate::session::WorkerStats;
pub use broker::{Broker, BrokerBuilder, BrokerOptions, BrokerStats, ServiceStats};
pub use client::{Client, ClientBuilder, ClientStats, Replies, Reply, RequestBuilder};
pub(crate) use command::is_service;
pub use worker::{Request, Worker, WorkerBuilder};
