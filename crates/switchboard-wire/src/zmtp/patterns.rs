//! Rules of the socket types that need no connection, for sockets that are built on [`Connection`](super::Connection).
//!
//! | socket type | rules |
//! | --- | --- |
//! | all | [`Assembly`]: frames to messages |
//! | DEALER, PUSH out; DEALER, PULL, ROUTER in | [`Rotation`]: the next peer that has room, or that has messages |
//! | PUB, XPUB; SUB, XSUB | [`Subscriptions`]: prefixes of the first frame; [`Change`]: subscriptions as messages |
//! | REP | [`Envelope`]: the return path of a request |
//! | REQ | [`Requests`]: a request, then its reply |
//! | ROUTER | [`Routes`]: identities of peers |

mod assembly;
mod change;
mod envelope;
mod requests;
mod rotation;
mod routes;
mod subscriptions;

pub use assembly::Assembly;
pub use change::Change;
pub use envelope::Envelope;
pub use requests::{AwaitsReply, Reply, Requests};
pub use rotation::Rotation;
pub use routes::{Added, Routes};
pub use subscriptions::{Subscriptions, TooManySubscriptions};
