//! The services of a running server, for the peers of its plugins.

use super::{ServerState, going_away, service_call::CountedCall};
use std::{
    borrow::Cow,
    future::{poll_fn, ready},
    sync::{Arc, Weak},
    task::Poll,
    time::Instant,
};
use switchboard_core::{
    Call, Caller, Cx, Limit, Peer, Result,
    call::{ReplyBody, ReplyParts, RequestBody},
    clock,
    layer::BoxFuture,
};
use switchboard_net::plugin::{ServiceCall, ServiceResponse, Services};
use switchboard_wire::{Found, Kind, Metadata, MethodTable, Status};

/// Longest name of a method, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The services of a server. Plugins are a part of the state of their server, so this does not keep it.
pub struct PluginServices {
    server: Weak<ServerState>,
    metadata_bytes_max: u64,
    metadata_entries_max: u64,
}

impl PluginServices {
    /// Creates the services of a server.
    pub fn new(server: &Arc<ServerState>) -> PluginServices {
        PluginServices {
            server: Arc::downgrade(server),
            metadata_bytes_max: server.limits.get(Limit::MetadataBytesMax),
            metadata_entries_max: server.limits.get(Limit::MetadataEntriesMax),
        }
    }

    /// Checks the metadata of a call.
    ///
    /// # Errors
    /// `ResourceExhausted` that names the limit.
    fn check_metadata(&self, metadata: &Metadata) -> Result<()> {
        let (bytes, entries) = (metadata.encoded_len() as u64, metadata.len() as u64);
        let limits = [
            (bytes, "bytes", self.metadata_bytes_max, "metadata_bytes_max"),
            (entries, "entries", self.metadata_entries_max, "metadata_entries_max"),
        ];
        match limits.into_iter().find(|(size, _, max, _)| size > max) {
            None => Ok(()),
            Some((size, unit, max, name)) => {
                let text = format!("request metadata has {size} {unit}; the limit is {max} ({name})");
                Err(Status::resource_exhausted(text))
            }
        }
    }

    fn begin(
        &self,
        peer: &Arc<Peer>,
        call: ServiceCall,
    ) -> Result<BoxFuture<'static, Result<ServiceResponse>>> {
        let shared = self.server.upgrade().ok_or_else(going_away)?;
        self.check_metadata(&call.metadata)?;
        let (found, call) = find(&shared.table, call)?;
        start(&shared, peer, found, call)
    }
}

impl std::fmt::Debug for PluginServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginServices").finish_non_exhaustive()
    }
}

impl Services for PluginServices {
    fn call(&self, peer: &Arc<Peer>, call: ServiceCall) -> BoxFuture<'static, Result<ServiceResponse>> {
        self.begin(peer, call).unwrap_or_else(|status| Box::pin(ready(Err(status))))
    }

    fn methods(&self) -> Option<Arc<MethodTable>> {
        self.server.upgrade().map(|shared| shared.table.clone())
    }

    fn authenticate(
        &self,
        peer: &Arc<Peer>,
        credentials: Metadata,
    ) -> BoxFuture<'static, Result<Option<Arc<Caller>>>> {
        let (server, peer) = (self.server.clone(), peer.clone());
        Box::pin(async move {
            let shared = server.upgrade().ok_or_else(going_away)?;
            shared.guarding.authenticate(&peer, credentials).await
        })
    }
}

/// Finds the method of a call, and checks that a call of one message each way can be made of it.
///
/// # Errors
/// The status with which the call ends, unless unknown methods pass the guards: then a method that ends with it.
fn find(table: &MethodTable, mut call: ServiceCall) -> Result<(Found, ServiceCall)> {
    let name = &call.method[..call.method.floor_char_boundary(NAME_BYTES_MAX)];
    let full = match name.rsplit_once('.') {
        Some((service, method)) if !name.contains('/') => Cow::Owned(format!("{service}/{method}")),
        _ => Cow::Borrowed(name),
    };
    let found = table.find_called(&full).map(Found::from).or_else(|| table.undeclared(&full, Kind::Unary));
    let Some(found) = found else {
        return Ok((table.refuse(&full, Kind::Unary, table.unknown(&full))?, call));
    };
    let (kind, bytes) = (table.info(found.method).kind, call.message.len());
    let max = table.message_bytes_max(found.method, u32::MAX);
    let refused = if kind != Kind::Unary {
        let name = table.full_name(found.method);
        Status::unimplemented(format!("{name} streams messages; this protocol calls unary methods only"))
    } else if bytes > max as usize {
        table.too_large(found.method, u32::try_from(bytes).unwrap_or(u32::MAX), max)
    } else {
        return Ok((found, call));
    };
    // Callers without credentials get the same status for every method.
    let found = table.refuse_call(&found, Kind::Unary, refused)?;
    call.message.clear();
    Ok((found, call))
}

/// Starts the handler of a call.
///
/// # Errors
/// A limit that the call exceeds.
fn start(
    shared: &Arc<ServerState>,
    peer: &Arc<Peer>,
    found: Found,
    call: ServiceCall,
) -> Result<BoxFuture<'static, Result<ServiceResponse>>> {
    let ServiceCall { codec, message, mut metadata, timeout, is_oneway, .. } = call;
    let Found { method, undeclared_name } = found;
    let began = clock::now();
    let deadline = timeout.map(|timeout| clock::after(began, timeout));
    let deadline = shared.guarding.deadlines.cap(method, began, deadline);
    let mut counted = CountedCall::new(shared, peer, method, began, deadline, &message)?;
    metadata.set_undeclared_name(undeclared_name.clone());
    let mut cx = Cx::new(peer, shared.table.service(method), shared.table.info(method), deadline, metadata);
    cx.set_oneway(is_oneway);
    cx.set_arrived(began);
    counted.set_names(undeclared_name, cx.shared_trace());
    let (service, index) = shared.table.service_and_index(method);
    let call = Call::new(index, codec, RequestBody::One(message), cx);
    Ok(Box::pin(run(shared.services[usize::from(service)].call(call), counted, deadline)))
}

/// Runs a handler to its end.
async fn run(
    mut handler: BoxFuture<'static, Result<switchboard_core::Reply>>,
    mut counted: CountedCall,
    deadline: Option<Instant>,
) -> Result<ServiceResponse> {
    let reply = poll_fn(|cx| {
        if let Some(over) = counted.over() {
            return Poll::Ready(Err(over));
        }
        let poll = counted.poll(|| handler.as_mut().poll(cx));
        if poll.is_pending() {
            counted.park(cx.waker());
        }
        poll
    });
    let reply = match deadline {
        None => reply.await,
        Some(deadline) => {
            let reply = tokio::time::timeout_at(deadline.into(), reply).await;
            reply.unwrap_or_else(|_| Err(counted.late()))
        }
    };
    let result =
        reply.and_then(response).and_then(|response| match counted.refuses(response.message.len()) {
            Some(status) => Err(status),
            None => Ok(response),
        });
    counted.end(&result);
    result
}

/// Takes the only message of a reply, with its metadata.
fn response(reply: switchboard_core::Reply) -> Result<ServiceResponse> {
    match reply.into_parts() {
        ReplyParts { mut metadata, trailers, body: ReplyBody::One(message) } => {
            metadata.extend(trailers);
            Ok(ServiceResponse::new(message.into_whole(), metadata))
        }
        _ => Err(Status::internal("the handler returned a stream for a method with a single reply")),
    }
}
