//! Counters of an engine, and the length of its turns.
#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use std::time::Duration;
use switchboard_fanout::{
    Adapter, BufferId, CloseReason, Connected, Engine, EngineCounters, EngineStats, Handle, Handoff, Options,
    State, SubscriberId, Subscribers,
};
use switchboard_wire::Input;
use tokio::io::{AsyncReadExt, DuplexStream};

/// All subscribers read one buffer, which is closed after the last of them. Commands are its frames.
struct Everyone(Option<BufferId>);

impl Adapter for Everyone {
    type Command = Bytes;
    type Connection = ();

    fn connected(&mut self, connected: Connected<()>, subscribers: &mut Subscribers) {
        let buffer = *self.0.get_or_insert_with(|| subscribers.open_buffer());
        subscribers.attach(connected.id, buffer);
    }

    fn received(
        &mut self,
        _id: SubscriberId,
        input: &mut Input,
        _subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        input.skip(input.len());
        Ok(())
    }

    fn command(&mut self, frame: Bytes, subscribers: &mut Subscribers) {
        if let Some(buffer) = self.0 {
            subscribers.append(buffer, b"", &frame);
        }
    }

    fn due(&mut self, _id: SubscriberId, _subscribers: &mut Subscribers) {}

    fn lagged(&mut self, _: SubscriberId, _: BufferId, _: u64, _: &mut Subscribers) {}

    fn disconnected(&mut self, _: SubscriberId, _: &CloseReason, _: State, subscribers: &mut Subscribers) {
        if subscribers.count() == 0
            && let Some(buffer) = self.0.take()
        {
            subscribers.close_buffer(buffer);
        }
    }
}

fn start(options: Options, counters: &EngineCounters) -> Handle<Everyone> {
    let (engine, handle) = Engine::new(Everyone(None), options, None).unwrap();
    tokio::spawn(engine.with_counters(counters, 3).run());
    handle
}

fn connect(engine: &Handle<Everyone>) -> DuplexStream {
    let (client, io) = tokio::io::duplex(1024);
    engine.hand_over(Handoff::new(Box::new(io), BytesMut::new(), ()).unwrap()).unwrap();
    client
}

/// Waits until the counters are as required; they are stored at the end of each turn.
async fn until(counters: &EngineCounters, is: impl Fn(EngineStats) -> bool) -> EngineStats {
    let reached = async {
        loop {
            match counters.engines().first() {
                Some(stats) if is(*stats) => return *stats,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
    reached.unwrap_or_else(|_| panic!("{:?}", counters.engines()))
}

#[tokio::test]
async fn counters_follow_the_subscribers_and_buffers_of_an_engine() {
    let (counters, mut options) = (EngineCounters::default(), Options::default());
    options.broadcast_buffer_bytes_max = 32 << 10;
    let engine = start(options, &counters);
    let (mut fast, slow) = (connect(&engine), connect(&engine));
    let stats = until(&counters, |stats| stats.subscribers == 2).await;
    assert_eq!((stats.worker, stats.buffers, stats.held_bytes, stats.lagged), (3, 1, 0, 0));
    let mut frame = vec![0; 2 << 10];
    // The pipe of the slow one is full: the buffer holds what it has not read.
    engine.send(frame.clone().into()).await.unwrap();
    fast.read_exact(&mut frame).await.unwrap();
    until(&counters, |stats| stats.held_bytes > 0).await;
    for _ in 0..100 {
        engine.send(frame.clone().into()).await.unwrap();
        fast.read_exact(&mut frame).await.unwrap();
    }
    // It has lagged when it reads again.
    let mut slow = slow;
    let mut read = vec![0; 64];
    slow.read_exact(&mut read).await.unwrap();
    let reading = tokio::spawn(async move {
        let mut sink = tokio::io::sink();
        let _ = tokio::io::copy(&mut slow, &mut sink).await;
    });
    until(&counters, |stats| stats.lagged == 1).await;
    reading.abort();
    drop(fast);
    // An engine learns that a peer of a pipe is gone when it reads or writes.
    engine.send(Bytes::from_static(b"x")).await.unwrap();
    let stats = until(&counters, |stats| stats.subscribers == 0 && stats.buffers == 0).await;
    assert_eq!((stats.held_bytes, stats.lagged), (0, 1));
    engine.drain(Duration::ZERO).await;
    while !counters.engines().is_empty() {
        tokio::task::yield_now().await;
    }
    let value = |name| counters.counters().into_iter().find(|counter| counter.name == name).unwrap().value;
    assert_eq!((value("engines"), value("engine_lagged")), (0, 1));
    assert!(value("engine_turns") >= stats.turns);
}

#[tokio::test]
async fn a_turn_ends_after_its_time_limit() {
    const COMMANDS: u64 = 2_000;
    for (turn_max, has_many) in [(Duration::ZERO, true), (Duration::from_secs(3_600), false)] {
        let (counters, mut options) = (EngineCounters::default(), Options::default());
        options.turn_max = turn_max;
        let engine = start(options, &counters);
        // All are in the mailbox before the first turn.
        for _ in 0..COMMANDS {
            engine.try_send(Bytes::from_static(b"x")).unwrap();
        }
        engine.query(|_, _| ()).await.unwrap();
        let turns = until(&counters, |stats| stats.turns > 0).await.turns;
        // The clock is read every 64 commands.
        assert_eq!(turns >= COMMANDS / 64, has_many, "{turn_max:?}: {turns} turns");
    }
}
