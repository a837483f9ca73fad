//! Boxes of NaCl: XSalsa20 and Poly1305, with keys from Curve25519 or from random bytes.
//!
//! A box is a tag and the encrypted bytes. A key for boxes whose nonces begin with the same 16 bytes is derived once.

use super::SecretKey;
use crate::zmtp::PublicKey;
use bytes::{BufMut, BytesMut};
use poly1305::{
    Block, Poly1305,
    universal_hash::{KeyInit, UniversalHash},
};
use salsa20::{
    Salsa20,
    cipher::{KeyIvInit, StreamCipher, consts::U10},
    hsalsa,
};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Size in bytes of the tag in front of each box.
pub(super) const TAG_BYTES: usize = 16;

/// Size in bytes of a nonce, and of its part that is hashed into the key.
pub(super) const NONCE_BYTES: usize = 24;
const PREFIX_BYTES: usize = 16;

/// Bytes of the key stream that are the key of the tag.
const TAG_KEY_BYTES: usize = 32;

/// Key of two sides, or of one.
pub(super) struct SharedKey(Zeroizing<[u8; 32]>);

impl SharedKey {
    /// Computes the key that both sides have; `None` for a public key that has the same point with all secret keys.
    pub(super) fn new(secret: &SecretKey, public: &PublicKey) -> Option<SharedKey> {
        let point = secret.shared_point(public)?;
        Some(SharedKey(hsalsa20(&point, &[0; PREFIX_BYTES])))
    }

    /// Creates a key that one side has alone.
    pub(super) fn own(key: Zeroizing<[u8; 32]>) -> SharedKey {
        SharedKey(key)
    }

    /// Derives the key for nonces that begin with `prefix`.
    pub(super) fn for_prefix(&self, prefix: &[u8; PREFIX_BYTES]) -> BoxKey {
        BoxKey(hsalsa20(&self.0, prefix))
    }

    /// Appends a box of these bytes.
    pub(super) fn seal(&self, nonce: &[u8; NONCE_BYTES], parts: &[&[u8]], into: &mut BytesMut) {
        let start = into.len();
        into.put_bytes(0, TAG_BYTES);
        parts.iter().for_each(|part| into.put_slice(part));
        let (key, counter) = self.for_nonce(nonce);
        if let Some((tag, body)) = into[start..].split_first_chunk_mut::<TAG_BYTES>() {
            *tag = key.seal(counter, body);
        }
    }

    /// Opens a box; `None` if it was not sealed with this key and nonce.
    pub(super) fn open(&self, nonce: &[u8; NONCE_BYTES], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (tag, body) = sealed.split_first_chunk::<TAG_BYTES>()?;
        let mut body = Zeroizing::new(body.to_vec());
        let (key, counter) = self.for_nonce(nonce);
        key.open(counter, tag, &mut body).then_some(body)
    }

    fn for_nonce(&self, nonce: &[u8; NONCE_BYTES]) -> (BoxKey, [u8; 8]) {
        let (mut prefix, mut counter) = ([0; PREFIX_BYTES], [0; 8]);
        prefix.copy_from_slice(&nonce[..PREFIX_BYTES]);
        counter.copy_from_slice(&nonce[PREFIX_BYTES..]);
        (self.for_prefix(&prefix), counter)
    }
}

/// Key for nonces that differ in their last 8 bytes only.
pub(super) struct BoxKey(Zeroizing<[u8; 32]>);

impl BoxKey {
    /// Encrypts `body` in place and returns the tag.
    pub(super) fn seal(&self, counter: [u8; 8], body: &mut [u8]) -> [u8; TAG_BYTES] {
        let (mut cipher, mac) = self.begin(counter);
        cipher.apply_keystream(body);
        tag(mac, body)
    }

    /// Decrypts `body` in place; returns false, and leaves it as it is, if the tag is another one.
    pub(super) fn open(&self, counter: [u8; 8], expected: &[u8; TAG_BYTES], body: &mut [u8]) -> bool {
        let (mut cipher, mac) = self.begin(counter);
        let is_genuine = tag(mac, body).ct_eq(expected).into();
        if is_genuine {
            cipher.apply_keystream(body);
        }
        is_genuine
    }

    /// Returns the key stream for a body, and its authenticator, whose key is the start of the stream.
    fn begin(&self, counter: [u8; 8]) -> (Salsa20, Poly1305) {
        let mut cipher = Salsa20::new((&*self.0).into(), &counter.into());
        let mut key = Zeroizing::new([0; TAG_KEY_BYTES]);
        cipher.apply_keystream(&mut key[..]);
        (cipher, Poly1305::new((&*key).into()))
    }
}

/// Computes the tag of encrypted bytes.
fn tag(mut mac: Poly1305, body: &[u8]) -> [u8; TAG_BYTES] {
    let (blocks, rest) = Block::slice_as_chunks(body);
    mac.update(blocks);
    mac.compute_unpadded(rest).into()
}

/// Derives a key from a key and the first part of a nonce.
fn hsalsa20(key: &[u8; 32], prefix: &[u8; PREFIX_BYTES]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(hsalsa::<U10>(key.into(), prefix.into()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> [SecretKey; 2] {
        [1, 101].map(|first| {
            let mut bytes = [0; 32];
            bytes.iter_mut().zip(first..).for_each(|(byte, value)| *byte = value);
            SecretKey::new(bytes)
        })
    }

    /// Tags and last bytes of boxes that libsodium 1.0.18 sealed. Their sizes are on both sides of each boundary.
    #[test]
    fn boxes_of_libsodium() {
        let [one, other] = pair();
        let key = SharedKey::new(&one, &other.public_key()).unwrap();
        let nonce = b"CurveZMQMESSAGEC\0\0\0\0\0\0\0\x07";
        for (len, tag, last) in [
            (0, 0x5c33_e117_beee_0762_cb39_ce87_0b1e_0391_u128, &[][..]),
            (1, 0x5b6e_6802_a516_8e77_1a4c_4f02_8e93_bc6c, &[0x28]),
            (31, 0x3c7b_4c40_61c0_2408_2dd7_0d1f_1ebe_5e41, &[0xb0, 0x9f, 0xd4, 0x7e]),
            (32, 0x0dbc_0b63_1c94_6c80_9847_e4ab_d5af_21dd, &[0x98, 0xd5, 0x7d, 0xfa]),
            (33, 0xa26b_271a_d7d4_208c_7f4d_0782_2a8f_7d31, &[0xd2, 0x7c, 0xf9, 0xf1]),
            (223, 0xa5a4_b078_2efe_2fb7_6a58_4a9b_3665_4db2, &[0x4a, 0x51, 0xe3, 0xd9]),
            (224, 0x476f_56bd_c877_420f_8c07_37b2_254a_231b, &[0x56, 0xe2, 0xda, 0x51]),
            (225, 0x10cb_595f_46a9_0db9_5a38_a910_d836_0aec, &[0xe5, 0xdb, 0x52, 0x1c]),
            (479, 0x0ef6_8ab9_73f9_400d_c7fa_70bb_4662_e5fb, &[0x6d, 0x12, 0x5e, 0xc9]),
            (480, 0xc895_5e86_9270_9fb2_c846_9965_9f17_fb5e, &[0x15, 0x5f, 0xca, 0xe0]),
            (481, 0x05a5_23c8_ca3d_6dde_c814_742f_8807_4b02, &[0x58, 0xcb, 0xe3, 0xcd]),
            (1025, 0x2cd1_e8d6_5050_2f83_6769_d889_1ffe_7c8f, &[0x89, 0xb4, 0x2d, 0x32]),
            (5000, 0x9bbe_161d_dc92_3587_042c_a769_b6b8_0cb2, &[0x0b, 0x64, 0x85, 0x11]),
        ] {
            let body: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
            let mut sealed = BytesMut::from(&b"before"[..]);
            key.seal(nonce, &[&body[..len / 2], &body[len / 2..]], &mut sealed);
            let sealed = sealed.split_off(6);
            assert_eq!(sealed[..TAG_BYTES], tag.to_be_bytes(), "tag of {len} bytes");
            assert!(sealed.ends_with(last), "{len} bytes");
            let back = SharedKey::new(&other, &one.public_key()).unwrap();
            assert_eq!(back.open(nonce, &sealed).as_deref(), Some(&body), "{len} bytes");
        }
    }

    #[test]
    fn keys_of_libsodium() {
        let [one, other] = pair().map(|key| key.public_key().to_bytes());
        assert_eq!(one[..4], [0x07, 0xa3, 0x7c, 0xbc]);
        assert_eq!(other[..4], [0x57, 0x14, 0x76, 0x9d]);
        let key = SharedKey::new(&pair()[0], &PublicKey::new(other)).unwrap();
        assert_eq!(key.0[..4], [0x72, 0xda, 0x8b, 0xbb]);
    }

    #[test]
    fn changed_boxes_do_not_open() {
        let [one, other] = pair();
        let key = SharedKey::new(&one, &other.public_key()).unwrap();
        let nonce = [5; NONCE_BYTES];
        let mut sealed = BytesMut::new();
        key.seal(&nonce, &[&[7; 300]], &mut sealed);
        for at in 0..sealed.len() {
            sealed[at] ^= 1;
            assert!(key.open(&nonce, &sealed).is_none(), "byte {at}");
            sealed[at] ^= 1;
        }
        for at in 0..NONCE_BYTES {
            let mut nonce = nonce;
            nonce[at] ^= 0x80;
            assert!(key.open(&nonce, &sealed).is_none(), "byte {at} of the nonce");
        }
        assert!(key.open(&nonce, &sealed[..TAG_BYTES - 1]).is_none());
        assert!(key.open(&nonce, &sealed[..sealed.len() - 1]).is_none());
        assert!(key.open(&nonce, &sealed).is_some());
    }

    /// Public keys of small order, from the list of libsodium: a sender of one knows the shared key.
    #[test]
    fn weak_public_keys_have_no_shared_key() {
        let [secret, _] = pair();
        let mut one = [0; 32];
        one[0] = 1;
        let mut below = [0xFF; 32];
        (below[0], below[31]) = (0xEC, 0x7F);
        let mut prime = below;
        prime[0] = 0xED;
        for weak in [[0; 32], one, below, prime] {
            assert!(SharedKey::new(&secret, &PublicKey::new(weak)).is_none(), "{weak:?}");
        }
    }
}
