//! Acknowledged pipeline: tasks go to one of several workers each, and results to a sink, and none is lost with a
//! process that ends.
//!
//! ```text
//! Ventilator ─► topic of tasks ─► Worker ─► topic of results ─► Sink
//!      id per task   group cursor, acknowledged     id of the task    durable cursor, acknowledged
//! ```
//!
//! The topics are those of a [`Bus`]: of this process, or of another one with `Bus::connect` of `switchboard-bus`. A
//! worker acknowledges a task after its result was published; a worker that ends before leaves the task to another one.
//! Nothing is lost, and a task may be done twice: [`Task::is_redelivered`] and [`Outcome::is_duplicate`] flag it.
//!
//! | process that ends | then |
//! | --- | --- |
//! | ventilator | its accepted tasks are done; a task that it publishes again with the same id is done once |
//! | worker | its unacknowledged tasks go to other workers at once, flagged |
//! | sink | unacknowledged results are delivered again, flagged |
//! | bus | the tasks in its memory are lost |
//!
//! The topics need the options of [`Pipeline::topic_options`], and the process of the topics calls [`Pipeline::hold`]:
//! without a worker, publishers then wait when the backlog is full, and no task is removed.

mod sink;
mod ventilator;
mod worker;

pub use sink::{Outcome, Sink, SinkStats};
pub use ventilator::Ventilator;
pub use worker::{Task, Worker, WorkerStats};

use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::time::Duration;
use switchboard_message::{Bus, Position, SlowReader, Subscribe, Subscription, TopicOptions};
use switchboard_wire::Code;

/// A pipeline over the topics of a bus. Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use switchboard_message::Bus;
/// use switchboard_pattern::pipeline::Pipeline;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = Pipeline::topic_options(10_000, Duration::from_secs(30));
/// let bus = Bus::builder().topics("squares/*", options)?.build();
/// let pipeline = Pipeline::new(&bus, "squares/tasks").results("squares/results");
/// let _hold = pipeline.hold().await?;
///
/// let mut worker = pipeline.worker::<u64>().await?;
/// tokio::spawn(async move {
///     while let Some(task) = worker.next().await? {
///         task.finish_with(&(*task * *task)).await?;
///     }
///     Ok::<_, switchboard_pattern::Error>(())
/// });
/// pipeline.ventilator().push(&7_u64).await?;
///
/// let mut sink = pipeline.sink::<u64>().await?;
/// let outcome = sink.next().await?.expect("the bus is open");
/// assert_eq!((*outcome, outcome.is_duplicate()), (49, false));
/// outcome.ack();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pipeline {
    bus: Bus,
    tasks: String,
    results: Option<String>,
    workers: String,
    sink: String,
    ack_wait: Duration,
    attempts_max: u32,
    dead_letters: Option<String>,
    unacknowledged_max: Option<usize>,
    remembered_max: usize,
}

/// Keeps the tasks and results of a pipeline while no worker and no sink is connected. Dropping it ends this; the
/// cursors stay.
#[derive(Debug)]
#[must_use = "tasks are kept while this value exists"]
pub struct Hold {
    _tasks: Subscription<Bytes>,
    _results: Option<Subscription<Bytes>>,
}

impl Pipeline {
    /// Creates a pipeline with the topic of its tasks.
    pub fn new(bus: &Bus, tasks: impl Into<String>) -> Pipeline {
        Pipeline {
            bus: bus.clone(),
            tasks: tasks.into(),
            results: None,
            workers: "workers".to_owned(),
            sink: "sink".to_owned(),
            ack_wait: Duration::from_secs(30),
            attempts_max: u32::MAX,
            dead_letters: None,
            unacknowledged_max: None,
            remembered_max: 65_536,
        }
    }

    /// Returns the options that the topics of a pipeline need: a publisher waits up to `wait` when `backlog` entries
    /// are unread, and fails then.
    pub fn topic_options(backlog: usize, wait: Duration) -> TopicOptions {
        TopicOptions::new().backlog(backlog).slow_reader(SlowReader::Wait(wait))
    }

    /// Sets the topic of results. Without one, workers only finish their tasks.
    #[must_use]
    pub fn results(mut self, topic: impl Into<String>) -> Pipeline {
        self.results = Some(topic.into());
        self
    }

    /// Sets the names of the durable cursors of the workers and of the sink; default `workers` and `sink`.
    #[must_use]
    pub fn cursors(mut self, workers: impl Into<String>, sink: impl Into<String>) -> Pipeline {
        (self.workers, self.sink) = (workers.into(), sink.into());
        self
    }

    /// Sets the time after which an unacknowledged task is delivered to another worker; default 30 s. A worker whose
    /// connection ends loses its tasks at once.
    #[must_use]
    pub fn ack_wait(mut self, wait: Duration) -> Pipeline {
        self.ack_wait = wait;
        self
    }

    /// Publishes a task to another topic when it was delivered this often without an acknowledgement. The default is to
    /// deliver it again without an end.
    #[must_use]
    pub fn dead_letters(mut self, topic: impl Into<String>, attempts_max: u32) -> Pipeline {
        (self.dead_letters, self.attempts_max) = (Some(topic.into()), attempts_max.max(1));
        self
    }

    /// Limits the unacknowledged entries of a worker, and of the sink; default and maximum `unacknowledged_max` of the
    /// bus. More of them make the pipeline faster, and repeat more when a worker ends.
    #[must_use]
    pub fn unacknowledged_max(mut self, entries: usize) -> Pipeline {
        self.unacknowledged_max = Some(entries);
        self
    }

    /// Sets the number of results by which a sink recognises duplicates; default 65,536, at least 1.
    #[must_use]
    pub fn remembered_max(mut self, results: usize) -> Pipeline {
        self.remembered_max = results.max(1);
        self
    }

    /// Creates the cursors, and keeps tasks and results while no worker and no sink is connected. Call it in the
    /// process of the topics, before the first task.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for topics of another process, and the errors of
    /// [`Bus::subscribe`](switchboard_message::Bus::subscribe).
    pub async fn hold(&self) -> Result<Hold> {
        // The one operation on cursors that differs between both kinds of bus; no cursor has the name.
        if let Err(status) = self.bus.remove_durable(self.tasks.as_str(), "")
            && status.code() == Code::Unimplemented
        {
            let text = "the tasks of a pipeline are kept in the process of their topics; call hold there";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let decode = |_, bytes| Ok(bytes);
        let tasks = self.configure_tasks(self.bus.subscribe_with(&self.tasks, decode)).await?;
        let results = match &self.results {
            Some(topic) => Some(self.configure_results(self.bus.subscribe_with(topic, decode)).await?),
            None => None,
        };
        Ok(Hold { _tasks: tasks, _results: results })
    }

    /// Returns the sender of tasks.
    pub fn ventilator(&self) -> Ventilator {
        Ventilator::new(self)
    }

    /// Begins to receive tasks, as one of the workers.
    ///
    /// # Errors
    /// Returns the errors of [`Bus::subscribe`](switchboard_message::Bus::subscribe).
    pub async fn worker<T: DeserializeOwned>(&self) -> Result<Worker<T>> {
        let tasks = self.configure_tasks(self.bus.subscribe(&self.tasks));
        Ok(Worker::new(self, tasks.await?))
    }

    /// Begins to receive results. Several sinks share them.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for a pipeline without results, and the errors of
    /// [`Bus::subscribe`](switchboard_message::Bus::subscribe).
    pub async fn sink<R: DeserializeOwned>(&self) -> Result<Sink<R>> {
        let Some(topic) = &self.results else { return Err(self.without_results()) };
        let results = self.configure_results(self.bus.subscribe(topic));
        Ok(Sink::new(results.await?, self.remembered_max))
    }

    /// All members of the workers' group have the same options, [`Hold`] included.
    fn configure_tasks<'a, T>(&'a self, subscribe: Subscribe<'a, T>) -> Subscribe<'a, T> {
        let subscribe = self.configure(subscribe, &self.workers).attempts_max(self.attempts_max);
        match &self.dead_letters {
            Some(topic) => subscribe.dead_letters(topic),
            None => subscribe,
        }
    }

    /// A result is delivered without an end: `attempts_max` is a limit of tasks, and their results are not dropped.
    fn configure_results<'a, T>(&'a self, subscribe: Subscribe<'a, T>) -> Subscribe<'a, T> {
        self.configure(subscribe, &self.sink).attempts_max(u32::MAX)
    }

    fn configure<'a, T>(&'a self, subscribe: Subscribe<'a, T>, cursor: &str) -> Subscribe<'a, T> {
        let subscribe = subscribe.durable(cursor).ack_wait(self.ack_wait);
        match self.unacknowledged_max {
            Some(entries) => subscribe.unacknowledged_max(entries),
            None => subscribe,
        }
    }

    fn without_results(&self) -> Error {
        let text = format!("the pipeline of topic \"{}\" has no results; call results", self.tasks);
        Error::new(ErrorKind::InvalidInput, text)
    }
}

/// Returns the id of the result of a task.
fn result_id(task: Position) -> Bytes {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&task.epoch.to_be_bytes());
    id[8..].copy_from_slice(&task.offset.to_be_bytes());
    Bytes::copy_from_slice(&id)
}

/// Reads the id of a result.
fn task_of(id: &[u8]) -> Option<Position> {
    let (epoch, offset) = id.split_first_chunk::<8>()?;
    let offset = offset.try_into().ok().map(u64::from_be_bytes)?;
    Some(Position { epoch: u64::from_be_bytes(*epoch), offset })
}

/// Returns the error for entries that the log no longer had.
fn lost(gap: &switchboard_message::Gap) -> Error {
    Error::new(ErrorKind::Lost, gap.to_string())
}
