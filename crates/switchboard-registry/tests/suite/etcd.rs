//! An etcd that fails when it is set to.

/// The part of the API of etcd that the client calls.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_imports,
    clippy::all,
    reason = "generated code is as public as a library would need it"
)]
mod api {
    include!("../../generated/etcdserverpb.rs");
}

use super::Fault;
use api::{
    KV, KVServer, KeyValue, PutRequest, PutResponse, RangeRequest, RangeResponse, ResponseHeader, Watch,
    WatchRequest, WatchResponse, WatchServer,
};
use switchboard::{Code, Cx, Receiver, Result, Running, Sender, Server, Status};
use tokio::sync::broadcast;

const VALUE: &[u8] = br#"{"service":"s","id":"1","address":"tcp://10.0.0.7:80"}"#;
pub(crate) const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrong {
    /// A list ends with this status.
    List(Code, &'static str),
    /// A list has neither keys nor a revision.
    NoRevision,
    /// The first page of a list arrives, and the second is compacted by then.
    SecondPage,
    /// A watch ends with this status.
    Watch(Code, &'static str),
    /// A watch is canceled with this compact revision and reason, after it was created.
    Canceled(i64, &'static str),
    /// A watch ends without a status.
    Ended,
}

#[derive(Clone)]
struct OneKey {
    fault: Fault<Wrong>,
    /// The fault is another one.
    changes: broadcast::Sender<()>,
}

impl OneKey {
    fn fault(&self) -> Option<Wrong> {
        *self.fault.lock().expect("no test panics with it")
    }
}

impl KV for OneKey {
    async fn range(&self, request: RangeRequest, _: &Cx) -> Result<RangeResponse> {
        let page = |name: &str, more| RangeResponse {
            header: ResponseHeader { revision: 7, ..Default::default() }.into(),
            kvs: vec![KeyValue {
                key: format!("/switchboard/s/{name}").into(),
                value: VALUE.into(),
                ..Default::default()
            }],
            more,
            ..Default::default()
        };
        match self.fault() {
            Some(Wrong::List(code, text)) => Err(Status::new(code, text)),
            Some(Wrong::NoRevision) => Ok(RangeResponse::default()),
            Some(Wrong::SecondPage) if request.revision == 0 => Ok(page("0", true)),
            Some(Wrong::SecondPage) => Err(Status::new(Code::OutOfRange, COMPACTED)),
            _ => Ok(page("1", false)),
        }
    }

    async fn put(&self, _: PutRequest, _: &Cx) -> Result<PutResponse> {
        Err(Status::unimplemented("nothing is written here"))
    }
}

impl Watch for OneKey {
    async fn watch(
        &self,
        mut input: Receiver<WatchRequest>,
        _: &Cx,
        out: Sender<WatchResponse>,
    ) -> Result<()> {
        // Before the fault is read, so that one between a list and its watch is not missed.
        let mut changes = self.changes.subscribe();
        input.next().await?;
        let created = WatchResponse {
            header: ResponseHeader { revision: 7, ..Default::default() }.into(),
            created: true,
            ..Default::default()
        };
        out.send(created.clone()).await?;
        loop {
            match self.fault() {
                None => {}
                Some(Wrong::Watch(code, text)) => return Err(Status::new(code, text)),
                Some(Wrong::Canceled(compact_revision, reason)) => {
                    let canceled = WatchResponse {
                        created: false,
                        canceled: true,
                        compact_revision,
                        cancel_reason: reason.to_owned(),
                        ..created
                    };
                    return out.send(canceled).await;
                }
                // The client has to list again to see it.
                Some(_) => return Ok(()),
            }
            let _ = changes.recv().await;
        }
    }
}

/// Serves one key, the instance 1 of the service `s`, at `listen`. Watches report no change; each of them looks at the
/// fault when it begins and when something is sent to `changes`.
pub(crate) async fn serve(listen: &str, fault: Fault<Wrong>, changes: broadcast::Sender<()>) -> Running {
    let fake = OneKey { fault, changes };
    let server = Server::new().add(KVServer::new(fake.clone())).add(WatchServer::new(fake));
    server.listen(listen).start().await.expect("a free address")
}
