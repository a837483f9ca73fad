//! The service `grpc.channelz.v1.Channelz`: one server with its listeners, connections and counters.
//!
//! It shows the server that it runs on, and no other server of the process; it shows no channels.

use buffa::MessageField;
use buffa_types::google::protobuf::Timestamp;
use proto::{
    __buffa::oneof::{
        address::Address as AddressKind,
        security::{Model, tls::CipherSuite},
    },
    Address, Channelz, ChannelzServer, GetChannelRequest, GetChannelResponse, GetServerRequest,
    GetServerResponse, GetServerSocketsRequest, GetServerSocketsResponse, GetServersRequest,
    GetServersResponse, GetSocketRequest, GetSocketResponse, GetSubchannelRequest, GetSubchannelResponse,
    GetTopChannelsRequest, GetTopChannelsResponse, Security, Server, ServerData, ServerRef, Socket,
    SocketData, SocketRef,
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
    time::SystemTime,
};
use switchboard_core::{Cx, Result, metrics::ConnectionCounters};
use switchboard_driver::serving::ServerState;
use switchboard_net::net::Address as Listening;
use switchboard_wire::{ServiceInfo, Status};

#[allow(dead_code, missing_docs, unreachable_pub, unused_imports, reason = "generated")]
mod proto {
    include!("../../generated/grpc.channelz.v1.rs");
}

/// Default number of connections per page.
const PAGE: usize = 100;
/// Maximum number of connections per page.
const PAGE_MAX: usize = 1000;

/// The service; it responds with `Unavailable` until its server is set.
#[derive(Clone, Default)]
pub(super) struct Shown(Arc<OnceLock<Weak<ServerState>>>);

impl Shown {
    pub(super) fn info(&self) -> &'static ServiceInfo {
        switchboard_core::Service::info(&self.service())
    }

    pub(super) fn service(&self) -> ChannelzServer<Shown> {
        ChannelzServer::new(self.clone())
    }

    /// Sets the server of the service.
    pub(super) fn show(&self, shared: &Arc<ServerState>) {
        // Called once, by the server that created it.
        let _ = self.0.set(Arc::downgrade(shared));
    }

    fn shared(&self) -> Result<Arc<ServerState>> {
        let shared = self.0.get().and_then(Weak::upgrade);
        shared.ok_or_else(|| Status::unavailable("the server is going away"))
    }
}

impl Channelz for Shown {
    async fn get_top_channels(
        &self,
        request: GetTopChannelsRequest,
        _: &Cx,
    ) -> Result<GetTopChannelsResponse> {
        page(request.start_channel_id, request.max_results)?;
        Ok(GetTopChannelsResponse { end: true, ..Default::default() })
    }

    async fn get_servers(&self, request: GetServersRequest, _: &Cx) -> Result<GetServersResponse> {
        let (start, _) = page(request.start_server_id, request.max_results)?;
        let shared = self.shared()?;
        let server = (start <= shared.id).then(|| server(&shared));
        Ok(GetServersResponse { server: server.into_iter().collect(), end: true, ..Default::default() })
    }

    async fn get_server(&self, request: GetServerRequest, _: &Cx) -> Result<GetServerResponse> {
        let shared = self.shared()?;
        of(&shared, request.server_id)?;
        Ok(GetServerResponse { server: MessageField::some(server(&shared)), ..Default::default() })
    }

    async fn get_server_sockets(
        &self,
        request: GetServerSocketsRequest,
        _: &Cx,
    ) -> Result<GetServerSocketsResponse> {
        let (start, most) = page(request.start_socket_id, request.max_results)?;
        let shared = self.shared()?;
        of(&shared, request.server_id)?;
        let mut ids: Vec<u64> = shared.open().keys().copied().filter(|id| *id >= start).collect();
        let end = ids.len() <= most;
        if !end {
            ids.select_nth_unstable(most);
            ids.truncate(most);
        }
        ids.sort_unstable();
        let refs = ids.into_iter().map(|id| {
            let remote = shared.open().get(&id).and_then(|open| open.socket.as_ref()?.remote);
            socket_ref(id, remote.map(|remote| remote.to_string()).unwrap_or_default())
        });
        Ok(GetServerSocketsResponse { socket_ref: refs.collect(), end, ..Default::default() })
    }

    async fn get_channel(&self, request: GetChannelRequest, _: &Cx) -> Result<GetChannelResponse> {
        Err(missing("channel", request.channel_id))
    }

    async fn get_subchannel(&self, request: GetSubchannelRequest, _: &Cx) -> Result<GetSubchannelResponse> {
        Err(missing("subchannel", request.subchannel_id))
    }

    async fn get_socket(&self, request: GetSocketRequest, _: &Cx) -> Result<GetSocketResponse> {
        let shared = self.shared()?;
        let id = u64::try_from(request.socket_id).map_err(|_| missing("socket", request.socket_id))?;
        let listener = shared.listening().iter().find(|(listener, _)| *listener == id);
        let socket = match listener {
            Some((_, address)) => listening(id, address),
            None => {
                let open = shared.open().get(&id).map(|open| open.socket.clone());
                connection(id, open.flatten().ok_or_else(|| missing("socket", request.socket_id))?.as_ref())
            }
        };
        Ok(GetSocketResponse { socket: MessageField::some(socket), ..Default::default() })
    }
}

/// Parses the start of a list and its maximum length.
///
/// # Errors
/// `InvalidArgument` for negative values.
fn page(start: i64, max_results: i64) -> Result<(u64, usize)> {
    let start = u64::try_from(start).map_err(|_| {
        Status::invalid_argument(format!("a list begins at an id, 0 or greater, not at {start}"))
    })?;
    match usize::try_from(max_results) {
        Ok(0) => Ok((start, PAGE)),
        Ok(most) => Ok((start, most.min(PAGE_MAX))),
        Err(_) => Err(Status::invalid_argument(format!("max_results is {max_results}: expected 0 or more"))),
    }
}

/// # Errors
/// `NotFound` for an id other than this server's.
fn of(shared: &ServerState, id: i64) -> Result<()> {
    if u64::try_from(id) == Ok(shared.id) { Ok(()) } else { Err(missing("server", id)) }
}

fn missing(what: &str, id: i64) -> Status {
    Status::not_found(format!("no {what} has the id {id}"))
}

fn server(shared: &ServerState) -> Server {
    let (mut ended, mut succeeded) = (0, 0);
    for method in shared.metrics.methods() {
        ended += method.ended.iter().sum::<u64>();
        succeeded += method.ended[0];
    }
    for open in shared.open().values() {
        if let Some(socket) = &open.socket {
            shared.last_started.advance(socket.last_started());
        }
    }
    let in_flight = shared.parked.load(Ordering::Relaxed) as u64;
    let data = ServerData {
        calls_started: (ended + in_flight) as i64,
        calls_succeeded: succeeded as i64,
        calls_failed: (ended - succeeded) as i64,
        last_call_started_timestamp: timestamp(shared.last_started.time()),
        ..Default::default()
    };
    let listeners = shared.listening().iter().map(|(id, address)| socket_ref(*id, address.to_string()));
    Server {
        r#ref: MessageField::some(ServerRef { server_id: shared.id as i64, ..Default::default() }),
        data: MessageField::some(data),
        listen_socket: listeners.collect(),
        ..Default::default()
    }
}

fn listening(id: u64, address: &Listening) -> Socket {
    let local = match address {
        Listening::Tcp(host, port) | Listening::Tls(host, port) => match host.parse() {
            Ok(ip) => ip_address(SocketAddr::new(ip, *port)),
            Err(_) => other(address.to_string()),
        },
        Listening::Unix(path) => {
            let filename = path.display().to_string();
            AddressKind::from(proto::address::UdsAddress { filename, ..Default::default() })
        }
        _ => other(address.to_string()),
    };
    Socket {
        r#ref: MessageField::some(socket_ref(id, address.to_string())),
        local: MessageField::some(Address { address: Some(local), ..Default::default() }),
        ..Default::default()
    }
}

fn connection(id: u64, socket: &ConnectionCounters) -> Socket {
    let counts = socket.counts();
    let data = SocketData {
        streams_started: counts.started as i64,
        streams_succeeded: counts.ended as i64,
        streams_failed: counts.lost as i64,
        messages_sent: counts.sent as i64,
        messages_received: counts.received as i64,
        keep_alives_sent: counts.pings as i64,
        last_remote_stream_created_timestamp: timestamp(counts.last_started),
        last_message_sent_timestamp: timestamp(counts.last_sent),
        last_message_received_timestamp: timestamp(counts.last_received),
        ..Default::default()
    };
    let address = |address: Option<SocketAddr>| {
        let address =
            address.map(|address| Address { address: Some(ip_address(address)), ..Default::default() });
        address.map_or_else(MessageField::none, MessageField::some)
    };
    let security = socket.tls.get().map(|suite| {
        let tls = proto::security::Tls {
            cipher_suite: Some(CipherSuite::StandardName(suite.clone())),
            ..Default::default()
        };
        Security { model: Some(Model::from(tls)), ..Default::default() }
    });
    let name = socket.remote.map(|remote| remote.to_string()).unwrap_or_default();
    Socket {
        r#ref: MessageField::some(socket_ref(id, name)),
        data: MessageField::some(data),
        local: address(socket.local),
        remote: address(socket.remote),
        security: security.map_or_else(MessageField::none, MessageField::some),
        ..Default::default()
    }
}

fn socket_ref(id: u64, name: String) -> SocketRef {
    SocketRef { socket_id: id as i64, name, ..Default::default() }
}

fn ip_address(address: SocketAddr) -> AddressKind {
    let ip_address = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let port = address.port().into();
    AddressKind::from(proto::address::TcpIpAddress {
        ip_address: ip_address.into(),
        port,
        ..Default::default()
    })
}

fn other(name: String) -> AddressKind {
    AddressKind::from(proto::address::OtherAddress { name, ..Default::default() })
}

fn timestamp<P: buffa::ProtoBox<Timestamp>>(time: Option<SystemTime>) -> MessageField<Timestamp, P> {
    let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let Some(since) = since else { return MessageField::none() };
    MessageField::some(Timestamp {
        seconds: since.as_secs() as i64,
        nanos: since.subsec_nanos() as i32,
        ..Default::default()
    })
}
