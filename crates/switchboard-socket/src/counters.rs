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

    /// Returns a page of the peers, of those whose endpoint contains the filter, in the order of their slots. The
    /// position is a slot: a peer that stays is on one page, whichever peers come and go meanwhile.
    fn list<'a>(&'a self, list: &'a str, request: ListRequest) -> Listing<'a> {
        let listed = match list {
            LIST => page(self, &request),
            _ => Err(Status::not_found(format!("list \"{list}\" is not one of a socket"))),
        };
        Box::pin(std::future::ready(listed))
    }
}

fn page(socket: &Socket, request: &ListRequest) -> Result<ListedRows> {
    let from = request.from.as_deref().unwrap_or("0");
    let from: usize = from.parse().map_err(|_| {
        let text = format!("from \"{}\" is not a number; send that of the page before", from.escape_debug());
        Status::invalid_argument(text)
    })?;
    let filter = request.filter.as_deref().unwrap_or_default();
    let (peers, next) = socket.core().stats_page(from, request.rows_max, filter);
    let rows = peers.iter().map(row).collect();
    Ok(ListedRows::new(&COLUMNS, rows, next.map(|next| next.to_string())))
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
        // A filter leaves out peers of other endpoints; pages after the last one are empty.
        for (from, filter, expected) in [("0", "counters-of", 2), ("0", "elsewhere", 0), ("2", "inproc", 0)] {
            let mut request = ListRequest::new(10);
            (request.from, request.filter) = (Some(from.to_owned()), Some(filter.to_owned()));
            let page = source.list(LIST, request).await.unwrap();
            assert_eq!((page.rows.len(), page.next), (expected, None), "{from} {filter}");
        }
        source.list("topics", ListRequest::new(1)).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_peer_that_stays_is_on_one_page_while_others_leave() {
        let push = Push::new().unwrap();
        push.bind_to("inproc://pages-of-a-socket").await.unwrap();
        let mut pulls = Vec::new();
        for _ in 0..6 {
            let pull = Pull::new().unwrap();
            pull.connect_to("inproc://pages-of-a-socket").await.unwrap();
            pulls.push(pull);
        }
        let source: &dyn CounterSource = push.as_ref();
        let mut request = ListRequest::new(3);
        let first = source.list(LIST, request.clone()).await.unwrap();
        // Those of the first page leave: the second page is the same.
        for pull in pulls.drain(..3) {
            pull.close().await;
        }
        let until_gone = async {
            while source.counters().iter().any(|counter| counter.name == "peers" && counter.value > 3) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), until_gone)
            .await
            .expect("three peers are left");
        request.from = first.next;
        let second = source.list(LIST, request).await.unwrap();
        assert_eq!((first.rows.len(), second.rows.len(), second.next), (3, 3, None));
        assert!(second.rows.iter().all(|row| !first.rows.iter().any(|other| other[0] == row[0])));
    }
}
