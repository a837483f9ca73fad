//! The server's side of a connection.

use super::{
    Accept, Ack, AckKind, Auth, ConnAck, Connect, Disconnect, EncodedPublish, ErrorKind, Limits,
    OutgoingPublish, Packet, Properties, PropertyId, ProtocolError, Publish, QoS, Reason, SendError, SubAck,
    Subscribe, Unsubscribe, Value, Version,
    decode::{self, RawPacket},
    encode,
};
use crate::{Input, Outbox};
use bytes::Bytes;
use std::num::NonZeroU16;

/// Event from a client.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a driver must handle each event
pub enum ServerEvent {
    /// The client acknowledged or released a message: PUBACK, PUBREC, PUBREL or PUBCOMP.
    Ack(Ack),
    /// The client sent AUTH. It has no method, unless its CONNECT had one.
    Auth(Auth),
    /// The client connects. Nothing is read until [`Server::accept`] or [`Server::reject`].
    Connect(Box<Connect>),
    /// The client ends the connection: nothing is read any more.
    Disconnect(Disconnect),
    /// The client sent PINGREQ; the PINGRESP is in the outbox.
    Ping,
    /// The client published a message, which may be a repeated one: see [`ReceivedIds`](super::ReceivedIds). With QoS 1
    /// and 2, [`Server::acknowledge`] follows.
    Publish(Publish),
    /// The client subscribes; [`Server::suback`] follows.
    Subscribe(Subscribe),
    /// The client ends subscriptions; [`Server::suback`] follows.
    Unsubscribe(Unsubscribe),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// CONNECT is expected.
    Start,
    /// CONNECT waits for a verdict.
    Verdict,
    Open,
    Closed,
}

/// The server's side of a connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    state: State,
    version: Version,
    aliases: Aliases,
    /// Topic names of the aliases that this side has given, by their number less 1.
    given: Vec<Bytes>,
    given_max: u16,
    /// Largest packet that the client accepts, in bytes.
    packet_bytes_max: u32,
    /// The client accepts reason strings in answers.
    with_problems: bool,
    /// A DISCONNECT cannot change the expiry of the session.
    ends_session: bool,
    /// Messages of QoS 1 and 2 of the client without their last acknowledgement.
    in_flight: u32,
}

impl Server {
    /// Begins a connection: the client speaks first.
    pub fn new(limits: Limits) -> Server {
        Server {
            limits,
            state: State::Start,
            version: Version::default(),
            aliases: Aliases::new(limits.aliases_max),
            given: Vec::new(),
            given_max: 0,
            packet_bytes_max: u32::MAX,
            with_problems: true,
            ends_session: false,
            in_flight: 0,
        }
    }

    /// Returns the version of the client; that of the last CONNECT.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns true between the acceptance of the client and the end of the connection.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns true after the end of the connection: nothing is read or written any more.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Processes bytes of `input`; responses are appended to `out`. `None` means that more bytes are needed, that
    /// CONNECT waits for a verdict, or that the connection is closed.
    ///
    /// # Errors
    /// Returns the error of the client and closes the connection; `out` has the packet that reports it, if its version
    /// has one.
    pub fn recv(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent>, ProtocolError> {
        match self.state {
            State::Closed => {
                input.skip(input.len());
                Ok(None)
            }
            State::Verdict => Ok(None),
            State::Start => self.start(input, out),
            State::Open => self.read(input, out).inspect_err(|error| self.close(error.kind().reason(), out)),
        }
    }

    fn start(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, ProtocolError> {
        if input.rest().first().is_some_and(|first| *first != 0x10) {
            self.state = State::Closed;
            return Err(ProtocolError::new(ErrorKind::NotConnect, "the first packet is not CONNECT"));
        }
        let packet = decode::take_packet(input, &self.limits).inspect_err(|_| self.state = State::Closed)?;
        let Some(RawPacket { body, .. }) = packet else { return Ok(None) };
        let connect = match decode::connect(body, &self.limits) {
            Ok(connect) => connect,
            Err((error, version)) => {
                self.state = State::Closed;
                let has_code = matches!(error.kind(), ErrorKind::ClientId | ErrorKind::UnsupportedVersion);
                if let Some(version) = version.filter(|version| version.is_v5() || has_code) {
                    let ack = ConnAck { reason: error.kind().reason(), ..ConnAck::default() };
                    encode::connack(&ack, version, out);
                }
                return Err(error);
            }
        };
        self.version = connect.version;
        let number = |id| connect.properties.number(id);
        self.given_max = number(PropertyId::TopicAliasMaximum).map_or(0, |max| max as u16);
        self.packet_bytes_max = number(PropertyId::MaximumPacketSize).unwrap_or(u32::MAX);
        self.with_problems = number(PropertyId::RequestProblem) != Some(0);
        self.ends_session = connect.session_expiry() == Some(0);
        self.state = State::Verdict;
        Ok(Some(ServerEvent::Connect(Box::new(connect))))
    }

    fn read(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, ProtocolError> {
        let Some(raw) = decode::take_packet(input, &self.limits)? else { return Ok(None) };
        if raw.first == 0x10 {
            return Err(ProtocolError::protocol("a second CONNECT"));
        }
        let event = match decode::packet(raw, self.version, &self.limits)? {
            Packet::Ack(ack) => ServerEvent::Ack(ack),
            Packet::Auth(auth) => ServerEvent::Auth(auth),
            Packet::Disconnect(disconnect) => {
                let expiry = disconnect.properties.number(PropertyId::SessionExpiry);
                if self.ends_session && expiry.is_some_and(|seconds| seconds > 0) {
                    return Err(ProtocolError::protocol("DISCONNECT keeps a session that CONNECT did not"));
                }
                self.state = State::Closed;
                ServerEvent::Disconnect(disconnect)
            }
            Packet::PingReq => {
                encode::packet(&Packet::PingResp, self.version, out);
                ServerEvent::Ping
            }
            Packet::Publish(publish) => ServerEvent::Publish(self.published(publish)?),
            Packet::Subscribe(subscribe) => ServerEvent::Subscribe(subscribe),
            Packet::Unsubscribe(unsubscribe) => ServerEvent::Unsubscribe(unsubscribe),
            packet @ (Packet::ConnAck(_) | Packet::Connect(_) | Packet::PingResp | Packet::SubAck(_)) => {
                let text = format!("a client cannot send {}", packet.name());
                return Err(ProtocolError::protocol(text));
            }
        };
        Ok(Some(event))
    }

    /// Resolves the alias of a message, and counts it until its acknowledgement.
    fn published(&mut self, mut publish: Publish) -> Result<Publish, ProtocolError> {
        if publish.properties.number(PropertyId::SubscriptionId).is_some() {
            return Err(ProtocolError::protocol("PUBLISH of a client has a subscription identifier"));
        }
        self.aliases.resolve(&mut publish)?;
        if publish.qos != QoS::AtMostOnce {
            self.in_flight += 1;
            if self.version.is_v5() && self.in_flight > u32::from(self.limits.receive_max.max(1)) {
                let text = format!(
                    "more than {} messages are unacknowledged (receive_max)",
                    self.limits.receive_max
                );
                return Err(ProtocolError::new(ErrorKind::ReceiveMaximum, text));
            }
        }
        Ok(publish)
    }

    /// Accepts the client: CONNACK with the limits of the server. Has no effect at other times than after
    /// [`ServerEvent::Connect`].
    pub fn accept(&mut self, accept: &Accept, out: &mut Outbox) {
        if self.state != State::Verdict {
            return;
        }
        self.state = State::Open;
        if accept.session_expiry == Some(0) {
            self.ends_session = true;
        }
        let mut properties = Properties::default();
        if self.version.is_v5() {
            let numbers = [
                (PropertyId::SessionExpiry, accept.session_expiry),
                (PropertyId::ReceiveMaximum, Some(self.limits.receive_max.max(1).into())),
                (PropertyId::MaximumPacketSize, Some(self.limits.packet_bytes_max.max(1))),
                (PropertyId::TopicAliasMaximum, Some(self.limits.aliases_max.into())),
                (PropertyId::ServerKeepAlive, accept.keep_alive.map(u32::from)),
            ];
            for (id, value) in numbers {
                value.into_iter().for_each(|value| properties.push(id, Value::Number(value)));
            }
            if let Some(client_id) = &accept.assigned_client_id {
                properties.push(PropertyId::AssignedClientId, Value::Bytes(client_id.clone()));
            }
            for (name, value) in &accept.user {
                properties.push(PropertyId::UserProperty, Value::Pair(name.clone(), value.clone()));
            }
        }
        let mut ack =
            ConnAck { session_present: accept.session_present, reason: Reason::SUCCESS, properties };
        if !self.fits(8 + ack.properties.encoded_len()) {
            ack.properties.retain(|id| id != PropertyId::UserProperty);
        }
        encode::connack(&ack, self.version, out);
    }

    /// Rejects the client and closes the connection. Has no effect at other times than after
    /// [`ServerEvent::Connect`].
    pub fn reject(&mut self, reason: Reason, text: &str, out: &mut Outbox) {
        if self.state == State::Verdict {
            self.state = State::Closed;
            let properties = self.reason_string(text, 8);
            encode::connack(&ConnAck { session_present: false, reason, properties }, self.version, out);
        }
    }

    /// Returns a reason string as properties, if the version has it, and if the packet, whose other fields have
    /// `others` bytes, is not too large with it.
    fn reason_string(&self, text: &str, others: usize) -> Properties {
        let text = &text[..text.floor_char_boundary(1024)];
        if !self.version.is_v5() || text.is_empty() || text.contains('\0') {
            return Properties::default();
        }
        let properties = Properties::default().with_bytes(PropertyId::ReasonString, text.to_owned());
        if self.fits(others + properties.encoded_len()) { properties } else { Properties::default() }
    }

    fn fits(&self, bytes: usize) -> bool {
        bytes as u64 <= u64::from(self.packet_bytes_max)
    }

    /// Acknowledges a message of the client, or continues the exchange of a message to it: PUBACK, PUBREC, PUBREL or
    /// PUBCOMP. `text` is the reason for people. Has no effect unless the connection is open.
    pub fn acknowledge(
        &mut self,
        kind: AckKind,
        packet_id: NonZeroU16,
        reason: Reason,
        text: &str,
        out: &mut Outbox,
    ) {
        if !self.is_open() {
            return;
        }
        let is_last = match kind {
            AckKind::PubAck | AckKind::PubComp => true,
            AckKind::PubRec => reason.is_error(),
            AckKind::PubRel => false,
        };
        if is_last {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        let mut ack = Ack::new(kind, packet_id, reason);
        if self.with_problems && !text.is_empty() {
            ack.properties = self.reason_string(text, 10);
        }
        encode::ack(&ack, self.version, out);
    }

    /// Responds to SUBSCRIBE with a code for each filter. Has no effect unless the connection is open.
    pub fn suback(&mut self, packet_id: NonZeroU16, reasons: Vec<Reason>, out: &mut Outbox) {
        self.subscription_ack(false, packet_id, reasons, out);
    }

    /// Responds to UNSUBSCRIBE with a code for each filter. Has no effect unless the connection is open.
    pub fn unsuback(&mut self, packet_id: NonZeroU16, reasons: Vec<Reason>, out: &mut Outbox) {
        self.subscription_ack(true, packet_id, reasons, out);
    }

    fn subscription_ack(
        &mut self,
        is_unsubscribe: bool,
        packet_id: NonZeroU16,
        reasons: Vec<Reason>,
        out: &mut Outbox,
    ) {
        if self.is_open() {
            let ack = SubAck { is_unsubscribe, packet_id, properties: Properties::default(), reasons };
            encode::suback(&ack, self.version, out);
        }
    }

    /// Sends a message; `packet_id` is that of the [window](super::Window), for QoS 1 and 2. A client of version 5 gets
    /// an alias for each of the first topics, as far as it accepts them.
    ///
    /// # Errors
    /// Fails, and writes nothing, unless the connection is open, and if the packet is larger than the client accepts.
    pub fn publish(
        &mut self,
        message: &OutgoingPublish<'_>,
        packet_id: Option<NonZeroU16>,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let known = self.given.iter().position(|topic| topic == message.topic);
        let alias = match known {
            Some(at) => Some((at as u16 + 1, true)),
            None if self.given.len() < usize::from(self.given_max.min(self.limits.aliases_max)) => {
                Some((self.given.len() as u16 + 1, false))
            }
            None => None,
        };
        let alias = alias.filter(|_| self.version.is_v5());
        let encoded = EncodedPublish::with_alias(*message, self.version, alias);
        self.publish_encoded(&encoded, packet_id, out)?;
        if let Some((_, false)) = alias {
            self.given.push(Bytes::copy_from_slice(message.topic));
        }
        Ok(())
    }

    /// Sends a message that is encoded for many subscribers.
    ///
    /// # Errors
    /// Fails, and writes nothing, as [`publish`](Self::publish) does.
    pub fn publish_encoded(
        &mut self,
        message: &EncodedPublish<'_>,
        packet_id: Option<NonZeroU16>,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::NotOpen);
        }
        if !self.fits(message.packet_len()) {
            return Err(SendError::TooLarge);
        }
        message.write(packet_id, out);
        Ok(())
    }

    /// Returns true if the client accepts packets of any size: then it can share the bytes of others.
    pub fn accepts_any_size(&self) -> bool {
        self.packet_bytes_max == u32::MAX
    }

    /// Closes the connection with a reason: DISCONNECT in version 5, and only the end of the connection before. The
    /// packet has the name of the reason, too: some libraries read no reason code without properties.
    pub fn close(&mut self, reason: Reason, out: &mut Outbox) {
        let properties = self.reason_string(reason.name(), 4);
        self.close_with(&Disconnect { reason, properties }, out);
    }

    /// Closes the connection with a DISCONNECT, for instance with the reference of another server.
    pub fn close_with(&mut self, disconnect: &Disconnect, out: &mut Outbox) {
        match self.state {
            State::Open if self.version.is_v5() => {
                encode::packet(&Packet::Disconnect(disconnect.clone()), self.version, out);
            }
            State::Verdict => self.reject(disconnect.reason, "", out),
            _ => {}
        }
        self.state = State::Closed;
    }
}

/// Topic names of the aliases of the other side.
#[derive(Debug)]
pub(super) struct Aliases {
    names: Vec<Bytes>,
    max: u16,
}

impl Aliases {
    pub(super) fn new(max: u16) -> Aliases {
        Aliases { names: Vec::new(), max }
    }

    /// Stores the topic of a message under its alias, or sets the topic of its alias.
    ///
    /// # Errors
    /// An alias over the maximum, an unknown one, and an empty topic without one.
    pub(super) fn resolve(&mut self, publish: &mut Publish) -> Result<(), ProtocolError> {
        let Some(alias) = publish.properties.number(PropertyId::TopicAlias) else {
            if publish.topic.is_empty() {
                return Err(ProtocolError::protocol("PUBLISH has neither a topic nor an alias"));
            }
            return Ok(());
        };
        publish.properties.retain(|id| id != PropertyId::TopicAlias);
        let at = (alias as usize).wrapping_sub(1);
        if at >= usize::from(self.max) {
            let text = format!("topic alias {alias}; the limit is {} (aliases_max)", self.max);
            return Err(ProtocolError::new(ErrorKind::TopicAlias, text));
        }
        if publish.topic.is_empty() {
            let Some(name) = self.names.get(at).filter(|name| !name.is_empty()) else {
                return Err(ProtocolError::new(
                    ErrorKind::TopicAlias,
                    format!("topic alias {alias} is unknown"),
                ));
            };
            publish.topic = name.clone();
            return Ok(());
        }
        if self.names.len() <= at {
            self.names.resize(at + 1, Bytes::new());
        }
        // A copy, so that the name does not keep its packet alive.
        self.names[at] = Bytes::copy_from_slice(&publish.topic);
        Ok(())
    }
}
