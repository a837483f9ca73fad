//! Settings of one side of a connection.

#[cfg(feature = "curve")]
use super::{CurveClient, CurveServer};
use super::{Limits, Properties, SocketType, Version};
use bytes::Bytes;
use std::fmt;

/// Largest identity in bytes.
pub const IDENTITY_BYTES_MAX: usize = 255;

/// Settings of one side of a connection.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) socket: SocketType,
    /// The socket types among which the one of the peer decides.
    pub(super) choices: Vec<SocketType>,
    /// The types of peers that are accepted, each with the socket type of this side; empty for all that a local socket
    /// talks to.
    pub(super) mapping: Vec<(SocketType, SocketType)>,
    pub(super) mechanism: Mechanism,
    pub(super) identity: Bytes,
    pub(super) version: Version,
    pub(super) properties: Properties,
    pub(super) limits: Limits,
}

/// Security mechanism, which must be equal on both sides.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Mechanism {
    /// Encrypts, and proves the possession of a secret key to a server whose public key is known.
    #[cfg(feature = "curve")]
    CurveClient(CurveClient),
    /// Encrypts, and verifies the public key of a client, see [`Event::ClientKey`](super::Event::ClientKey).
    #[cfg(feature = "curve")]
    CurveServer(CurveServer),
    /// No authentication.
    Null,
    /// Sends a username and a password in plaintext.
    PlainClient(Credentials),
    /// Verifies a username and a password, see [`Event::Credentials`](super::Event::Credentials).
    PlainServer,
}

/// Username and password of PLAIN.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    username: Bytes,
    password: Bytes,
}

impl Settings {
    /// Creates settings of a socket of this type: version 3.1, NULL, no identity, no further properties, the default
    /// limits.
    pub fn new(socket: SocketType) -> Settings {
        Settings {
            socket,
            choices: Vec::new(),
            mapping: Vec::new(),
            mechanism: Mechanism::Null,
            identity: Bytes::new(),
            version: Version::V3_1,
            properties: Properties::default(),
            limits: Limits::default(),
        }
    }

    /// Creates settings of an accepting side that has several sockets behind one address: the socket type of the peer
    /// decides which of them it talks to. Metadata of this side follows that of the peer, so a connecting side cannot
    /// use these settings, and neither can both sides of a connection.
    ///
    /// ```
    /// use switchboard_wire::zmtp::{Settings, SocketType};
    ///
    /// assert!(Settings::by_peer(&[SocketType::Xpub, SocketType::Xsub, SocketType::Push]).is_ok());
    /// assert!(Settings::by_peer(&[SocketType::Pub, SocketType::Xpub]).is_err());
    /// ```
    ///
    /// # Errors
    /// Fails without a socket, and if two of the sockets talk to the same type.
    pub fn by_peer(sockets: &[SocketType]) -> Result<Settings, String> {
        let Some(first) = sockets.first() else { return Err("no socket type for any peer".to_owned()) };
        for (at, one) in sockets.iter().enumerate() {
            for other in &sockets[at + 1..] {
                if let Some(peer) = one.peers().iter().find(|peer| other.talks_to(**peer)) {
                    return Err(format!("a {peer} can talk to {one} and to {other}: choose one of them"));
                }
            }
        }
        Ok(Settings { choices: sockets.to_vec(), ..Settings::new(*first) })
    }

    /// Creates settings of an accepting side like [`by_peer`](Self::by_peer), from pairs of the type of a peer and of
    /// the socket that it talks to. Peers of other types are refused.
    ///
    /// ```
    /// use switchboard_wire::zmtp::{Settings, SocketType};
    ///
    /// let pairs = [(SocketType::Req, SocketType::Router), (SocketType::Rep, SocketType::Dealer)];
    /// assert!(Settings::by_mapping(&pairs).is_ok());
    /// assert!(Settings::by_mapping(&[(SocketType::Req, SocketType::Pub)]).is_err());
    /// ```
    ///
    /// # Errors
    /// Fails without a pair, on two pairs of one type of peers, and on types that do not talk.
    pub fn by_mapping(pairs: &[(SocketType, SocketType)]) -> Result<Settings, String> {
        let Some((_, first)) = pairs.first() else { return Err("no socket type for any peer".to_owned()) };
        for (at, (peer, socket)) in pairs.iter().enumerate() {
            if !socket.talks_to(*peer) {
                return Err(format!("a {peer} does not talk to {socket}"));
            }
            if let Some((_, other)) = pairs[..at].iter().find(|(known, _)| known == peer) {
                return Err(format!("a {peer} is mapped to {other} and to {socket}: choose one of them"));
            }
        }
        let choices = pairs.iter().map(|(_, socket)| *socket).collect();
        Ok(Settings { choices, mapping: pairs.to_vec(), ..Settings::new(*first) })
    }

    /// Returns the socket type for a peer of this type, if there is one.
    pub(super) fn socket_for(&self, peer: SocketType) -> Option<SocketType> {
        if !self.mapping.is_empty() {
            return self.mapping.iter().find(|(known, _)| *known == peer).map(|(_, socket)| *socket);
        }
        if self.choices.is_empty() {
            return Some(self.socket).filter(|socket| socket.talks_to(peer));
        }
        self.choices.iter().copied().find(|socket| socket.talks_to(peer))
    }

    /// Sets the identity by which a peer's ROUTER addresses this side. DEALER, REQ and ROUTER send it.
    ///
    /// # Errors
    /// Fails on more than [`IDENTITY_BYTES_MAX`] bytes, and on a first byte of zero: such identities are generated.
    pub fn with_identity(mut self, identity: impl Into<Bytes>) -> Result<Settings, String> {
        self.identity = identity.into();
        check_identity(&self.identity).map(|()| self)
    }

    /// Sets the limits on the input.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Settings {
        self.limits = limits;
        self
    }

    /// Sets the mechanism.
    #[must_use]
    pub fn with_mechanism(mut self, mechanism: Mechanism) -> Settings {
        self.mechanism = mechanism;
        self
    }

    /// Sets further properties for the peer. The names of an application begin with `X-`.
    #[must_use]
    pub fn with_properties(mut self, properties: Properties) -> Settings {
        self.properties = properties;
        self
    }

    /// Sets the version. With 3.0 the peer sees a side without heartbeats, and subscriptions are messages.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Settings {
        self.version = version;
        self
    }

    /// Returns the socket type; the first one if the peer decides.
    pub fn socket(&self) -> SocketType {
        self.socket
    }
}

/// Checks an identity of either side.
pub(super) fn check_identity(identity: &[u8]) -> Result<(), String> {
    if identity.len() > IDENTITY_BYTES_MAX {
        return Err(format!("identity has {} bytes; the limit is {IDENTITY_BYTES_MAX}", identity.len()));
    }
    if identity.first() == Some(&0) {
        return Err("identity begins with a zero byte, which marks generated identities".to_owned());
    }
    Ok(())
}

impl Mechanism {
    /// Returns the name in the greeting.
    pub fn name(&self) -> &'static str {
        match self {
            #[cfg(feature = "curve")]
            Mechanism::CurveClient(_) | Mechanism::CurveServer(_) => super::curve::NAME,
            Mechanism::Null => "NULL",
            Mechanism::PlainClient(_) | Mechanism::PlainServer => "PLAIN",
        }
    }

    pub(super) fn is_client(&self) -> bool {
        match self {
            #[cfg(feature = "curve")]
            Mechanism::CurveClient(_) => true,
            Mechanism::PlainClient(_) => true,
            _ => false,
        }
    }

    pub(super) fn is_server(&self) -> bool {
        match self {
            #[cfg(feature = "curve")]
            Mechanism::CurveServer(_) => true,
            Mechanism::PlainServer => true,
            _ => false,
        }
    }
}

impl Credentials {
    /// Creates credentials.
    ///
    /// # Errors
    /// Fails if one of the two has more than 255 bytes.
    pub fn new(username: impl Into<Bytes>, password: impl Into<Bytes>) -> Result<Credentials, String> {
        let (username, password) = (username.into(), password.into());
        for (what, text) in [("username", &username), ("password", &password)] {
            if text.len() > usize::from(u8::MAX) {
                return Err(format!("{what} of PLAIN has {} bytes; the limit is 255", text.len()));
            }
        }
        Ok(Credentials { username, password })
    }

    /// Returns the username, which may be any bytes.
    pub fn username(&self) -> &[u8] {
        &self.username
    }

    /// Returns the password. Compare it in constant time.
    pub fn password(&self) -> &[u8] {
        &self.password
    }
}

/// Writes the username only.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ username: \"{}\", .. }}", self.username.escape_ascii())
    }
}
