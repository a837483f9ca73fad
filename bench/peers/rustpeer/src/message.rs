//! The values of the message of 581 bytes, for whatever type a rival has for it.

/// The text of rpcx-benchmark: 18 characters of 3 bytes.
pub const TEXT: &str = "许多往事在眼前一幕一幕，变的那麼模糊";
/// Every number of the message.
pub const NUMBER: i32 = 100_000;
/// A field that the server leaves as it is: clients verify it.
pub const FIELD3: i32 = NUMBER;

/// A message of the type `$message` with every field set, as `switchboard bench` fills it in.
#[macro_export]
macro_rules! benchmark_message {
    ($message:ident) => {{
        let text = || Some($crate::TEXT.into());
        let number = Some($crate::NUMBER);
        let yes = Some(true);
        // Some libraries keep fields of their own in a message.
        #[allow(clippy::needless_update)]
        $message {
            field1: $crate::TEXT.into(),
            field9: text(),
            field18: text(),
            field80: yes,
            field81: yes,
            field2: $crate::NUMBER,
            field3: $crate::FIELD3,
            field280: number,
            field6: number,
            field22: Some($crate::NUMBER.into()),
            field4: text(),
            field5: vec![$crate::NUMBER as u64],
            field59: yes,
            field7: text(),
            field16: number,
            field130: number,
            field12: yes,
            field17: yes,
            field13: yes,
            field14: yes,
            field104: number,
            field100: number,
            field101: number,
            field102: text(),
            field103: text(),
            field29: number,
            field30: yes,
            field60: number,
            field271: number,
            field272: number,
            field150: number,
            field23: number,
            field24: yes,
            field25: number,
            field78: yes,
            field67: number,
            field68: number,
            field128: number,
            // 3 characters less, for the 9 bytes of field5.
            field129: Some($crate::TEXT[9..].into()),
            field131: number,
            ..Default::default()
        }
    }};
}

/// Checks that a reply is what the server makes of the message.
#[macro_export]
macro_rules! verify_message {
    ($reply:expr) => {
        if $reply.field1 == "OK" && $reply.field2 == 100 && $reply.field3 == $crate::FIELD3 {
            Ok(())
        } else {
            Err("the reply is not the message with field1 OK and field2 100".to_owned())
        }
    };
}
