//! The methods that `switchboard bench` calls.

use super::proto::bench::{Bench, BenchmarkMessage, BenchmarkMessageView, EchoMessage, EchoMessageView};
use std::future::{Future, ready};
use switchboard::{Cx, Encoded, Receiver, Result, Sender};

/// The benchmark's service.
#[derive(Debug)]
pub struct BenchService;

impl Bench for BenchService {
    // Nothing here waits, so that these are no async functions: those would move a view of 600 bytes into their future,
    // and out of it again.

    fn echo(
        &self,
        message: EchoMessageView<'_>,
        cx: &Cx,
    ) -> impl Future<Output = Result<Encoded<EchoMessage>>> + Send {
        ready(Encoded::of_view(&message, cx))
    }

    /// Changes the view in place and encodes it: the reply is never built.
    fn message(
        &self,
        mut message: BenchmarkMessageView<'_>,
        cx: &Cx,
    ) -> impl Future<Output = Result<Encoded<BenchmarkMessage>>> + Send {
        message.field1 = "OK";
        message.field2 = 100;
        ready(Encoded::of_view(&message, cx))
    }

    async fn stream(&self, input: Receiver<EchoMessage>, _: &Cx, out: Sender<EchoMessage>) -> Result<()> {
        out.pipe(input).await
    }
}

/// The text of rpcx-benchmark: 18 characters of 3 bytes.
const TEXT: &str = "许多往事在眼前一幕一幕，变的那麼模糊";
const NUMBER: i32 = 100_000;

/// The message as rpcx-benchmark fills it in, and with one element in `field5` so that every field is set; for its 9
/// bytes the last text is 3 characters shorter. Encodes to 581 bytes.
pub fn benchmark_message() -> BenchmarkMessage {
    let text = || Some(TEXT.to_owned());
    let number = Some(NUMBER);
    let yes = Some(true);
    BenchmarkMessage {
        field1: TEXT.to_owned(),
        field9: text(),
        field18: text(),
        field80: yes,
        field81: yes,
        field2: NUMBER,
        field3: NUMBER,
        field280: number,
        field6: number,
        field22: Some(i64::from(NUMBER)),
        field4: text(),
        field5: vec![NUMBER as u64],
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
        field129: Some(TEXT[9..].to_owned()),
        field131: number,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard::{Codec, codec::proto};

    #[test]
    fn message_has_581_bytes() {
        assert_eq!(proto::encode(&benchmark_message(), Codec::Proto).unwrap().len(), 581);
    }
}
