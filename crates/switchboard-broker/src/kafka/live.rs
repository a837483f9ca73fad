//! Partitions that this process follows.
//!
//! A task per leader requests the records of all its followed partitions on one connection, in a long poll. A partition
//! continues at its offset after an interruption, so that nothing is missing and topics need not be read again. Topics
//! are interrupted when the partition belongs to another log, or does not have the offset any more.

use super::{
    PAUSE_MAX, RESPONSE_TIMEOUT, batch,
    cluster::{Cluster, Layout, Purpose, Tries},
    errors,
    log::Failed,
    messages::{self, FetchLimits, Fetched},
    read,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use switchboard_core::{Result, backoff};
use switchboard_message::{
    Position, Topic,
    broker::{LiveEvent, Mailbox, StoredEntry},
};
use switchboard_wire::Status;
use tokio::task::JoinHandle;

/// Time that the server waits for a new record.
const WAIT: Duration = Duration::from_millis(500);
/// Failures that count for the pause after a response that has errors of some partitions: it is at most 400 ms.
const FAILURES_MAX: u32 = 3;
/// Bytes of one response, and of one partition in it.
const BYTES_MAX: [i32; 2] = [8 << 20, 1 << 20];

/// Followed partitions.
pub(super) struct Live {
    cluster: Arc<Cluster>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    layout: Option<Arc<Layout>>,
    partitions: HashMap<i32, Partition>,
    /// By leader.
    tasks: HashMap<i32, JoinHandle<()>>,
    /// Number of requests, by which their partitions are rotated.
    turns: usize,
}

struct Partition {
    epoch: u64,
    /// Offset of the next record.
    next: i64,
    topics: HashMap<Box<[u8]>, FollowedTopic>,
}

struct FollowedTopic {
    mailbox: Mailbox,
    /// Offset of its newest entry, or one before it.
    last: u64,
}

/// Events to be delivered without the lock: a mailbox takes locks of the bus.
type Events = Vec<(Mailbox, LiveEvent)>;

/// One request of a task.
struct Round {
    layout: Arc<Layout>,
    partitions: Vec<(i32, i64)>,
}

impl State {
    /// Ends the delivery of all partitions of another log than this one.
    fn replace(&mut self, layout: &Arc<Layout>, why: &Status, events: &mut Events) {
        let is_other = self.layout.as_ref().is_some_and(|known| known.epoch() != layout.epoch());
        if is_other {
            for (_, partition) in self.partitions.drain() {
                partition.interrupt(why, events);
            }
        }
        self.layout = Some(layout.clone());
    }
}

impl Partition {
    fn interrupt(self, why: &Status, events: &mut Events) {
        let mailboxes = self.topics.into_values().map(|topic| topic.mailbox);
        events.extend(mailboxes.map(|mailbox| (mailbox, LiveEvent::Interrupted(why.clone()))));
    }
}

impl Live {
    pub(super) fn new(cluster: Arc<Cluster>) -> Arc<Live> {
        Arc::new(Live { cluster, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to deliver the entries of a topic; resolves to the newest position of its partition.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        topic: &Topic,
        known: Option<Position>,
        to: Mailbox,
    ) -> Result<Position> {
        let mut tries = Tries::new();
        loop {
            let target = self.cluster.target(topic).await?;
            match target.end(&self.cluster.options.prefix).await {
                Ok(end) => {
                    let is_lost =
                        known.is_some_and(|known| known.epoch == target.epoch && known.offset > end as u64);
                    if is_lost {
                        self.cluster.note_loss(&target.layout, target.partition);
                    }
                    let epoch = self.cluster.epoch(&target.layout, target.partition);
                    return Ok(self.follow(topic, &target.layout, (target.partition, epoch), end, to));
                }
                Err(Failed::Status(status)) => {
                    self.cluster.forget(&target.layout);
                    return Err(status);
                }
                Err(Failed::Error { request, error, text }) => {
                    tries.again(&self.cluster, &target.layout, request, error, &text).await?;
                }
            }
        }
    }

    fn follow(
        self: &Arc<Self>,
        topic: &Topic,
        layout: &Arc<Layout>,
        (number, epoch): (i32, u64),
        end: i64,
        mailbox: Mailbox,
    ) -> Position {
        let mut events = Events::new();
        let other = Status::unavailable(format!("{} has another log", self.cluster.name));
        let mut state = self.state();
        state.replace(layout, &other, &mut events);
        if state.partitions.get(&number).is_some_and(|partition| partition.epoch != epoch)
            && let Some(partition) = state.partitions.remove(&number)
        {
            partition.interrupt(&other, &mut events);
        }
        let partition = state.partitions.entry(number).or_insert_with(|| Partition {
            epoch,
            next: end,
            topics: HashMap::new(),
        });
        let followed = FollowedTopic { mailbox, last: partition.next as u64 };
        partition.topics.insert(topic.name().as_bytes().into(), followed);
        let head = end.max(partition.next) as u64;
        self.start_tasks(&mut state);
        drop(state);
        deliver(events);
        Position { epoch, offset: head }
    }

    /// Ends the delivery of a topic.
    pub(super) fn unsubscribe(&self, topic: &Topic) {
        let name = topic.name().as_bytes();
        self.state().partitions.retain(|_, partition| {
            partition.topics.remove(name);
            !partition.topics.is_empty()
        });
    }

    /// Ends all deliveries.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.partitions.clear();
        state.tasks.drain().for_each(|(_, task)| task.abort());
    }

    /// Starts a task for each leader that has none.
    fn start_tasks(self: &Arc<Self>, state: &mut State) {
        let Some(layout) = state.layout.clone() else { return };
        for number in state.partitions.keys() {
            let leader = layout.leader(*number);
            let is_running = state.tasks.get(&leader).is_some_and(|task| !task.is_finished());
            if !is_running {
                state.tasks.insert(leader, tokio::spawn(run(Arc::downgrade(self), leader)));
            }
        }
    }

    /// Returns the next request to a leader; `None` if it has no followed partitions, which ends its task.
    fn round(&self, leader: i32) -> Option<Round> {
        let mut state = self.state();
        let layout = state.layout.clone();
        let of_leader = |layout: &Arc<Layout>| -> Vec<(i32, i64)> {
            let partitions = state.partitions.iter().filter(|(number, _)| layout.leader(**number) == leader);
            partitions.map(|(number, partition)| (*number, partition.next)).collect()
        };
        let round = layout.map(|layout| Round { partitions: of_leader(&layout), layout });
        let mut round = round.filter(|round| !round.partitions.is_empty());
        state.turns = state.turns.wrapping_add(1);
        if let Some(Round { partitions, .. }) = &mut round {
            // A response is filled in this order, and each partition is the first one in turn.
            partitions.sort_unstable();
            let first = state.turns % partitions.len();
            partitions.rotate_left(first);
        }
        if round.is_none() {
            state.tasks.remove(&leader);
        }
        round
    }

    /// Requests records, and delivers them. Returns whether each partition responded; then the leaders are right.
    async fn fetch(&self, leader: i32, round: &Round) -> Result<bool> {
        let api = messages::FETCH;
        if leader < 0 {
            return Err(errors::status(&self.cluster.name, api.name, errors::LEADER_NOT_AVAILABLE, ""));
        }
        let connection = self.cluster.connection(&round.layout, leader, Purpose::Live).await?;
        let [bytes_max, partition_bytes_max] = BYTES_MAX;
        let limits = FetchLimits { wait_ms: WAIT.as_millis() as i32, bytes_max, partition_bytes_max };
        let body = messages::fetch_request(round.layout.topic_id, &round.partitions, limits).0;
        let body = connection.request(api, &body, WAIT + RESPONSE_TIMEOUT).await?;
        let (error, fetched) = messages::fetch(body).ok_or_else(|| connection.unreadable(api))?;
        if error != errors::NONE {
            return Err(errors::status(&self.cluster.name, api.name, error, ""));
        }
        let (mut events, mut is_right) = (Events::new(), true);
        for fetched in fetched {
            is_right &= self.partition(round, fetched, &mut events);
        }
        deliver(events);
        Ok(is_right)
    }

    /// Applies a response about one partition. Returns whether its leader is right.
    fn partition(&self, round: &Round, fetched: Fetched, events: &mut Events) -> bool {
        let Fetched { partition: number, error, batches, .. } = fetched;
        let Some((_, from)) = round.partitions.iter().find(|(requested, _)| *requested == number) else {
            return true;
        };
        let mut state = self.state();
        // It may have been replaced since.
        let is_current = state.layout.as_ref().is_some_and(|known| known.epoch() == round.layout.epoch());
        let followed = state.partitions.get_mut(&number).filter(|one| one.next == *from && is_current);
        let Some(partition) = followed else { return true };
        let decoded = match error {
            errors::NONE => batch::decode(batches, *from).ok_or_else(|| {
                let text = format!("{}: partition {number} has a damaged batch", self.cluster.name);
                Status::data_loss(text)
            }),
            errors::OFFSET_OUT_OF_RANGE => {
                Err(errors::status(&self.cluster.name, messages::FETCH.name, error, ""))
            }
            // The partition continues at its offset, with another leader or later.
            _ => return false,
        };
        let batches = match decoded {
            Ok(batches) => batches,
            Err(why) => {
                if let Some(partition) = state.partitions.remove(&number) {
                    partition.interrupt(&why, events);
                }
                return false;
            }
        };
        if batches.compressed > 0 {
            tracing::warn!(
                target: "switchboard::bus", engine = self.cluster.name, partition = number,
                "{} compressed batches are not read; set compression.type=uncompressed on the topic of Kafka",
                batches.compressed
            );
        }
        for record in batches.records {
            let Some(topic) = record.key.as_deref().and_then(|key| partition.topics.get_mut(key)) else {
                continue;
            };
            let position = Position { epoch: partition.epoch, offset: record.offset as u64 + 1 };
            let entry = StoredEntry::new(position, topic.last, read::publication(&record.value));
            topic.last = position.offset;
            events.push((topic.mailbox.clone(), LiveEvent::Entry(entry)));
        }
        partition.next = batches.next.unwrap_or(partition.next);
        true
    }

    /// Reads the leaders again, and moves the partitions to the tasks of theirs.
    async fn locate(self: &Arc<Self>, round: &Round) {
        self.cluster.forget(&round.layout);
        self.refresh(round).await;
    }

    /// Takes over the layout, if it was read again since the round began.
    async fn refresh(self: &Arc<Self>, round: &Round) {
        let Ok(layout) = self.cluster.layout().await else { return };
        if Arc::ptr_eq(&layout, &round.layout) {
            return;
        }
        let other = Status::unavailable(format!("{} has another log", self.cluster.name));
        let mut events = Events::new();
        let mut state = self.state();
        state.replace(&layout, &other, &mut events);
        self.start_tasks(&mut state);
        drop(state);
        deliver(events);
    }
}

fn deliver(events: Events) {
    for (mailbox, event) in events {
        mailbox.deliver(event);
    }
}

/// Follows the partitions of one leader.
async fn run(live: Weak<Live>, leader: i32) {
    let mut failures = 0;
    loop {
        {
            let Some(live) = live.upgrade() else { return };
            let Some(round) = live.round(leader) else { return };
            match live.fetch(leader, &round).await {
                Ok(true) => {
                    failures = 0;
                    live.refresh(&round).await;
                    continue;
                }
                // The other partitions wait as long.
                Ok(false) => failures = (failures + 1).min(FAILURES_MAX),
                Err(status) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(target: "switchboard::bus", "topics are not followed at present: {status}");
                    }
                }
            }
            live.locate(&round).await;
        }
        tokio::time::sleep(backoff::pause(failures, backoff::CONNECT_MIN, PAUSE_MAX)).await;
    }
}
