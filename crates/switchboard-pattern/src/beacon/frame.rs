//! Bytes of a beacon.

/// Content of a beacon: `ZRE`, the version 1, the UUID, and the port in network order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BeaconFrame {
    /// UUID of the node.
    pub id: [u8; 16],
    /// Port at which the node accepts connections; 0 when it ends.
    pub port: u16,
}

const HEADER: [u8; 4] = [b'Z', b'R', b'E', 1];

impl BeaconFrame {
    /// Size of a beacon.
    pub const BYTES: usize = 22;

    /// Returns the bytes.
    pub fn to_bytes(self) -> [u8; BeaconFrame::BYTES] {
        let mut bytes = [0; BeaconFrame::BYTES];
        bytes[..4].copy_from_slice(&HEADER);
        bytes[4..20].copy_from_slice(&self.id);
        bytes[20..].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }

    /// Reads a datagram; `None` if it is no beacon of version 1.
    pub fn from_bytes(bytes: &[u8]) -> Option<BeaconFrame> {
        let (id, port) = bytes.strip_prefix(&HEADER)?.split_first_chunk::<16>()?;
        Some(BeaconFrame { id: *id, port: port.try_into().ok().map(u16::from_be_bytes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beacons_are_read_as_they_are_written() {
        let frame = BeaconFrame { id: [7; 16], port: 258 };
        let bytes = frame.to_bytes();
        assert_eq!((&bytes[..4], &bytes[20..]), (&b"ZRE\x01"[..], &[1, 2][..]));
        assert_eq!(BeaconFrame::from_bytes(&bytes), Some(frame));
    }

    #[test]
    fn other_datagrams_are_no_beacons() {
        let valid = BeaconFrame { id: [7; 16], port: 1 }.to_bytes();
        for length in 0..22 {
            assert_eq!(BeaconFrame::from_bytes(&valid[..length]), None);
        }
        assert_eq!(BeaconFrame::from_bytes(&[&valid[..], b"x"].concat()), None);
        for index in 0..4 {
            let mut other = valid;
            other[index] ^= 1;
            assert_eq!(BeaconFrame::from_bytes(&other), None);
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            if let Some(frame) = BeaconFrame::from_bytes(&bytes) {
                assert_eq!(&frame.to_bytes()[..], &bytes[..]);
            }
        }
    }
}
