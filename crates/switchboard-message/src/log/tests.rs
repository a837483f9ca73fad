mod drops;
mod edges;

use super::*;
use std::{task::Waker, time::Duration};
use switchboard_wire::{Code, Codec};

const SECOND: u64 = 1_000_000_000;

/// A log with one clock, whose subscriptions are read by hand.
struct Fixture {
    log: Log,
    now: u64,
}

struct Subscriber {
    member: Arc<Member>,
    attached: Attached,
    gaps: Vec<Gap>,
}

fn log(rules: &[(&str, TopicOptions)]) -> Fixture {
    with_limits(Limits::default(), rules)
}

fn with_limits(limits: Limits, rules: &[(&str, TopicOptions)]) -> Fixture {
    let rules = rules.iter().map(|(pattern, options)| (Pattern::new(pattern).unwrap(), *options)).collect();
    let mut epoch = 0;
    let random = || {
        epoch += 1000;
        epoch
    };
    Fixture { log: Log::new(limits, rules, random), now: SECOND }
}

fn ack(attempts_max: u32, dead_letters: Option<&str>) -> AckOptions {
    let dead_letters = dead_letters.map(|name| Topic::new(name).unwrap());
    AckOptions { wait: Duration::from_secs(30), attempts_max, dead_letters }
}

impl Fixture {
    fn publish(&self, topic: &str, text: &str) -> Position {
        self.publish_with(topic, text, |_| {}).unwrap().position
    }

    fn publish_all(&self, topic: &str, texts: &[&str]) {
        texts.iter().for_each(|text| _ = self.publish(topic, text));
    }

    fn publish_keyed(&self, topic: &str, key: &str, text: &str) -> Position {
        let key = key.to_owned();
        self.publish_with(topic, text, |publication| publication.key = key.into()).unwrap().position
    }

    fn publish_with(
        &self,
        topic: &str,
        text: &str,
        change: impl FnOnce(&mut Publication),
    ) -> Result<Appended, AppendError> {
        let mut publication = Publication::new(Codec::Raw, text.to_owned());
        change(&mut publication);
        let limits = self.log.limits();
        let entry = publication.into_entry(|| self.now, limits.entry_bytes_max, limits.key_bytes_max)?;
        self.log.append(topic.into(), &mut smallvec![entry], self.now)
    }

    fn subscribe(&self, pattern: &str, start: Start) -> Subscriber {
        self.subscribe_as(pattern, start, None, None).unwrap()
    }

    fn group(&self, pattern: &str, name: &str, ack: Option<AckOptions>) -> Subscriber {
        self.subscribe_as(pattern, Start::Head, Some((name, false)), ack).unwrap()
    }

    fn subscribe_as(
        &self,
        pattern: &str,
        start: Start,
        group: Option<(&str, bool)>,
        ack: Option<AckOptions>,
    ) -> Result<Subscriber> {
        let pattern = Pattern::new(pattern).unwrap();
        let source = pattern.topic().map_or(Source::Pattern(pattern), Source::Topic);
        let group = group.map(|(name, is_durable)| GroupKey {
            name: name.into(),
            source: source.clone(),
            is_durable,
        });
        let member = Arc::<Member>::default();
        let attach = Attach { source, start, group, ack };
        let attachment = self.log.attach(&attach, &member, self.now)?;
        let gaps = match attachment.outcome {
            Outcome::Gaps(gaps) => gaps,
            _ => Vec::new(),
        };
        Ok(Subscriber { member, attached: attachment.sets, gaps })
    }

    fn unsubscribe(&self, subscriber: &Subscriber) {
        self.log.detach(&subscriber.attached, &subscriber.member, self.now);
    }

    fn take(&self, subscriber: &Subscriber, entries: usize) -> Vec<Taken> {
        let mut batch = VecDeque::new();
        for attached in &subscriber.attached {
            while batch.len() < entries {
                let (before, size) =
                    (batch.len(), BatchSize { entries: entries - batch.len(), bytes: 1 << 20 });
                self.log.take(*attached, &subscriber.member, size, self.now, &mut batch, &mut Removed::new());
                if batch.len() == before {
                    break;
                }
            }
        }
        batch.into()
    }

    /// Reads all, as texts; a gap is its range and reason.
    fn read(&self, subscriber: &Subscriber) -> Vec<String> {
        self.take(subscriber, 1_000).iter().map(text).collect()
    }
}

fn text(taken: &Taken) -> String {
    match taken {
        Taken::Entry(taken) => String::from_utf8(taken.entry.bytes().to_vec()).unwrap(),
        Taken::Gap(gap) => format!("{}..{} {}", gap.range.start, gap.range.end, gap.reason),
        Taken::Closed(status) => status.code().name().to_owned(),
    }
}

fn token(taken: &Taken) -> Token {
    let Taken::Entry(taken) = taken else { panic!("{taken:?}") };
    taken.token().expect("a delivery to be acknowledged")
}

fn failed(result: Result<Appended, AppendError>) -> Status {
    match result {
        Err(AppendError::Failed(status)) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn own_cursors_receive_every_entry_in_order() {
    let fixture = log(&[]);
    let (first, second) = (fixture.subscribe("a", Start::Head), fixture.subscribe("a", Start::Head));
    assert_eq!(fixture.publish("a", "1").offset, 1);
    assert_eq!(fixture.publish("a", "2").offset, 2);
    fixture.publish("b", "other");
    assert_eq!(fixture.read(&first), ["1", "2"]);
    let late = fixture.subscribe("a", Start::Head);
    fixture.publish("a", "3");
    assert_eq!(fixture.read(&first), ["3"]);
    assert_eq!(fixture.read(&second), ["1", "2", "3"]);
    assert_eq!(fixture.read(&late), ["3"]);
    assert_eq!((fixture.log.stats().entries, fixture.log.stats().bytes), (0, 0));
}

#[test]
fn history_is_limited_by_count_bytes_and_age() {
    let options = TopicOptions::new().history(3, Duration::from_secs(10)).history_bytes(2_000);
    let mut fixture = log(&[("a", options)]);
    for text in ["1", "2", "3", "4"] {
        fixture.publish("a", text);
    }
    let [all, two] = [9, 2].map(|entries| fixture.subscribe("a", Start::Last(entries)));
    assert_eq!(fixture.read(&all), ["2", "3", "4"]);
    assert_eq!(fixture.read(&two), ["3", "4"]);
    [all, two].iter().for_each(|subscriber| fixture.unsubscribe(subscriber));
    fixture.publish("a", &"x".repeat(1_700));
    assert_eq!(fixture.log.topic_stats("a".into()).unwrap().entries, 2);
    fixture.now += 11 * SECOND;
    assert_eq!(fixture.read(&fixture.subscribe("a", Start::Last(9))), [""; 0]);
    assert_eq!(fixture.log.stats().bytes, 0);
}

#[test]
fn a_start_after_a_position_reports_the_exact_gap() {
    let options = TopicOptions::new().history(2, Duration::MAX);
    let fixture = log(&[("a", options)]);
    let positions: Vec<Position> = ["1", "2", "3", "4"].map(|text| fixture.publish("a", text)).into();
    let after = |position| {
        let subscriber = fixture.subscribe("a", Start::After(position));
        let gaps = subscriber.gaps.iter().map(|gap| text(&Taken::Gap(gap.clone())));
        (gaps.collect::<Vec<_>>(), fixture.read(&subscriber))
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(after(positions[0]), (texts(&["2..3 expired"]), texts(&["3", "4"])));
    assert_eq!(after(positions[1]), (vec![], texts(&["3", "4"])));
    assert_eq!(after(positions[3]), (vec![], vec![]));
    let other = Position { epoch: 1, ..positions[3] };
    assert_eq!(after(other), (texts(&["1..3 epoch"]), texts(&["3", "4"])));
    let ahead = Position { offset: 9, ..positions[3] };
    assert_eq!(after(ahead), (texts(&["5..10 lost"]), vec![]));
}

#[test]
fn a_start_since_a_time_is_complete_while_the_history_contains_it() {
    let options = TopicOptions::new().history(2, Duration::MAX);
    let mut fixture = log(&[("a", options)]);
    for text in ["1", "2", "3"] {
        fixture.publish("a", text);
        fixture.now += SECOND;
    }
    let since = fixture.subscribe("a", Start::Since(2 * SECOND));
    assert_eq!((since.gaps.len(), fixture.read(&since)), (0, vec!["2".to_owned(), "3".to_owned()]));
    let since = fixture.subscribe("a", Start::Since(SECOND));
    assert_eq!(since.gaps[0].reason, GapReason::Expired);
    assert_eq!(fixture.read(&since), ["2", "3"]);
}

#[test]
fn a_lagged_cursor_receives_the_gap_and_continues() {
    let fixture = log(&[("a", TopicOptions::new().backlog(3))]);
    let slow = fixture.subscribe("a", Start::Head);
    for text in ["1", "2", "3", "4", "5"] {
        fixture.publish("a", text);
    }
    assert_eq!(fixture.read(&slow), ["1..3 lagged", "3", "4", "5"]);
    assert_eq!(fixture.log.topic_stats("a".into()).unwrap().lagged, 2);
}

#[test]
fn a_slow_cursor_is_closed_where_the_topic_says_so() {
    let fixture = log(&[("a", TopicOptions::new().backlog(2).slow_reader(SlowReader::Close))]);
    let slow = fixture.subscribe("a", Start::Head);
    fixture.publish_all("a", &["1", "2", "3"]);
    assert_eq!(
        fixture.take(&slow, 2).iter().map(text).collect::<Vec<_>>(),
        ["1..2 lagged", "resource_exhausted"]
    );
    fixture.unsubscribe(&slow);
    assert_eq!(fixture.log.stats(), BusStats::default());
}

#[test]
fn a_full_backlog_keeps_the_newest_entry_of_each_key() {
    let fixture = log(&[("a", TopicOptions::new().backlog(3).slow_reader(SlowReader::KeepNewest))]);
    let (fast, slow) = (fixture.subscribe("a", Start::Head), fixture.subscribe("a", Start::Head));
    for (key, text) in [("x", "x1"), ("x", "x2"), ("y", "y1"), ("x", "x3"), ("y", "y2"), ("z", "z1")] {
        fixture.publish_keyed("a", key, text);
        assert_eq!(fixture.read(&fast), [text]);
    }
    assert_eq!(fixture.read(&slow), ["x3", "y2", "z1"]);
    for key in ["a", "b", "c", "d"] {
        fixture.publish_keyed("a", key, key);
    }
    assert_eq!(fixture.read(&slow), ["7..8 lagged", "b", "c", "d"]);
}

#[test]
fn a_conflating_topic_keeps_one_entry_per_key() {
    let fixture = log(&[("a", TopicOptions::new().history(100, Duration::MAX).conflate())]);
    for round in 0..1_000 {
        fixture.publish_keyed("a", ["x", "y", "z"][round % 3], &round.to_string());
    }
    let stats = fixture.log.topic_stats("a".into()).unwrap();
    assert_eq!((stats.entries, stats.conflated), (3, 997));
    assert_eq!(fixture.read(&fixture.subscribe("a", Start::Last(9))), ["997", "998", "999"]);
}

#[test]
fn a_known_publication_id_returns_the_first_position() {
    let mut limits = Limits::default();
    (limits.dedup_ids_max, limits.dedup_window) = (2, Duration::from_secs(60));
    let mut fixture = with_limits(limits, &[]);
    let subscriber = fixture.subscribe("a", Start::Head);
    let publish = |fixture: &Fixture, id: &'static str| {
        fixture.publish_with("a", id, |publication| publication.id = id.into()).unwrap().position.offset
    };
    assert_eq!(["i", "j", "i"].map(|id| publish(&fixture, id)), [1, 2, 1]);
    fixture.now += 61 * SECOND;
    assert_eq!(publish(&fixture, "i"), 3);
    // More ids than the topic remembers.
    assert_eq!(["j", "k", "i"].map(|id| publish(&fixture, id)), [4, 5, 6]);
    assert_eq!(fixture.read(&subscriber), ["i", "j", "i", "j", "k", "i"]);
}

#[test]
fn publishers_wait_where_the_topic_says_so() {
    let options = TopicOptions::new().backlog(2).slow_reader(SlowReader::Wait(Duration::from_secs(1)));
    let fixture = log(&[("a", options)]);
    let slow = fixture.subscribe("a", Start::Head);
    assert_eq!(fixture.log.credit("a".into(), fixture.now).unwrap(), 2);
    fixture.publish_all("a", &["1", "2"]);
    assert!(matches!(fixture.publish_with("a", "3", |_| {}), Err(AppendError::Wait(..))));
    assert!(matches!(fixture.log.credit("a".into(), fixture.now), Err(AppendError::Wait(..))));
    assert_eq!(fixture.take(&slow, 1).len(), 1);
    assert_eq!(fixture.log.credit("a".into(), fixture.now).unwrap(), 1);
    fixture.publish("a", "3");
    assert_eq!(fixture.read(&slow), ["2", "3"]);
}

#[test]
fn expired_entries_are_a_gap() {
    let mut fixture = log(&[]);
    let subscriber = fixture.subscribe("a", Start::Head);
    fixture.publish("a", "1");
    for text in ["2", "3"] {
        let period = Some(Duration::from_secs(1));
        fixture.publish_with("a", text, |publication| publication.expires_in = period).unwrap();
    }
    fixture.publish("a", "4");
    fixture.now += SECOND;
    assert_eq!(fixture.read(&subscriber), ["1", "2..4 expired", "4"]);
}

#[test]
fn patterns_receive_from_topics_of_now_and_later() {
    let fixture = log(&[("quotes/>", TopicOptions::new().history(5, Duration::MAX))]);
    fixture.publish("quotes/a", "a1");
    let (all, kept) =
        (fixture.subscribe("quotes/*", Start::Head), fixture.subscribe("quotes/>", Start::Last(5)));
    for (topic, text) in [("quotes/a", "a2"), ("quotes/b", "b1"), ("quotes/b/c", "c1"), ("quotes/a", "a3")] {
        fixture.publish(topic, text);
    }
    let sorted = |mut texts: Vec<String>| {
        texts.sort_unstable();
        texts
    };
    assert_eq!(sorted(fixture.read(&all)), ["a2", "a3", "b1"]);
    assert_eq!(sorted(fixture.read(&kept)), ["a1", "a2", "a3", "b1", "c1"]);
    fixture.unsubscribe(&all);
    fixture.unsubscribe(&kept);
    assert_eq!(fixture.log.stats().cursors, 0);
}

#[test]
fn a_pattern_reads_a_shard_in_its_order() {
    let fixture = log(&[]);
    let subscriber = fixture.subscribe(">", Start::Head);
    let topics: Vec<String> = (0..200).map(|topic| format!("t{topic}")).collect();
    for round in 0..5 {
        for topic in &topics {
            fixture.publish(topic, &format!("{round}"));
        }
    }
    for attached in &subscriber.attached {
        let mut batch = VecDeque::new();
        let size = BatchSize { entries: 10_000, bytes: 1 << 20 };
        fixture.log.take(*attached, &subscriber.member, size, fixture.now, &mut batch, &mut Removed::new());
        let rounds: Vec<String> = batch.iter().map(text).collect();
        assert!(rounds.is_sorted() && !rounds.is_empty(), "{rounds:?}");
    }
}

#[test]
fn each_entry_of_a_group_goes_to_one_member() {
    let fixture = log(&[]);
    let members = [(); 2].map(|()| fixture.group("a", "workers", None));
    for text in ["1", "2", "3", "4"] {
        fixture.publish("a", text);
    }
    let taken: Vec<String> =
        (0..4).flat_map(|at| fixture.take(&members[at % 2], 1)).map(|taken| text(&taken)).collect();
    assert_eq!(taken, ["1", "2", "3", "4"]);
    assert!(fixture.take(&members[0], 1).is_empty());
    members.iter().for_each(|member| fixture.unsubscribe(member));
    assert_eq!(fixture.log.stats(), BusStats::default());
}

#[test]
fn a_waiting_member_is_woken_per_entry() {
    let fixture = log(&[]);
    let members = [(); 3].map(|()| fixture.group("a", "workers", None));
    let woken = || members.each_ref().map(|member| member.member.take_shards(Waker::noop()) != 0);
    members.iter().for_each(|member| assert!(fixture.take(member, 1).is_empty()));
    fixture.publish("a", "1");
    assert_eq!(woken(), [true, false, false]);
    fixture.publish("a", "2");
    assert_eq!(woken(), [false, true, false]);
}

#[test]
fn unacknowledged_entries_are_redelivered_and_then_dead_letters() {
    let mut fixture = log(&[]);
    let dead = fixture.subscribe("dead", Start::Head);
    let worker = fixture.group("a", "workers", Some(ack(2, Some("dead"))));
    fixture.publish_all("a", &["1", "2"]);
    let taken = fixture.take(&worker, 2);
    assert!(fixture.log.acknowledge(token(&taken[0]), fixture.now));
    assert!(!fixture.log.acknowledge(token(&taken[0]), fixture.now), "a second acknowledgement");
    fixture.now += 29 * SECOND;
    assert!(fixture.take(&worker, 1).is_empty());
    fixture.now += SECOND;
    let again = fixture.take(&worker, 2);
    let Taken::Entry(entry) = &again[0] else { panic!() };
    assert_eq!((again.len(), text(&again[0]), entry.attempt), (1, "2".to_owned(), 2));
    assert_eq!(worker.member.unacknowledged(), 1);
    fixture.now += 30 * SECOND;
    assert!(fixture.take(&worker, 1).is_empty());
    assert_eq!(fixture.read(&dead), ["2"]);
    assert_eq!((worker.member.unacknowledged(), fixture.log.stats().dead_letters), (0, 1));
}

#[test]
fn a_late_acknowledgement_ends_the_redelivery() {
    let mut fixture = log(&[]);
    let members = [(); 2].map(|()| fixture.group("a", "workers", Some(ack(9, None))));
    fixture.publish("a", "1");
    let first = fixture.take(&members[0], 1);
    fixture.now += 30 * SECOND;
    let second = fixture.take(&members[1], 1);
    assert_eq!(text(&second[0]), "1");
    assert!(fixture.log.acknowledge(token(&first[0]), fixture.now));
    fixture.now += 60 * SECOND;
    assert!(fixture.take(&members[0], 1).is_empty());
    assert_eq!(members[1].member.unacknowledged(), 0);
}

#[test]
fn entries_of_a_member_that_left_go_to_the_others() {
    let fixture = log(&[]);
    let members = [(); 2].map(|()| fixture.group("jobs/>", "workers", Some(ack(9, None))));
    for topic in ["jobs/1", "jobs/2", "jobs/3"] {
        fixture.publish(topic, topic);
    }
    assert_eq!(fixture.take(&members[0], 3).len(), 3);
    fixture.unsubscribe(&members[0]);
    assert_eq!(fixture.take(&members[1], 9).len(), 3);
    let refused = fixture.subscribe_as("jobs/>", Start::Head, Some(("workers", false)), Some(ack(8, None)));
    let status = refused.err().unwrap();
    assert_eq!(status.code(), Code::FailedPrecondition);
    fixture.unsubscribe(&members[1]);
    assert_eq!(fixture.log.stats(), BusStats::default());
}

#[test]
fn a_durable_cursor_continues_after_its_acknowledgements() {
    let options = TopicOptions::new().history(4, Duration::MAX);
    let fixture = log(&[("a", options)]);
    let durable =
        || fixture.subscribe_as("a", Start::Head, Some(("device", true)), Some(ack(9, None))).unwrap();
    let first = durable();
    fixture.publish_all("a", &["1", "2", "3"]);
    let taken = fixture.take(&first, 2);
    assert!(fixture.log.acknowledge(token(&taken[1]), fixture.now));
    fixture.unsubscribe(&first);
    assert_eq!(fixture.log.stats().cursors, 0);
    fixture.publish("a", "4");
    let second = durable();
    assert_eq!((second.gaps.len(), fixture.read(&second)), (0, ["1", "3", "4"].map(String::from).into()));
    fixture.unsubscribe(&second);
    fixture.publish_all("a", &["5", "6"]);
    let third = durable();
    assert_eq!(fixture.take(&third, 1).iter().map(text).collect::<Vec<_>>(), ["1..2 expired"]);
    assert_eq!(fixture.read(&third), ["3", "4", "5", "6"]);
    fixture.unsubscribe(&third);
    assert_eq!(fixture.log.stats().durable_cursors, 1);
    let source = Source::Topic(Topic::new("a").unwrap());
    assert!(fixture.log.remove_durable(&GroupKey { name: "device".into(), source, is_durable: true }));
    assert_eq!(fixture.log.stats().durable_cursors, 0);
}

#[test]
fn every_limit_is_named_in_its_error() {
    let mut limits = Limits::default();
    (limits.entry_bytes_max, limits.key_bytes_max, limits.shard_bytes_max) = (100, 8, 600);
    (limits.topics_max, limits.subscriptions_max, limits.durable_cursors_max) = (1, 2, 1);
    let mut fixture = with_limits(limits, &[("a", TopicOptions::new().history(9, Duration::from_secs(5)))]);
    let named = |result, limit: &str| {
        let status = failed(result);
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains(limit), "{status}");
    };
    named(fixture.publish_with("a", &"x".repeat(101), |_| {}), "entry_bytes_max=100");
    named(
        fixture.publish_with("a", "", |publication| publication.id = "123456789".into()),
        "key_bytes_max=8",
    );
    (0..4).for_each(|_| _ = fixture.publish("a", "text"));
    named(fixture.publish_with("a", "text", |_| {}), "shard_bytes_max=600");
    named(fixture.publish_with("b", "text", |_| {}), "topics_max=1");
    // Expired entries make room.
    fixture.now += 6 * SECOND;
    fixture.publish("a", "text");
    fixture.now += 6 * SECOND;
    fixture.publish("b", "text");
    let durable = |name| fixture.subscribe_as("b", Start::Head, Some((name, true)), Some(ack(9, None)));
    let first = durable("x").unwrap();
    let status = durable("y").err().unwrap();
    assert!(status.message().contains("durable_cursors_max=1"), "{status}");
    let second = fixture.subscribe("b", Start::Head);
    let status = fixture.subscribe_as("b", Start::Head, None, None).err().unwrap();
    assert!(status.message().contains("subscriptions_max=2"), "{status}");
    [first, second].iter().for_each(|subscriber| fixture.unsubscribe(subscriber));
    assert_eq!((fixture.log.stats().subscriptions, fixture.log.stats().entries), (0, 0));
}

#[test]
fn a_backlog_is_limited_by_bytes() {
    let fixture = log(&[("a", TopicOptions::new().backlog_bytes(1_100))]);
    let slow = fixture.subscribe("a", Start::Head);
    let large = "x".repeat(400);
    fixture.publish_all("a", &["1", &large, &large]);
    assert_eq!(fixture.take(&slow, 1).iter().map(text).collect::<Vec<_>>(), ["1..2 lagged"]);
    // A single entry is accepted whatever its size.
    fixture.publish("a", &"y".repeat(5_000));
    assert_eq!(fixture.read(&slow)[0], "2..4 lagged");
    assert_eq!(fixture.log.stats().bytes, 0);
}

#[test]
fn old_durable_cursors_are_removed_at_their_limit() {
    let mut limits = Limits::default();
    (limits.durable_cursors_max, limits.durable_age_max) = (1, Duration::from_secs(60));
    let mut fixture = with_limits(limits, &[]);
    let durable = |fixture: &Fixture, name| {
        fixture.subscribe_as("a", Start::Head, Some((name, true)), Some(ack(9, None)))
    };
    let first = durable(&fixture, "first").unwrap();
    fixture.now += 61 * SECOND;
    assert!(durable(&fixture, "second").is_err(), "the first is connected");
    fixture.unsubscribe(&first);
    assert!(durable(&fixture, "second").is_err(), "the first is not old");
    fixture.now += 61 * SECOND;
    let second = durable(&fixture, "second").unwrap();
    assert_eq!(fixture.log.stats().durable_cursors, 1);
    fixture.unsubscribe(&second);
}

#[test]
fn topics_without_content_are_removed() {
    let fixture = log(&[]);
    let subscriber = fixture.subscribe("a", Start::Head);
    fixture.unsubscribe(&subscriber);
    assert_eq!(fixture.log.stats().topics, 0);
    for topic in 0..100_000 {
        fixture.publish(&format!("t/{topic}"), "text");
    }
    assert!(fixture.log.stats().topics <= SHARDS * 64, "{:?}", fixture.log.stats());
    fixture.log.remove_unused(fixture.now);
    assert_eq!(fixture.log.stats(), BusStats::default());
}

#[test]
fn patterns_do_not_keep_topics_that_they_have_read() {
    let fixture = log(&[("kept/*", TopicOptions::new().history(10, Duration::MAX))]);
    let subscriber = fixture.subscribe(">", Start::Head);
    let group = fixture.group("replies/*", "workers", None);
    for reply in 0..10_000 {
        let topic = format!("replies/{reply}");
        fixture.publish(&topic, "text");
        assert_eq!(
            (fixture.read(&subscriber), fixture.read(&group)),
            (vec!["text".to_owned()], vec!["text".to_owned()])
        );
    }
    assert!(fixture.log.stats().topics <= SHARDS * 64, "{:?}", fixture.log.stats());
    fixture.publish("replies/unread", "text");
    fixture.publish("kept/a", "text");
    fixture.read(&subscriber);
    fixture.log.remove_unused(fixture.now);
    assert_eq!(fixture.log.stats().topics, 2, "one has an entry for the group, the other one a history");
    // A topic that is there again has the cursors of the patterns.
    fixture.publish("replies/0", "again");
    assert_eq!(fixture.read(&subscriber), ["again"]);
    let mut read = fixture.read(&group);
    read.sort();
    assert_eq!(read, ["again", "text"]);
    fixture.unsubscribe(&subscriber);
    fixture.unsubscribe(&group);
    let stats = fixture.log.stats();
    assert_eq!((stats.cursors, stats.subscriptions), (0, 0));
}
