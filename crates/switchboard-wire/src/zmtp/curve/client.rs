//! Handshake of a client.

use super::{
    CurveClient, SecretKey,
    boxes::{NONCE_BYTES, SharedKey, TAG_BYTES},
    misshapen, refused,
    server::COOKIE_BYTES,
    session::{Role, Session},
};
use crate::{
    Outbox,
    zmtp::{
        KEY_BYTES, Peer, ProtocolError, PublicKey, Settings, SocketType, Version,
        command::{self, Name},
        handshake,
    },
};
use bytes::BytesMut;

/// Version of CURVE in HELLO.
pub(super) const VERSION: [u8; 2] = [1, 0];

/// Zeros in HELLO: no response of a server is longer than its cause.
pub(super) const PADDING_BYTES: usize = 72;

/// Zeros in the box of HELLO.
pub(super) const SIGNATURE_BYTES: usize = 64;

/// Size of a counter in a command.
pub(super) const COUNTER_BYTES: usize = 8;

/// Size of the random part of the nonces of WELCOME, the cookie and the vouch.
pub(super) const LONG_NONCE_BYTES: usize = 16;

/// Data of WELCOME: a nonce, and a box of a key and a cookie.
const WELCOME_BYTES: usize = LONG_NONCE_BYTES + TAG_BYTES + KEY_BYTES + COOKIE_BYTES;

/// Least data of READY: a counter, and an empty box.
const READY_BYTES_MIN: usize = COUNTER_BYTES + TAG_BYTES;

/// Counters of HELLO and INITIATE.
const HELLO: u64 = 1;
const INITIATE: u64 = 2;

/// A client that has sent HELLO.
pub(in crate::zmtp) struct AwaitsWelcome {
    /// Keys of this connection.
    secret: SecretKey,
    public: PublicKey,
    /// Key with the permanent key of the server.
    shared: SharedKey,
}

/// A client that has sent INITIATE.
pub(in crate::zmtp) struct AwaitsReady {
    shared: SharedKey,
}

impl AwaitsWelcome {
    /// Appends HELLO.
    pub(super) fn hello(keys: &CurveClient, out: &mut Outbox) -> Result<AwaitsWelcome, ProtocolError> {
        let secret = keys.random.secret_key()?;
        let public = secret.public_key();
        let shared = SharedKey::new(&secret, &keys.server)
            .ok_or_else(|| refused("HELLO", "is not sent: the public key of the server is weak"))?;
        let mut signature = BytesMut::new();
        shared.seal(&short_nonce(b"CurveZMQHELLO---", HELLO), &[&[0; SIGNATURE_BYTES]], &mut signature);
        let padding = [0; PADDING_BYTES];
        let data: [&[u8]; 5] = [&VERSION, &padding, public.as_bytes(), &HELLO.to_be_bytes(), &signature];
        command::write(Name::Hello, &data, out);
        Ok(AwaitsWelcome { secret, public, shared })
    }

    /// Opens WELCOME and appends INITIATE.
    pub(super) fn initiate(
        self,
        keys: &CurveClient,
        data: &[u8],
        settings: &Settings,
        out: &mut Outbox,
    ) -> Result<AwaitsReady, ProtocolError> {
        if data.len() != WELCOME_BYTES {
            return Err(misshapen("WELCOME", data.len(), &WELCOME_BYTES.to_string()));
        }
        let (nonce, sealed) = data.split_at(LONG_NONCE_BYTES);
        let opened = self.shared.open(&long_nonce(b"WELCOME-", nonce), sealed);
        let opened = opened.ok_or_else(|| refused("WELCOME", "has a box that does not open"))?;
        let weak = || refused("WELCOME", "has a weak key");
        let (server, cookie) = opened.split_first_chunk::<KEY_BYTES>().ok_or_else(weak)?;
        let server = PublicKey::new(*server);
        let shared = SharedKey::new(&self.secret, &server).ok_or_else(weak)?;

        let nonce = keys.random.bytes::<LONG_NONCE_BYTES>()?;
        let mut vouch = BytesMut::new();
        let permanent = SharedKey::new(&keys.secret, &server).ok_or_else(weak)?;
        let vouched: [&[u8]; 2] = [self.public.as_bytes(), keys.server.as_bytes()];
        permanent.seal(&long_nonce(b"VOUCH---", &nonce[..]), &vouched, &mut vouch);

        let metadata = handshake::metadata(settings, settings.socket());
        let mut sealed = BytesMut::new();
        let parts: [&[u8]; 4] = [keys.public.as_bytes(), &nonce[..], &vouch, &metadata];
        shared.seal(&short_nonce(b"CurveZMQINITIATE", INITIATE), &parts, &mut sealed);
        command::write(Name::Initiate, &[cookie, &INITIATE.to_be_bytes(), &sealed], out);
        Ok(AwaitsReady { shared })
    }
}

impl AwaitsReady {
    /// Opens READY, which completes the handshake.
    pub(super) fn open(
        self,
        data: &[u8],
        version: Version,
        settings: &Settings,
    ) -> Result<(Session, Box<Peer>, SocketType), ProtocolError> {
        let split = data.split_first_chunk::<COUNTER_BYTES>();
        let Some((counter, sealed)) = split.filter(|_| data.len() >= READY_BYTES_MIN) else {
            return Err(misshapen("READY", data.len(), &format!("{READY_BYTES_MIN} or more")));
        };
        let counter = u64::from_be_bytes(*counter);
        if counter == 0 {
            return Err(refused("READY", "has the nonce 0; the first is 1"));
        }
        let opened = self.shared.open(&short_nonce(b"CurveZMQREADY---", counter), sealed);
        let metadata = opened.ok_or_else(|| refused("READY", "has a box that does not open"))?;
        let (peer, socket) = handshake::read_peer(&metadata, "READY", version, settings)?;
        Ok((Session::new(&self.shared, Role::Client, INITIATE, counter), peer, socket))
    }
}

/// Returns a nonce with a counter.
pub(super) fn short_nonce(prefix: &[u8; 16], counter: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..16].copy_from_slice(prefix);
    nonce[16..].copy_from_slice(&counter.to_be_bytes());
    nonce
}

/// Returns a nonce with 16 random bytes.
///
/// # Panics
/// On another number of bytes.
pub(super) fn long_nonce(prefix: &[u8; 8], random: &[u8]) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(prefix);
    nonce[8..].copy_from_slice(random);
    nonce
}
