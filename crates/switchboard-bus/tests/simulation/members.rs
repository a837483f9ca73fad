//! Members of a durable group in other processes, which acknowledge, reject, forget and crash.

use crate::{random::Random, world::World};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use switchboard::{Channel, Receiver, Result};
use switchboard_bus::v1::{self, BusClient, subscribe_event::Event};
use tokio::time::{sleep, timeout};

pub(crate) const TOPIC: &str = "jobs/0";
pub(crate) const GROUP: &str = "workers";
/// Deliveries of an entry; more than a run needs.
const ATTEMPTS_MAX: u32 = 1_000;
/// Time without a delivery after which the group is quiet: longer than the longest pause of a client that reconnects,
/// and than the time after which an entry is delivered again.
const QUIET: Duration = Duration::from_secs(30);

/// A position: the epoch and the offset.
type Place = (u64, u64);

#[derive(Default)]
struct State {
    /// Number of deliveries of each entry, as their receivers saw them.
    delivered: BTreeMap<Place, HashSet<u32>>,
    /// Entries whose acknowledgement the server has confirmed, and the number of streams that had begun before.
    confirmed: BTreeMap<Place, u64>,
    /// Entries whose acknowledgement was sent. The server may have it although its response is lost.
    acknowledged: HashSet<Place>,
    /// Streams that have begun.
    streams: u64,
    redelivered: u64,
    has_ended: bool,
}

/// The deliveries of the group.
#[derive(Default)]
pub(crate) struct Deliveries(Mutex<State>);

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A member begins a stream; returns its number.
    fn begin(&self) -> u64 {
        let mut state = self.lock();
        state.streams += 1;
        state.streams
    }

    fn delivered(&self, place: Place, attempt: u32, stream: u64) {
        let mut state = self.lock();
        let attempts = state.delivered.entry(place).or_default();
        assert!(attempts.insert(attempt), "delivery {attempt} of {place:?} has happened twice");
        state.redelivered += u64::from(attempt > 1);
        // The server took the entry after the stream had begun, and the stream began after the confirmation.
        let before = state.confirmed.get(&place).is_some_and(|streams| *streams < stream);
        assert!(!before, "{place:?} was acknowledged, and is delivered by a later stream");
    }

    fn confirmed(&self, place: Place) {
        let mut state = self.lock();
        let streams = state.streams;
        state.confirmed.entry(place).or_insert(streams);
    }

    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.redelivered, state.confirmed.len() as u64)
    }

    fn total(&self) -> usize {
        self.lock().delivered.values().map(HashSet::len).sum()
    }

    /// Waits until the group has nothing more to deliver, checks that it has delivered all, and ends the members.
    pub(crate) async fn quiet(&self, world: &World) {
        loop {
            let before = self.total();
            sleep(QUIET).await;
            if self.total() == before {
                break;
            }
        }
        let epoch = world.bus().topic_stats(TOPIC).unwrap().head.epoch;
        let accepted = world.journal.accepted_in(TOPIC, epoch);
        let mut state = self.lock();
        // The cursor of a new log begins with the first member that subscribes again.
        let of_log = state.delivered.range((epoch, 0)..=(epoch, u64::MAX));
        let first = of_log.map(|((_, offset), _)| *offset).next().expect("the last entries are jobs");
        for offset in accepted.into_iter().filter(|offset| *offset >= first) {
            assert!(state.delivered.contains_key(&(epoch, offset)), "job {offset} was not delivered");
            assert!(state.acknowledged.contains(&(epoch, offset)), "job {offset} is not acknowledged");
        }
        state.has_ended = true;
    }
}

/// Receives jobs until the end of the run.
pub(crate) async fn run(world: Arc<World>, channel: Channel, random: Random) {
    let client = BusClient::new(channel);
    while !world.deliveries.lock().has_ended {
        let number = world.deliveries.begin();
        if let Ok(stream) = client.subscribe(request()).await {
            receive(&world, &client, stream, number, &random).await;
        }
        sleep(random.millis(50..=1_000)).await;
    }
}

fn request() -> v1::SubscribeRequest {
    let ack = v1::AckOptions { attempts_max: ATTEMPTS_MAX, ..Default::default() };
    v1::SubscribeRequest {
        topic: TOPIC.to_owned(),
        group: GROUP.to_owned(),
        durable: true,
        ack: ack.into(),
        ..Default::default()
    }
}

/// Receives from one stream until it ends, or the member crashes.
async fn receive(
    world: &World,
    client: &BusClient,
    mut stream: Receiver<v1::SubscribeEvent>,
    number: u64,
    random: &Random,
) {
    let is_settled = || world.last.borrow().is_some();
    loop {
        let next = timeout(Duration::from_secs(1), stream.next()).await;
        if world.deliveries.lock().has_ended {
            return;
        }
        let Ok(next) = next else { continue };
        let Ok(Some(v1::SubscribeEvent { event: Some(event), .. })) = next else { return };
        let Event::Entry(entry) = event else { continue };
        let place = (entry.position.epoch, entry.position.offset);
        world.deliveries.delivered(place, entry.attempt, number);
        if is_settled() {
            // At the end, every job is done.
            acknowledge(world, client, place, &entry.ack_id).await;
            continue;
        }
        match random.within(0..=99) {
            0..70 => acknowledge(world, client, place, &entry.ack_id).await,
            70..80 => _ = reject(client, &entry.ack_id).await,
            // Forgotten: delivered again after the period.
            80..95 => {}
            _ => return,
        }
    }
}

async fn acknowledge(world: &World, client: &BusClient, place: Place, ack_id: &str) {
    let request = v1::AckRequest { ack_ids: vec![ack_id.to_owned()], ..Default::default() };
    world.deliveries.lock().acknowledged.insert(place);
    let response: Result<_> = client.ack(request).timeout(Duration::from_secs(5)).await;
    if response.is_ok_and(|response| response.unknown_ack_ids.is_empty()) {
        world.deliveries.confirmed(place);
    }
}

async fn reject(client: &BusClient, ack_id: &str) -> Result<()> {
    let request = v1::RejectRequest { ack_ids: vec![ack_id.to_owned()], ..Default::default() };
    client.reject(request).timeout(Duration::from_secs(5)).await.map(drop)
}
