//! Handlers of services from `.proto` files that return their replies as streams: `Proto::returns_streams`.

/// The demo's services, generated with streams that handlers return.
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "generated code is as public as a library would need it"
)]
mod demo {
    include!(concat!(env!("OUT_DIR"), "/streams/demo.v1.rs"));
}

use demo::{
    GreetReply, GreetRequestView, Greeter, GreeterClient, GreeterServer, Note, Number, Tick, Total,
    WatchRequest, WatchRequestView,
};
use futures_core::Stream;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};
use switchboard::{Code, Cx, Receiver, Result, Server, Status};

/// Ticks, of which those of `Watch` are the first.
#[derive(Default)]
struct Clock {
    ticks: Vec<u32>,
    /// Streams that were dropped.
    dropped: AtomicUsize,
}

impl Greeter for Clock {
    async fn greet(&self, request: GreetRequestView<'_>, _: &Cx) -> Result<GreetReply> {
        Ok(GreetReply { text: request.name.to_owned(), ..Default::default() })
    }

    async fn watch(
        &self,
        request: WatchRequestView<'_>,
        cx: &Cx,
    ) -> Result<impl Stream<Item = Result<Tick>> + Send> {
        if request.count == 0 {
            return Err(Status::invalid_argument("count is 0"));
        }
        cx.reply_trailer("x-ticks", "all")?;
        // Borrows from the handler and from the bytes of the request.
        let ticks = self.ticks.iter().map(move |&n| match request.interval_ms {
            limit if limit > 0 && n >= limit => Err(Status::out_of_range(format!("{n}"))),
            _ => Ok(Tick { n, ..Default::default() }),
        });
        Ok(Items { items: ticks.take(request.count as usize), dropped: &self.dropped })
    }

    async fn sum(&self, mut input: Receiver<Number>, _: &Cx) -> Result<Total> {
        let mut total = Total::default();
        while let Some(number) = input.next().await? {
            total.sum += number.value;
        }
        Ok(total)
    }

    async fn chat(&self, input: Receiver<Note>, _: &Cx) -> Result<impl Stream<Item = Result<Note>> + Send> {
        Ok(Upper(input))
    }
}

/// The items of an iterator as a stream; counts its end.
struct Items<'a, I> {
    items: I,
    dropped: &'a AtomicUsize,
}

impl<I: Iterator + Unpin> Stream for Items<'_, I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.items.next())
    }
}

impl<I> Drop for Items<'_, I> {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The notes of a caller in upper case, one by one.
struct Upper(Receiver<Note>);

impl Stream for Upper {
    type Item = Result<Note>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let upper = |note: Note| Note { text: note.text.to_uppercase(), ..Default::default() };
        Pin::new(&mut self.0).poll_next(cx).map(|next| next.map(|note| note.map(upper)))
    }
}

type Outcome = std::result::Result<String, (Code, String)>;

/// The ticks, then a trailer or the error.
async fn collect(replies: Result<Receiver<Tick>>) -> (Vec<u32>, Outcome) {
    let failed = |status: Status| Err((status.code(), status.message().to_owned()));
    let mut ticks = Vec::new();
    let mut replies = match replies {
        Ok(replies) => replies,
        Err(status) => return (ticks, failed(status)),
    };
    loop {
        match replies.next().await {
            Ok(Some(tick)) => ticks.push(tick.n),
            Ok(None) => {
                return (ticks, Ok(replies.trailers().text("x-ticks").unwrap_or_default().to_owned()));
            }
            Err(status) => return (ticks, failed(status)),
        }
    }
}

#[tokio::test]
async fn returned_streams_are_sent_on_every_wire_with_streams() {
    let clock = Arc::new(Clock { ticks: vec![1, 2, 3, 4], ..Clock::default() });
    let service = GreeterServer::from_arc(clock.clone());
    let server = Server::new().add(service.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let wires = ["", "?wire=grpc", "?wire=connect"].map(|wire| format!("{}{wire}", server.url()));
    let mut clients = vec![GreeterClient::local(Clock { ticks: vec![1, 2, 3, 4], ..Clock::default() })];
    for url in &wires {
        clients.push(GreeterClient::connect(url).await.unwrap());
    }
    for greeter in &clients {
        let watch = async |count, interval_ms| {
            let request = WatchRequest { count, interval_ms, ..Default::default() };
            collect(greeter.watch(request).await).await
        };
        assert_eq!(watch(3, 0).await, (vec![1, 2, 3], Ok("all".to_owned())));
        assert_eq!(watch(9, 0).await, (vec![1, 2, 3, 4], Ok("all".to_owned())));
        // An error among the items, and one instead of a stream.
        assert_eq!(watch(9, 3).await, (vec![1, 2], Err((Code::OutOfRange, "3".to_owned()))));
        assert_eq!(watch(0, 0).await, (vec![], Err((Code::InvalidArgument, "count is 0".to_owned()))));

        let (notes, mut replies) = greeter.chat().await.unwrap();
        for (sent, expected) in [("one", "ONE"), ("two", "TWO")] {
            notes.send(Note { text: sent.to_owned(), ..Default::default() }).await.unwrap();
            assert_eq!(replies.next().await.unwrap().unwrap().text, expected);
        }
        notes.finish();
        assert!(replies.next().await.unwrap().is_none());
    }
    assert_eq!(clock.dropped.load(Ordering::Relaxed), 3 * wires.len(), "streams end with their calls");
}
