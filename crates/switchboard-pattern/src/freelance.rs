//! Freelance: requests to any of several equal servers, without a broker.
//!
//! ```
//! use switchboard_core::Result;
//! use switchboard_pattern::freelance::{Server, TrackedClient};
//!
//! async fn serve(mut server: Server) -> Result<()> {
//!     while let Some(request) = server.next().await {
//!         let upper = request.body().body().to_ascii_uppercase();
//!         request.reply(upper)?;
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! # let path = |name: &str| format!("ipc://{}/freelance-{name}-{}", std::env::temp_dir().display(), std::process::id());
//! # let endpoints = [path("one"), path("two")];
//! for endpoint in &endpoints {
//!     tokio::spawn(serve(Server::bind(endpoint).await?));
//! }
//! let client = TrackedClient::connect(&endpoints).await?;
//! assert_eq!(client.request("hello").await?.body(), b"HELLO");
//! # Ok(())
//! # }
//! ```
//!
//! | client | sends a request to | servers |
//! | --- | --- | --- |
//! | [`SequentialClient`] | one server, and to the next one after a time without a reply | REP |
//! | [`ShotgunClient`] | all servers at once; the first reply counts | REP, which repeat the first frame |
//! | [`TrackedClient`] | one server that answered its last PING, and to the next one after a failure | [`Server`] |
//!
//! The protocol of the last one is FLP (<https://rfc.zeromq.org/spec/10/>). Servers may execute a request several times.

mod sequential;
mod server;
mod shotgun;
mod tracked;

pub use sequential::{SequentialClient, SequentialStats};
pub use server::{Server, ServerBuilder, ServerRequest, ServerStats};
pub use shotgun::{ShotgunClient, ShotgunStats};
pub use tracked::{TrackedBuilder, TrackedClient, TrackedStats};
