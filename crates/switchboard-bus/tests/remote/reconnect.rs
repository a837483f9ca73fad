//! Pauses between the streams of a subscription, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard::{Channel, Cx, Result, Sender, Status};
use switchboard_bus::{
    Connect,
    v1::{self, SubscribeEvent, subscribe_event::Event},
};
use switchboard_message::{Bus, Delivery};

/// A service whose streams end right after their first event, or after one entry.
#[derive(Clone, Default)]
struct Ending {
    streams: Arc<AtomicU64>,
    has_entries: bool,
}

/// Methods that the service does not have.
macro_rules! missing {
    ($($method:ident: $request:ident => $response:ident),*) => {
        $(async fn $method(&self, _: v1::$request, _: &Cx) -> Result<v1::$response> {
            Err(Status::unimplemented("the fake has one method"))
        })*
    };
}

impl v1::Bus for Ending {
    missing! {
        publish: PublishRequest => PublishResponse,
        publish_batch: PublishBatchRequest => PublishBatchResponse,
        ack: AckRequest => AckResponse,
        reject: RejectRequest => RejectResponse,
        history: HistoryRequest => HistoryResponse,
        topics: TopicsRequest => TopicsResponse,
        reply: ReplyRequest => ReplyResponse,
        credit: CreditRequest => CreditResponse
    }

    async fn subscribe(&self, _: v1::SubscribeRequest, _: &Cx, out: Sender<SubscribeEvent>) -> Result<()> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let send =
            async |event: Event| out.send(SubscribeEvent { event: Some(event), ..Default::default() }).await;
        let position = |offset| v1::Position { epoch: 1, offset, ..Default::default() };
        send(v1::Started { position: position(stream).into(), ..Default::default() }.into()).await?;
        if self.has_entries {
            let entry = v1::Entry {
                topic: "t".to_owned(),
                position: position(stream + 1).into(),
                codec: "raw".to_owned(),
                ..Default::default()
            };
            send(entry.into()).await?;
        }
        Ok(())
    }

    async fn request(&self, _: v1::RequestRequest, _: &Cx, _: Sender<v1::RequestEvent>) -> Result<()> {
        Err(Status::unimplemented("the fake has one method"))
    }
}

fn bus(service: &Ending) -> Bus {
    Bus::over(Channel::local(v1::BusServer::new(service.clone())))
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_streams_end_right_after_their_first_event() {
    let service = Ending::default();
    let mut subscription = bus(&service).subscribe_encoded("t").await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(60), subscription.next()).await;
    assert!(waited.is_err(), "{waited:?}");
    // Pauses from 50 ms to 5 s, each at least half of the whole; without growth there are over 1,000 streams.
    let streams = service.streams.load(Ordering::Relaxed);
    assert!((10..40).contains(&streams), "{streams} streams in a minute");
}

#[tokio::test(start_paused = true)]
async fn pauses_are_short_after_a_stream_with_an_entry() {
    let service = Ending { has_entries: true, ..Ending::default() };
    let mut subscription = bus(&service).subscribe_encoded("t").await.unwrap();
    let begun = tokio::time::Instant::now();
    for offset in 1..=50 {
        let delivery = subscription.next().await.unwrap();
        let Some(Delivery::Entry(entry)) = delivery else { panic!("no entry: {delivery:?}") };
        assert_eq!(entry.position().offset, offset);
    }
    // In virtual time: 49 pauses of at most 50 ms.
    assert!(begun.elapsed() <= Duration::from_millis(49 * 50 + 49), "{:?}", begun.elapsed());
}
