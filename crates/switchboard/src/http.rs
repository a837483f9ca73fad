//! gRPC, gRPC-Web and Connect on HTTP/1.1 and HTTP/2.

use crate::{Limits, Peer, net::Io, server::Shared};
use bytes::BytesMut;
use std::sync::Arc;

/// Serves one connection whose first bytes are in `first`, to its end.
pub(crate) async fn serve(
    _io: Box<dyn Io>,
    _first: BytesMut,
    _peer: Peer,
    _shared: Arc<Shared>,
    _limits: &Limits,
    _shard: usize,
) {
}
