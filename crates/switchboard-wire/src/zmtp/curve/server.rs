//! Handshake of a server.

use super::{
    CurveServer, SecretKey,
    boxes::{SharedKey, TAG_BYTES},
    client::{
        COUNTER_BYTES, LONG_NONCE_BYTES, PADDING_BYTES, SIGNATURE_BYTES, VERSION, long_nonce, short_nonce,
    },
    misshapen, refused,
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
use zeroize::Zeroizing;

/// Size of a cookie in bytes: a nonce, and a box of a public and a secret key.
pub(super) const COOKIE_BYTES: usize = LONG_NONCE_BYTES + TAG_BYTES + 2 * KEY_BYTES;

/// Data of HELLO: version, padding, a key, a counter, a box.
const HELLO_BYTES: usize =
    VERSION.len() + PADDING_BYTES + KEY_BYTES + COUNTER_BYTES + TAG_BYTES + SIGNATURE_BYTES;

/// A vouch: a nonce, and a box of two keys.
const VOUCH_BYTES: usize = LONG_NONCE_BYTES + TAG_BYTES + 2 * KEY_BYTES;

/// Least data of INITIATE: a cookie, a counter, and a box of a key and a vouch.
const INITIATE_BYTES_MIN: usize = COOKIE_BYTES + COUNTER_BYTES + TAG_BYTES + KEY_BYTES + VOUCH_BYTES;

/// Counter of READY.
const READY: u64 = 1;

/// A server that has sent WELCOME. Its keys of the connection are in the cookie alone.
pub(in crate::zmtp) struct AwaitsInitiate {
    /// Opens the cookie of this connection and no other one.
    cookie: SharedKey,
    /// Counter of HELLO.
    last: u64,
}

/// A server that knows the key of its client.
pub(in crate::zmtp) struct AwaitsVerdict {
    shared: SharedKey,
    /// Counter of INITIATE.
    last: u64,
    peer: Box<Peer>,
    socket: SocketType,
}

impl AwaitsInitiate {
    /// Opens HELLO and appends WELCOME.
    pub(super) fn welcome(
        keys: &CurveServer,
        data: &[u8],
        out: &mut Outbox,
    ) -> Result<AwaitsInitiate, ProtocolError> {
        let hello =
            Hello::read(data).ok_or_else(|| misshapen("HELLO", data.len(), &HELLO_BYTES.to_string()))?;
        if hello.version != VERSION {
            let [major, minor] = hello.version;
            return Err(refused("HELLO", &format!("has the version {major}.{minor}; this side has 1.0")));
        }
        if hello.padding.iter().any(|byte| *byte != 0) {
            return Err(refused("HELLO", "has padding that is not zero"));
        }
        if hello.counter == 0 {
            return Err(refused("HELLO", "has the nonce 0; the first is 1"));
        }
        let weak = || refused("HELLO", "has a weak key");
        let shared = SharedKey::new(&keys.secret, &hello.client).ok_or_else(weak)?;
        let opened = shared.open(&short_nonce(b"CurveZMQHELLO---", hello.counter), hello.sealed);
        if opened.is_none_or(|zeros| zeros.iter().any(|byte| *byte != 0)) {
            return Err(refused("HELLO", "has a box that does not open with the key of this server"));
        }
        let secret = keys.random.secret_key()?;
        let cookie = SharedKey::own(keys.random.bytes()?);
        let nonces = keys.random.bytes::<{ 2 * LONG_NONCE_BYTES }>()?;
        let (cookie_nonce, welcome_nonce) = nonces.split_at(LONG_NONCE_BYTES);

        let mut sealed = BytesMut::from(cookie_nonce);
        let kept: [&[u8]; 2] = [hello.client.as_bytes(), secret.as_bytes()];
        cookie.seal(&long_nonce(b"COOKIE--", cookie_nonce), &kept, &mut sealed);
        let mut welcome = BytesMut::from(welcome_nonce);
        let public = secret.public_key();
        let parts: [&[u8]; 2] = [public.as_bytes(), &sealed];
        shared.seal(&long_nonce(b"WELCOME-", welcome_nonce), &parts, &mut welcome);
        command::write(Name::Welcome, &[&welcome], out);
        Ok(AwaitsInitiate { cookie, last: hello.counter })
    }

    /// Opens INITIATE and checks the vouch. Returns the permanent key of the client.
    pub(super) fn open(
        self,
        keys: &CurveServer,
        data: &[u8],
        version: Version,
        settings: &Settings,
    ) -> Result<(PublicKey, AwaitsVerdict), ProtocolError> {
        let split = data.split_first_chunk::<COOKIE_BYTES>().filter(|_| data.len() >= INITIATE_BYTES_MIN);
        let Some((cookie, rest)) = split else {
            return Err(misshapen("INITIATE", data.len(), &format!("{INITIATE_BYTES_MIN} or more")));
        };
        let (nonce, sealed) = cookie.split_at(LONG_NONCE_BYTES);
        let opened = self.cookie.open(&long_nonce(b"COOKIE--", nonce), sealed);
        let (client, secret) = opened
            .as_ref()
            .and_then(|kept| two_keys(kept))
            .ok_or_else(|| refused("INITIATE", "has a cookie that is not of this connection"))?;
        let (client, secret) = (PublicKey::new(client), SecretKey::new(*secret));

        let broken = || refused("INITIATE", "has a box that does not open");
        let (counter, sealed) = rest.split_first_chunk::<COUNTER_BYTES>().ok_or_else(broken)?;
        let counter = u64::from_be_bytes(*counter);
        if counter <= self.last {
            let last = self.last;
            return Err(refused("INITIATE", &format!("has the nonce {counter} after {last}")));
        }
        let shared = SharedKey::new(&secret, &client).ok_or_else(broken)?;
        let opened = shared.open(&short_nonce(b"CurveZMQINITIATE", counter), sealed).ok_or_else(broken)?;
        let (permanent, rest) = opened.split_first_chunk::<KEY_BYTES>().ok_or_else(broken)?;
        let (vouch, metadata) = rest.split_first_chunk::<VOUCH_BYTES>().ok_or_else(broken)?;
        let permanent = PublicKey::new(*permanent);

        let (nonce, sealed) = vouch.split_at(LONG_NONCE_BYTES);
        let vouched = SharedKey::new(&secret, &permanent)
            .and_then(|shared| shared.open(&long_nonce(b"VOUCH---", nonce), sealed));
        let vouched = vouched.as_ref().and_then(|keys| two_keys(keys));
        let expected = (client.to_bytes(), Zeroizing::new(keys.public.to_bytes()));
        if vouched != Some(expected) {
            return Err(refused("INITIATE", "has a vouch that is not of its key for this connection"));
        }
        let (peer, socket) = handshake::read_peer(metadata, "INITIATE", version, settings)?;
        Ok((permanent, AwaitsVerdict { shared, last: counter, peer, socket }))
    }
}

impl AwaitsVerdict {
    /// Appends READY.
    pub(super) fn ready(self, settings: &Settings, out: &mut Outbox) -> (Session, Box<Peer>, SocketType) {
        let mut sealed = BytesMut::new();
        let metadata = handshake::metadata(settings, self.socket);
        self.shared.seal(&short_nonce(b"CurveZMQREADY---", READY), &[&metadata], &mut sealed);
        command::write(Name::Ready, &[&READY.to_be_bytes(), &sealed], out);
        (Session::new(&self.shared, Role::Server, READY, self.last), self.peer, self.socket)
    }
}

/// The parts of HELLO.
struct Hello<'a> {
    version: [u8; 2],
    padding: &'a [u8],
    client: PublicKey,
    counter: u64,
    sealed: &'a [u8],
}

impl Hello<'_> {
    fn read(data: &[u8]) -> Option<Hello<'_>> {
        let data = Some(data).filter(|data| data.len() == HELLO_BYTES)?;
        let (version, rest) = data.split_first_chunk()?;
        let (padding, rest) = rest.split_at_checked(PADDING_BYTES)?;
        let (client, rest) = rest.split_first_chunk()?;
        let (counter, sealed) = rest.split_first_chunk()?;
        let (client, counter) = (PublicKey::new(*client), u64::from_be_bytes(*counter));
        Some(Hello { version: *version, padding, client, counter, sealed })
    }
}

/// Splits the content of a cookie or a vouch.
fn two_keys(bytes: &[u8]) -> Option<([u8; KEY_BYTES], Zeroizing<[u8; KEY_BYTES]>)> {
    let (one, rest) = bytes.split_first_chunk()?;
    let other = rest.first_chunk()?;
    Some((*one, Zeroizing::new(*other)))
}
