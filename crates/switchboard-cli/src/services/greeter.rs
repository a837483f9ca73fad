//! Greets in all four kinds of call.

use super::proto::demo::{
    GreetReply, GreetRequestView, Greeter, Note, Number, Tick, Total, WatchRequestView,
};
use std::time::Duration;
use switchboard::{Cx, Receiver, Result, Sender, Status};

/// The demo's greeter.
#[derive(Debug)]
pub struct Hello;

const TICKS_MAX: u32 = 10_000;
const INTERVAL_MAX_MS: u32 = 60_000;

impl Greeter for Hello {
    async fn greet(&self, request: GreetRequestView<'_>, cx: &Cx) -> Result<GreetReply> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("name is empty: say whom to greet"));
        }
        // Demonstrates metadata in both directions.
        if let Some(echo) = cx.metadata().value("x-echo") {
            cx.reply_metadata("x-echo", echo.clone())?;
            cx.reply_trailer("x-echo-trailer", echo.clone())?;
        }
        Ok(GreetReply { text: format!("hello {}", request.name), ..Default::default() })
    }

    async fn watch(&self, request: WatchRequestView<'_>, _: &Cx, out: Sender<Tick>) -> Result<()> {
        let (count, interval_ms) = (request.count, request.interval_ms);
        if !(1..=TICKS_MAX).contains(&count) {
            return Err(Status::invalid_argument(format!("count is {count}: it must be 1 to {TICKS_MAX}")));
        }
        if interval_ms > INTERVAL_MAX_MS {
            let text = format!("interval_ms is {interval_ms}: it must be 0 to {INTERVAL_MAX_MS}");
            return Err(Status::invalid_argument(text));
        }
        for n in 0..count {
            if n > 0 && interval_ms > 0 {
                tokio::time::sleep(Duration::from_millis(interval_ms.into())).await;
            }
            out.send(Tick { n, ..Default::default() }).await?;
        }
        Ok(())
    }

    async fn sum(&self, mut input: Receiver<Number>, _: &Cx) -> Result<Total> {
        let (mut sum, mut count) = (0i64, 0u32);
        while let Some(number) = input.next().await? {
            let added = sum.checked_add(number.value);
            sum = added.ok_or_else(|| Status::out_of_range("the sum is over 64 bits"))?;
            count = count.saturating_add(1);
        }
        Ok(Total { sum, count, ..Default::default() })
    }

    async fn chat(&self, mut input: Receiver<Note>, _: &Cx, out: Sender<Note>) -> Result<()> {
        while let Some(note) = input.next().await? {
            out.send(Note { text: note.text.to_uppercase(), ..Default::default() }).await?;
        }
        Ok(())
    }
}
