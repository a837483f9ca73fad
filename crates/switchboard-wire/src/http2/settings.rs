//! Settings (RFC 9113, section 6.5.2).

use super::frame::{ConnectionError, ErrorCode, FrameHead, WINDOW_MAX, kind};
use bytes::BytesMut;

/// Smallest and largest `SETTINGS_MAX_FRAME_SIZE`, in bytes.
const FRAME_BYTES: std::ops::RangeInclusive<u32> = 1 << 14..=(1 << 24) - 1;

mod id {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(super) const MAX_FRAME_SIZE: u16 = 5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// RFC 9218, section 2.1.
    pub(super) const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// Settings of one side, which the other must obey once it has received them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Size of the table for header fields, in bytes.
    pub header_table_bytes: u32,
    /// The server may push. A server never receives true from itself, and this product's sides refuse pushes.
    pub allows_push: bool,
    /// Number of streams that the other side may have open; `u32::MAX` for any number.
    pub streams_max: u32,
    /// Bytes of DATA that the other side may send on a new stream.
    pub window_bytes: u32,
    /// Largest payload of a frame, in bytes.
    pub frame_bytes_max: u32,
    /// Largest header list, in bytes with 32 more for each field; `u32::MAX` for any size. It is advice.
    pub header_list_bytes_max: u32,
    /// The priorities of RFC 7540 are ignored.
    pub ignores_priorities: bool,
}

impl Default for Settings {
    /// Returns the settings that apply before any are received.
    fn default() -> Settings {
        Settings {
            header_table_bytes: 4096,
            allows_push: true,
            streams_max: u32::MAX,
            window_bytes: 65_535,
            frame_bytes_max: 1 << 14,
            header_list_bytes_max: u32::MAX,
            ignores_priorities: false,
        }
    }
}

impl Settings {
    /// Applies the payload of a SETTINGS frame, whose length is a multiple of 6. Unknown settings are ignored.
    ///
    /// # Errors
    /// Returns an error for a value out of the range of its setting; settings before it are applied.
    pub fn apply(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let error = |reason| Err(ConnectionError::new(ErrorCode::PROTOCOL_ERROR, reason));
        for entry in payload.chunks_exact(6) {
            let number = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match number {
                id::HEADER_TABLE_SIZE => self.header_table_bytes = value,
                id::ENABLE_PUSH if value > 1 => return error("SETTINGS_ENABLE_PUSH is neither 0 nor 1"),
                id::ENABLE_PUSH => self.allows_push = value == 1,
                id::MAX_CONCURRENT_STREAMS => self.streams_max = value,
                id::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => {
                    let reason = "SETTINGS_INITIAL_WINDOW_SIZE is over 2^31 - 1";
                    return Err(ConnectionError::new(ErrorCode::FLOW_CONTROL_ERROR, reason));
                }
                id::INITIAL_WINDOW_SIZE => self.window_bytes = value,
                id::MAX_FRAME_SIZE if !FRAME_BYTES.contains(&value) => {
                    return error("SETTINGS_MAX_FRAME_SIZE is not from 2^14 to 2^24 - 1");
                }
                id::MAX_FRAME_SIZE => self.frame_bytes_max = value,
                id::MAX_HEADER_LIST_SIZE => self.header_list_bytes_max = value,
                id::NO_RFC7540_PRIORITIES if value > 1 => {
                    return error("SETTINGS_NO_RFC7540_PRIORITIES is neither 0 nor 1");
                }
                id::NO_RFC7540_PRIORITIES => self.ignores_priorities = value == 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends a SETTINGS frame with what differs from the initial settings.
    pub fn put(&self, into: &mut BytesMut) {
        let initial = Settings::default();
        let entries = [
            (id::HEADER_TABLE_SIZE, self.header_table_bytes, initial.header_table_bytes),
            (id::ENABLE_PUSH, u32::from(self.allows_push), u32::from(initial.allows_push)),
            (id::MAX_CONCURRENT_STREAMS, self.streams_max, initial.streams_max),
            (id::INITIAL_WINDOW_SIZE, self.window_bytes, initial.window_bytes),
            (id::MAX_FRAME_SIZE, self.frame_bytes_max, initial.frame_bytes_max),
            (id::MAX_HEADER_LIST_SIZE, self.header_list_bytes_max, initial.header_list_bytes_max),
            (id::NO_RFC7540_PRIORITIES, u32::from(self.ignores_priorities), 0),
        ];
        let changed = || entries.iter().filter(|(_, value, initial)| value != initial);
        let len = 6 * changed().count() as u32;
        into.extend_from_slice(&FrameHead { len, kind: kind::SETTINGS, flags: 0, stream: 0 }.to_bytes());
        for (number, value, _) in changed() {
            into.extend_from_slice(&number.to_be_bytes());
            into.extend_from_slice(&value.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::frame::HEAD_BYTES, *};

    #[test]
    fn written_settings_are_applied() {
        let settings = Settings {
            header_table_bytes: 0,
            allows_push: false,
            streams_max: 1000,
            window_bytes: 1 << 20,
            frame_bytes_max: 1 << 20,
            header_list_bytes_max: 16 << 10,
            ignores_priorities: true,
        };
        for settings in [settings, Settings::default()] {
            let mut into = BytesMut::new();
            settings.put(&mut into);
            let head = FrameHead::parse(&into).unwrap();
            assert_eq!((head.kind, head.len as usize), (kind::SETTINGS, into.len() - HEAD_BYTES));
            let mut applied = Settings::default();
            applied.apply(&into[HEAD_BYTES..]).unwrap();
            assert_eq!(applied, settings);
        }
    }

    #[test]
    fn values_out_of_range_have_the_code_of_the_rfc() {
        let entry = |number: u16, value: u32| [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
        for (number, value, code) in [
            (2, 2, ErrorCode::PROTOCOL_ERROR),
            (4, 1 << 31, ErrorCode::FLOW_CONTROL_ERROR),
            (5, (1 << 14) - 1, ErrorCode::PROTOCOL_ERROR),
            (5, 1 << 24, ErrorCode::PROTOCOL_ERROR),
            (9, 2, ErrorCode::PROTOCOL_ERROR),
        ] {
            let error = Settings::default().apply(&entry(number, value)).unwrap_err();
            assert_eq!(error.code, code, "{number} {value}");
        }
        let mut settings = Settings::default();
        settings.apply(&[entry(0xabcd, 1), entry(5, (1 << 24) - 1), entry(4, WINDOW_MAX)].concat()).unwrap();
        assert_eq!((settings.frame_bytes_max, settings.window_bytes), ((1 << 24) - 1, WINDOW_MAX));
    }
}
