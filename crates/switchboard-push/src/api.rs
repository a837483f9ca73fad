//! HTTP interfaces through which other programs push, in the form of other gateways.
//!
//! [`GoimApi`] has the paths of goim's logic and of im-cloud's, byte for byte, for programs that call these today;
//! [`CentrifugoApi`](crate::CentrifugoApi) has a subset of Centrifugo's.
//!
//! ```text
//! POST /goim/push/room?operation=1000&type=live&room=7 ─► Hub::room("live/7").publish ─► {"code":0,"message":""}
//! ```

pub(crate) mod access;
mod form;
mod goim;
mod imcloud;
mod nodes;
pub(crate) mod plugin;
mod publish;

pub use nodes::{BackOff, Node, Nodes};
pub use plugin::GoimApi;
pub(crate) use publish::{publish, room_name};
