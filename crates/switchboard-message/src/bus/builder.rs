//! Settings of a bus.

use super::{Bus, Side, engine::Engine, local::Local};
use crate::{
    broker::Broker,
    clock::Clock,
    files::{FileOptions, Files},
    limits::Limits,
    log::{Log, Pattern, Storage, Submissions, TopicOptions},
};
use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::{Codec, Status};

/// Settings of a [`Bus`].
#[derive(Clone, Debug)]
#[must_use = "a builder has no effect before `build`"]
pub struct BusBuilder {
    limits: Limits,
    rules: Vec<(Pattern, TopicOptions)>,
    clock: Clock,
    codec: Codec,
    engine: Option<Arc<dyn Broker>>,
}

impl BusBuilder {
    pub(super) fn new() -> BusBuilder {
        let (limits, rules) = (Limits::default(), Vec::new());
        BusBuilder { limits, rules, clock: Clock::Runtime, codec: Codec::Postcard, engine: None }
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> BusBuilder {
        self.limits = limits;
        self
    }

    /// Sets the options of the topics that match a pattern. The first pattern that matches a name applies.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern.
    pub fn topics(mut self, pattern: &str, options: TopicOptions) -> Result<BusBuilder> {
        self.rules.push((Pattern::new(pattern)?, options));
        Ok(self)
    }

    /// Sets the codec of messages whose publication names none; default postcard.
    pub fn codec(mut self, codec: Codec) -> BusBuilder {
        self.codec = codec;
        self
    }

    /// Keeps the entries of all topics, except reserved ones, in an engine, which other processes use as well.
    ///
    /// A publication resolves to the engine's position. The history of a topic is that of the engine: the one of
    /// [`TopicOptions`] has no effect, and [`SlowReader::Wait`](crate::SlowReader::Wait) is as
    /// [`Notify`](crate::SlowReader::Notify). A subscription that lags reads what it missed from the engine. Groups,
    /// durable cursors, patterns, requests, and publications without a wait fail with `Unimplemented`.
    pub fn engine(mut self, broker: Arc<dyn Broker>) -> BusBuilder {
        self.engine = Some(broker);
        self
    }

    /// Uses a clock in nanoseconds that is moved by hand; timers never fire. For simulations that poll.
    #[doc(hidden)]
    pub fn manual_clock(mut self, clock: Arc<AtomicU64>) -> BusBuilder {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Creates the bus. Publications to durable topics fail: they need a bus that is [opened](Self::open).
    pub fn build(self) -> Bus {
        let BusBuilder { limits, mut rules, clock, codec, engine } = self;
        if engine.is_some() {
            // Entries below those that a subscription reads come from the engine, which also stores them.
            let in_memory =
                |options: TopicOptions| options.history(0, Duration::ZERO).storage(Storage::Memory);
            rules.iter_mut().for_each(|(_, options)| *options = in_memory(*options));
        }
        let log = Arc::new(Log::new(limits, rules, switchboard_core::clock::random));
        let engine = engine.map(Engine::new);
        Bus { side: Side::Local(Arc::new(Local::new(log, clock, codec, engine, None))) }
    }

    /// Creates the bus with the files of a folder: topics with [`Storage::File`](crate::Storage::File) and
    /// [`Storage::Synced`](crate::Storage::Synced) continue with the entries of their histories, their epochs and
    /// offsets, publication ids and durable cursors. Reads all files, which blocks.
    ///
    /// The bus writes with two threads. The last clone or subscription that is dropped waits until all publications are
    /// written.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use switchboard_message::{Bus, FileOptions, Storage, TopicOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("switchboard-open-{}", std::process::id()));
    /// let orders = TopicOptions::new().history(1_000, Duration::MAX).storage(Storage::File);
    /// let open = || Bus::builder().topics("orders/>", orders)?.open(FileOptions::new(&folder));
    /// let bus = open()?;
    /// let position = bus.publish("orders/eu", &7).await?;
    /// drop(bus);
    /// let page = open()?.history::<i32>("orders/eu").await?;
    /// assert_eq!(page.deliveries.len(), 1);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `FailedPrecondition` if another bus uses the folder, `Unavailable` if it cannot be read and written,
    /// `InvalidArgument` for limits that contradict each other and for a bus with an [engine](Self::engine),
    /// `ResourceExhausted` if it has more topics than `topics_max`, `DataLoss` if the positions of durable cursors are
    /// damaged.
    pub fn open(self, files: FileOptions) -> Result<Bus> {
        let BusBuilder { limits, rules, clock, codec, engine } = self;
        if engine.is_some() {
            return Err(Status::invalid_argument("a bus has an engine or the files of a folder, not both"));
        }
        let clock = clock.with_files();
        let submissions = Arc::new(Submissions::new(files.queue_bytes_max));
        let log = Log::new(limits, rules, switchboard_core::clock::random).with_files(submissions.clone());
        let log = Arc::new(log);
        let files = Files::open(files, &log, &submissions, clock.clone())?;
        Ok(Bus { side: Side::Local(Arc::new(Local::new(log, clock, codec, None, Some(files)))) })
    }
}
