//! The topics of the bus that the subscribers of an engine need, and the tasks that read them.
//!
//! ```text
//! prefixes of peers    a/b   a/b/c   x          a (later)
//! tasks                a/b ◄──┘      x          a
//! ```
//!
//! A prefix is served by a task that reads it, or a shorter one. Where tasks overlap, the one with the longest prefix
//! owns a topic: entries of the others are ignored, so that each entry is delivered once. A task is kept while a
//! shorter prefix is read, since its subscribers get the entries of the longer one. Topics without subscribers are not
//! read.

use super::feed::Topics;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use switchboard_core::Result;
use switchboard_message::{Pattern, Topic};

/// Tasks of an engine. One more prefix makes it read all topics: a subscription costs the bus more than entries that no
/// peer needs.
const TASKS_MAX: usize = 64;

/// Longest name of a topic, in bytes: no topic has a longer prefix.
const NAME_BYTES_MAX: usize = 256;

/// Number of a task, for the entries that it sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TaskId(u64);

/// The topics that an engine reads. `F` is a task that reads some of them until it is dropped.
#[derive(Debug)]
pub(super) struct Interests<F> {
    /// By prefix.
    tasks: BTreeMap<Bytes, Task<F>>,
    /// The prefixes of peers.
    prefixes: HashMap<Bytes, Need>,
    /// The topic of messages with one frame, whose content prefixes are compared with, and the task that reads it.
    single_frames: Topic,
    single_frames_task: Option<(TaskId, F)>,
    next: u64,
}

#[derive(Debug)]
struct Task<F> {
    id: TaskId,
    _feed: F,
    /// Prefixes of peers that it serves.
    serves: usize,
    /// Longer prefixes that have a task of their own.
    longer: Vec<Bytes>,
}

/// A prefix of peers.
#[derive(Debug)]
struct Need {
    peers: usize,
    /// The prefix of the task that serves it; `None` if no topic can have the prefix.
    task: Option<Bytes>,
}

impl<F> Interests<F> {
    pub(super) fn new(single_frames: Topic) -> Interests<F> {
        Interests {
            tasks: BTreeMap::new(),
            prefixes: HashMap::new(),
            single_frames,
            single_frames_task: None,
            next: 0,
        }
    }

    /// Reads the topics with this prefix, for one more peer. `begin` begins a task, which misses no later entry.
    ///
    /// # Errors
    /// That of `begin`.
    pub(super) fn add(
        &mut self,
        prefix: &Bytes,
        mut begin: impl FnMut(Topics, TaskId) -> Result<F>,
    ) -> Result<()> {
        if let Some(need) = self.prefixes.get_mut(prefix) {
            need.peers = need.peers.saturating_add(1);
            return Ok(());
        }
        if self.single_frames_task.is_none() {
            let id = self.take_id();
            self.single_frames_task = Some((id, begin(Topics::One(self.single_frames.clone()), id)?));
        }
        let task = match prefix.len() > NAME_BYTES_MAX {
            true => Ok(None),
            false => self.task_for(prefix, begin).map(Some),
        };
        if task.is_err() && self.prefixes.is_empty() {
            self.single_frames_task = None;
        }
        let task = task?;
        if let Some(task) = task.as_ref().and_then(|task| self.tasks.get_mut(task)) {
            task.serves = task.serves.saturating_add(1);
        }
        self.prefixes.insert(prefix.clone(), Need { peers: 1, task });
        Ok(())
    }

    /// Returns the prefix of the task that serves `prefix`, which is begun if there is none.
    fn task_for(
        &mut self,
        prefix: &Bytes,
        mut begin: impl FnMut(Topics, TaskId) -> Result<F>,
    ) -> Result<Bytes> {
        if let Some(known) = (0..=prefix.len()).rev().find(|end| self.tasks.contains_key(&prefix[..*end])) {
            return Ok(prefix.slice(..known));
        }
        let read = if self.tasks.len() < TASKS_MAX { prefix.clone() } else { Bytes::new() };
        let id = self.take_id();
        let feed = begin(Topics::Pattern(Pattern::prefix(read.clone())), id)?;
        self.tasks.insert(read.clone(), Task { id, _feed: feed, serves: 0, longer: Vec::new() });
        self.find_longer();
        Ok(read)
    }

    fn take_id(&mut self) -> TaskId {
        self.next = self.next.wrapping_add(1);
        TaskId(self.next)
    }

    /// A peer does not need this prefix any more.
    pub(super) fn remove(&mut self, prefix: &[u8]) {
        let Some(need) = self.prefixes.get_mut(prefix) else { return };
        need.peers = need.peers.saturating_sub(1);
        if need.peers > 0 {
            return;
        }
        let task = self.prefixes.remove(prefix).and_then(|need| need.task);
        if self.prefixes.is_empty() {
            (self.single_frames_task, self.tasks) = (None, BTreeMap::new());
        } else if let Some(task) = task.and_then(|task| self.tasks.get_mut(&task)) {
            task.serves = task.serves.saturating_sub(1);
            if task.serves == 0 {
                self.end_unused();
            }
        }
    }

    /// Ends the tasks that serve no prefix, unless a task with a shorter prefix leaves its topics to them.
    fn end_unused(&mut self) {
        // A shorter prefix comes before a longer one.
        let mut kept: Vec<Bytes> = Vec::new();
        self.tasks.retain(|prefix, task| {
            let is_kept = task.serves > 0 || kept.iter().any(|shorter| prefix.starts_with(shorter));
            if is_kept {
                kept.push(prefix.clone());
            }
            is_kept
        });
        self.find_longer();
    }

    fn find_longer(&mut self) {
        let all: Vec<Bytes> = self.tasks.keys().cloned().collect();
        for (prefix, task) in &mut self.tasks {
            let is_longer = |other: &&Bytes| other.len() > prefix.len() && other.starts_with(prefix);
            task.longer = all.iter().filter(is_longer).cloned().collect();
        }
    }

    /// Returns whether an entry of a topic is to be delivered when this task has read it: others read the same topic.
    pub(super) fn is_owner(&self, id: TaskId, topic: &Topic) -> bool {
        if *topic == self.single_frames {
            return self.single_frames_task.as_ref().is_some_and(|(own, _)| *own == id);
        }
        // There are few.
        let Some(task) = self.tasks.values().find(|task| task.id == id) else { return false };
        let name = topic.name().as_bytes();
        !task.longer.iter().any(|longer| name.starts_with(longer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, collections::VecDeque, rc::Rc};

    /// A task of the test: what it reads, and the entries that it has read and not sent. They are lost when it ends.
    struct Reader {
        id: TaskId,
        topics: Topics,
        entries: VecDeque<usize>,
    }

    type Readers = Rc<RefCell<Vec<Reader>>>;

    /// Ends a task when it is dropped.
    struct End(TaskId, Readers);

    impl Drop for End {
        fn drop(&mut self) {
            self.1.borrow_mut().retain(|reader| reader.id != self.0);
        }
    }

    impl Reader {
        fn reads(&self, name: &Topic) -> bool {
            match &self.topics {
                Topics::One(topic) => topic == name,
                Topics::Pattern(pattern) => pattern.matches(name.name()),
            }
        }
    }

    /// A prefix of a peer, with the step in which it was added.
    type Needed = (usize, Bytes);

    /// An entry of the test, with the prefixes that were there when it was published.
    struct Published {
        name: Topic,
        needed: Vec<Needed>,
        delivered: usize,
    }

    /// Numbers that look random.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }
    }

    /// Publishes, subscribes and unsubscribes in any order, while tasks send what they have read at any time.
    fn run(random: &mut Random) {
        let names = ["a", "ab", "abc", "abd", "b", "ba", "zmq"].map(|name| Topic::new(name).unwrap());
        let prefixes = ["", "a", "ab", "abc", "abd", "b", "ba", "z", "x"];
        let prefixes = prefixes.map(|prefix| Bytes::from_static(prefix.as_bytes()));
        let readers = Readers::default();
        let mut interests = Interests::<End>::new(names[6].clone());
        let (mut needed, mut published) = (Vec::<Needed>::new(), Vec::<Published>::new());
        for step in 0..200 {
            match random.below(6) {
                0 => {
                    let prefix = prefixes[random.below(prefixes.len())].clone();
                    let begin = |topics, id| {
                        readers.borrow_mut().push(Reader { id, topics, entries: VecDeque::new() });
                        Ok(End(id, readers.clone()))
                    };
                    interests.add(&prefix, begin).unwrap();
                    needed.push((step, prefix));
                }
                1 if !needed.is_empty() => {
                    let (_, prefix) = needed.swap_remove(random.below(needed.len()));
                    interests.remove(&prefix);
                }
                2 | 3 => {
                    let name = names[random.below(names.len())].clone();
                    let mut readers = readers.borrow_mut();
                    let reading = readers.iter_mut().filter(|reader| reader.reads(&name));
                    reading.for_each(|reader| reader.entries.push_back(published.len()));
                    published.push(Published { name, needed: needed.clone(), delivered: 0 });
                }
                _ => {
                    let mut readers = readers.borrow_mut();
                    let Some(most) = readers.len().checked_sub(1) else { continue };
                    let reader = &mut readers[random.below(most + 1)];
                    send(reader, &interests, &mut published);
                }
            }
        }
        for reader in readers.borrow_mut().iter_mut() {
            while send(reader, &interests, &mut published) {}
        }
        for Published { name, needed: then, delivered } in &published {
            let is_single = *name == names[6];
            let matches = |prefix: &Bytes| is_single || name.name().as_bytes().starts_with(prefix);
            let is_needed = then.iter().any(|need| matches(&need.1) && needed.contains(need));
            let is_right = if is_needed { *delivered == 1 } else { *delivered <= 1 };
            assert!(is_right, "an entry of {} was delivered {delivered} times", name.name());
        }
        needed.iter().for_each(|(_, prefix)| interests.remove(prefix));
        assert!(readers.borrow().is_empty(), "no task without a subscriber");
    }

    /// Sends the next entry of a task; returns whether there was one.
    fn send(reader: &mut Reader, interests: &Interests<End>, published: &mut [Published]) -> bool {
        let Some(entry) = reader.entries.pop_front() else { return false };
        let entry = &mut published[entry];
        entry.delivered += usize::from(interests.is_owner(reader.id, &entry.name));
        true
    }

    #[test]
    fn each_entry_is_delivered_once_while_prefixes_come_and_go() {
        for seed in 0..300 {
            run(&mut Random(seed));
        }
    }

    #[test]
    fn the_number_of_tasks_is_bounded() {
        let mut interests = Interests::<TaskId>::new(Topic::new("zmq").unwrap());
        let prefixes: Vec<Bytes> = (0..1000).map(|at| format!("{at:04}").into()).collect();
        let mut begun = 0;
        for prefix in &prefixes {
            let begin = |_, id| {
                begun += 1;
                Ok(id)
            };
            interests.add(prefix, begin).unwrap();
        }
        // One for the messages without a topic, and one for all topics.
        assert_eq!((begun, interests.tasks.len()), (TASKS_MAX + 2, TASKS_MAX + 1));
        prefixes.iter().for_each(|prefix| interests.remove(prefix));
        assert!(interests.tasks.is_empty() && interests.prefixes.is_empty());
    }
}
