//! The counters of a socket for the metrics and pages of servers.

use crate::{PeerStats, Socket};
use switchboard_core::{
    Result,
    counters::{Cell, Counter, CounterSource, ListRequest, ListedRows, Listing},
};
use switchboard_wire::Status;

const LIST: &str = "sockets";
const COLUMNS: [&str; 10] = [
    "peer",
    "endpoint",
    "type",
    "connected",
    "connections",
    "sent",
    "unsent",
    "received",
    "unread",
    "dropped",
];

/// Sums over the peers of the socket, and the list `sockets` with a row for each peer. Sums decrease when a peer is
/// removed: they are gauges.
///
/// A server that shows them keeps a handle: close the socket with [`close`](Socket::close).
impl CounterSource for Socket {
    fn kind(&self) -> &'static str {
        "socket"
    }

    fn counters(&self) -> Vec<Counter> {
        let totals = self.core().totals();
        vec![
            Counter::total("dropped", "messages that were dropped", totals.dropped),
            Counter::gauge("peers", "peers of the socket", totals.peers),
            Counter::gauge("peers_connected", "peers with a connection", totals.connected),
            Counter::gauge("sent", "messages that were accepted for the present peers", totals.sent),
            Counter::gauge("unsent", "messages that wait to be written", totals.unsent),
            Counter::gauge("received", "messages that arrived from the present peers", totals.received),
            Counter::gauge("unread", "messages that wait to be taken", totals.unread),
        ]
    }

    fn lists(&self) -> &'static [&'static str] {
        &[LIST]
    }

    /// Returns a page of the peers, of those whose endpoint contains the filter. The position is the number of rows
    /// before the page, so that a peer may be missed or repeated if others are added or removed meanwhile.
    fn list<'a>(&'a self, list: &'a str, request: ListRequest) -> Listing<'a> {
        let listed = match list {
            LIST => page(self.stats().peers, &request),
            _ => Err(Status::not_found(format!("list \"{list}\" is not one of a socket"))),
        };
        Box::pin(std::future::ready(listed))
    }
}

fn page(mut peers: Vec<PeerStats>, request: &ListRequest) -> Result<ListedRows> {
    let from = request.from.as_deref().unwrap_or("0");
    let from: usize = from.parse().map_err(|_| {
        let text = format!("from \"{}\" is not a number; send that of the page before", from.escape_debug());
        Status::invalid_argument(text)
    })?;
    peers.sort_unstable_by_key(|peer| peer.id);
    if let Some(filter) = &request.filter {
        peers.retain(|peer| peer.endpoint.contains(filter.as_str()));
    }
    let next = from.saturating_add(request.rows_max);
    let rows = peers.iter().skip(from).take(request.rows_max).map(row).collect();
    Ok(ListedRows::new(&COLUMNS, rows, (next < peers.len()).then(|| next.to_string())))
}

fn row(peer: &PeerStats) -> Vec<Cell> {
    vec![
        peer.id.to_string().into(),
        peer.endpoint.as_str().into(),
        peer.socket_type.into(),
        peer.is_connected.then_some("yes").into(),
        peer.connections.into(),
        peer.sent.into(),
        (peer.unsent as u64).into(),
        peer.received.into(),
        (peer.unread as u64).into(),
        peer.dropped.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pull, Push};

    #[tokio::test]
    async fn a_page_has_the_peers_and_the_metrics_their_sums() {
        let push = Push::new().unwrap();
        push.bind_to("inproc://counters-of-a-socket").await.unwrap();
        let pulls = [Pull::new().unwrap(), Pull::new().unwrap()];
        for pull in &pulls {
            pull.connect_to("inproc://counters-of-a-socket").await.unwrap();
        }
        for _ in 0..4 {
            push.send("job").await.unwrap();
        }
        let source: &dyn CounterSource = push.as_ref();
        let value = |name| source.counters().into_iter().find(|counter| counter.name == name).unwrap().value;
        assert_eq!((value("peers"), value("sent"), value("dropped")), (2, 4, 0));
        assert_eq!((value("peers_connected"), value("unsent")), (2, 0));
        let source: &dyn CounterSource = pulls[0].as_ref();
        let value = |name| source.counters().into_iter().find(|counter| counter.name == name).unwrap().value;
        assert_eq!((value("received"), value("unread")), (2, 2));
        let source: &dyn CounterSource = push.as_ref();
        let (mut rows, mut request) = (Vec::new(), ListRequest::new(1));
        loop {
            let page = source.list(LIST, request.clone()).await.unwrap();
            assert!(page.rows.iter().all(|row| row.len() == page.columns.len()), "{page:?}");
            rows.extend(page.rows);
            let Some(next) = page.next else { break };
            request.from = Some(next);
        }
        assert_eq!(rows.len(), 2);
        assert_ne!(rows[0][0], rows[1][0], "{rows:?}");
        request.from = Some("x".to_owned());
        source.list(LIST, request).await.unwrap_err();
        source.list("topics", ListRequest::new(1)).await.unwrap_err();
    }
}
