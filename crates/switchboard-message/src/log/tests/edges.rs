//! Cases at the edges: other shards, positions from outside, members that left.

use super::*;

#[test]
fn a_start_after_any_offset_is_a_gap() {
    let fixture = log(&[]);
    let _keeper = fixture.subscribe("t", Start::Head);
    let first = fixture.publish("t", "1");
    for offset in [u64::MAX, u64::MAX - 1, u64::MAX] {
        let subscriber = fixture.subscribe("t", Start::After(Position { offset, ..first }));
        let gap = &subscriber.gaps[0];
        assert_eq!((gap.reason, gap.range.start, gap.missing), (GapReason::Lost, 2, Some(gap.range.end - 2)));
    }
    fixture.publish("t", "2");
}

/// Appends entries with these texts in one batch.
fn publish_batch(fixture: &Fixture, topic: &str, texts: &[&str]) -> Result<Appended, AppendError> {
    let entries = texts.iter().map(|text| {
        let publication = Publication::new(Codec::Raw, (*text).to_owned());
        publication.into_entry(|| fixture.now, 1 << 20, 256).unwrap()
    });
    fixture.log.append(topic.into(), &mut entries.collect(), fixture.now)
}

#[test]
fn publishers_wait_for_cursors_inside_the_history() {
    let options = TopicOptions::new().history(4, Duration::MAX).backlog(2);
    let fixture = log(&[("t", options.slow_reader(SlowReader::Wait(Duration::from_secs(1))))]);
    fixture.publish_all("t", &["1", "2", "3", "4"]);
    let reader = fixture.subscribe("t", Start::Last(3));
    assert_eq!(fixture.log.credit("t".into(), fixture.now).unwrap(), 1);
    let refused = publish_batch(&fixture, "t", &["5", "6"]);
    assert!(matches!(refused, Err(AppendError::Wait(..))), "{refused:?}");
    publish_batch(&fixture, "t", &["5"]).unwrap();
    assert_eq!(fixture.read(&reader), ["2", "3", "4", "5"]);
    assert_eq!(fixture.log.credit("t".into(), fixture.now).unwrap(), 4);
    publish_batch(&fixture, "t", &["6", "7", "8", "9"]).unwrap();
    assert_eq!(fixture.read(&reader), ["6", "7", "8", "9"]);
}

#[test]
fn publishers_of_large_entries_wait_for_cursors_inside_the_history() {
    let options = TopicOptions::new().history(100, Duration::MAX).history_bytes(1_000).backlog_bytes(0);
    let fixture = log(&[("t", options.slow_reader(SlowReader::Wait(Duration::from_secs(1))))]);
    fixture.publish_all("t", &["1", "2", "3", "4"]);
    let reader = fixture.subscribe("t", Start::Last(3));
    let refused = fixture.publish_with("t", &"x".repeat(700), |_| {});
    assert!(matches!(refused, Err(AppendError::Wait(..))), "{refused:?}");
    assert_eq!(fixture.read(&reader), ["2", "3", "4"]);
    fixture.publish("t", &"x".repeat(700));
    assert_eq!(fixture.read(&reader), ["x".repeat(700)]);
}

#[test]
fn a_refused_subscription_leaves_no_durable_cursor() {
    let limits = Limits { durable_cursors_max: 20, ..Limits::default() };
    let fixture = with_limits(limits, &[]);
    let durable = |name| fixture.subscribe_as(">", Start::Head, Some((name, true)), Some(ack(5, None)));
    let first = durable("first").unwrap();
    assert_eq!(durable("second").err().map(|status| status.code()), Some(Code::ResourceExhausted));
    assert_eq!(fixture.log.stats().durable_cursors, 16);
    fixture.unsubscribe(&first);
    assert_eq!(durable("second").err().map(|status| status.code()), Some(Code::ResourceExhausted));
    let again = durable("first").unwrap();
    fixture.unsubscribe(&again);
    assert_eq!(fixture.log.stats().durable_cursors, 16);
}

#[test]
fn gaps_of_a_durable_cursor_that_reads_nothing_are_joined_by_topic() {
    let fixture = log(&[]);
    let topics: Vec<String> = (0..64).map(|topic| format!("t/{topic}")).collect();
    let connect = || {
        let group = Some(("phone", true));
        fixture.subscribe_as("t/*", Start::Head, group, Some(ack(5, None))).unwrap()
    };
    let phone = connect();
    topics.iter().for_each(|topic| _ = fixture.publish(topic, "0"));
    assert_eq!(fixture.take(&phone, 64).len(), 64);
    fixture.unsubscribe(&phone);
    for _ in 0..10 {
        topics.iter().for_each(|topic| _ = fixture.publish(topic, "1"));
        fixture.unsubscribe(&connect());
    }
    let gaps =
        |shard| fixture.log.shard(shard).parked.values().map(|parked| parked.gaps.len()).sum::<usize>();
    // One for the entry that was not acknowledged and one for those after it, which may follow it directly.
    let held: usize = (0..SHARDS as u32).map(gaps).sum();
    assert!((64..=128).contains(&held), "{held}");
}

#[test]
fn dead_letters_of_several_topics_may_have_the_same_id() {
    let fixture = log(&[]);
    let letters = fixture.subscribe("dead", Start::Head);
    let workers = fixture.group("orders/*", "workers", Some(ack(1, Some("dead"))));
    for topic in ["orders/a", "orders/b"] {
        fixture.publish_with(topic, topic, |publication| publication.id = "1".into()).unwrap();
    }
    for taken in fixture.take(&workers, 2) {
        assert!(fixture.log.reject(token(&taken), fixture.now));
    }
    let mut received = fixture.read(&letters);
    received.sort();
    assert_eq!(received, ["orders/a", "orders/b"]);
}

#[test]
fn a_late_rejection_does_not_take_the_entry_from_its_next_member() {
    let mut fixture = log(&[]);
    let members = [(); 2].map(|()| fixture.group("t", "g", Some(ack(2, None))));
    fixture.publish("t", "job");
    let first = token(&fixture.take(&members[0], 1)[0]);
    fixture.now += 31 * SECOND;
    let second = token(&fixture.take(&members[1], 1)[0]);
    assert!(!fixture.log.reject(first, fixture.now));
    assert_eq!((members[1].member.unacknowledged(), fixture.log.stats().dead_letters), (1, 0));
    assert!(fixture.log.acknowledge(second, fixture.now));
}

#[test]
fn a_key_does_not_keep_the_message_of_a_replaced_entry() {
    struct Frame {
        _holder: Arc<()>,
    }
    impl AsRef<[u8]> for Frame {
        fn as_ref(&self) -> &[u8] {
            b"key and message"
        }
    }
    for options in [TopicOptions::new().conflate(), TopicOptions::new().slow_reader(SlowReader::KeepNewest)] {
        let fixture = log(&[("t", options.history(1, Duration::MAX).backlog(1))]);
        let frames = [(); 2].map(|()| Arc::new(()));
        for frame in &frames {
            let frame = bytes::Bytes::from_owner(Frame { _holder: frame.clone() });
            fixture.publish_with("t", "", |publication| publication.key = frame.slice(..3)).unwrap();
        }
        assert_eq!(frames.map(|frame| Arc::strong_count(&frame)), [1, 2], "{options:?}");
    }
}

#[test]
fn old_durable_cursors_of_other_shards_are_removed_at_their_limit() {
    let limits = Limits { durable_cursors_max: 1, ..Limits::default() };
    let mut fixture = with_limits(limits, &[]);
    for index in 0..32 {
        let group = Some(("phone", true));
        let topic = format!("inbox/{index}");
        let phone = fixture.subscribe_as(&topic, Start::Head, group, Some(ack(5, None))).unwrap();
        fixture.unsubscribe(&phone);
        fixture.now += 8 * 86_400 * SECOND;
    }
    assert_eq!(fixture.log.stats().durable_cursors, 1);
}

#[test]
fn credit_removes_unused_topics_at_their_limit() {
    let fixture = with_limits(Limits { topics_max: 1, ..Limits::default() }, &[]);
    fixture.publish("a", "1");
    assert_eq!(fixture.log.credit("b".into(), fixture.now).unwrap(), 1_024);
}

#[test]
fn an_old_entry_is_delivered_only_while_a_cursor_keeps_it() {
    let options = TopicOptions::new().history(9, Duration::from_secs(5));
    let mut fixture = log(&[("t", options)]);
    let slow = fixture.subscribe("t", Start::Head);
    fixture.publish("t", "1");
    fixture.now += 6 * SECOND;
    let late = fixture.subscribe("t", Start::Last(9));
    assert_eq!(fixture.read(&late), ["1"]);
    assert_eq!(fixture.read(&slow), ["1"]);
    let later = fixture.subscribe("t", Start::Last(9));
    assert_eq!(fixture.read(&later).len(), 0);
}

#[test]
fn a_group_on_a_topic_that_closes_slow_readers_receives_the_gap() {
    let options = TopicOptions::new().backlog(1).slow_reader(SlowReader::Close);
    let fixture = log(&[("t", options)]);
    let member = fixture.group("t", "g", None);
    fixture.publish_all("t", &["1", "2", "3"]);
    assert_eq!(fixture.read(&member), ["1..3 lagged", "3"]);
}

#[test]
fn a_redelivery_that_was_acknowledged_or_rejected_twice_counts_once() {
    let fixture = log(&[]);
    let members = [(); 2].map(|()| fixture.group("t", "g", Some(ack(9, None))));
    fixture.publish("t", "job");
    let first = token(&fixture.take(&members[0], 1)[0]);
    assert!(fixture.log.reject(first, fixture.now) && !fixture.log.reject(first, fixture.now));
    let second = token(&fixture.take(&members[1], 1)[0]);
    fixture.unsubscribe(&members[1]);
    assert!(!fixture.log.reject(second, fixture.now));
    assert!(fixture.log.acknowledge(second, fixture.now) && !fixture.log.acknowledge(first, fixture.now));
    assert_eq!(fixture.read(&members[0]).len(), 0);
    assert_eq!(members.map(|member| member.member.unacknowledged()), [0, 0]);
}

#[test]
fn publication_ids_count_in_the_bytes_of_their_shard() {
    let limits = Limits { shard_bytes_max: 20_000, ..Limits::default() };
    let mut fixture = with_limits(limits, &[]);
    let publish = |fixture: &Fixture, id: usize| {
        let id = format!("{id:0200}");
        fixture.publish_with("t", "", |publication| publication.id = id.into())
    };
    // Nothing keeps the entries: the ids alone are the memory.
    let accepted = (0..1_000).take_while(|id| publish(&fixture, *id).is_ok()).count();
    assert!((20..100).contains(&accepted), "{accepted}");
    let stats = fixture.log.stats();
    assert!(stats.entries == 0 && stats.bytes > 15_000 && stats.bytes <= 20_000, "{stats:?}");
    assert_eq!(fixture.log.topic_stats("t".into()).unwrap().bytes, stats.bytes);
    let refused = failed(publish(&fixture, 1_000));
    assert!(refused.message().contains("shard_bytes_max=20000"), "{refused}");
    // A known id needs no space.
    assert_eq!(publish(&fixture, 0).unwrap().position.offset, 1);
    fixture.now += 121 * SECOND;
    publish(&fixture, 1_000).unwrap();
    fixture.now += 121 * SECOND;
    fixture.log.remove_unused(fixture.now);
    assert_eq!((fixture.log.stats().topics, fixture.log.stats().bytes), (0, 0));
}

#[test]
fn topics_are_listed_in_pages_while_others_come_and_go() {
    let fixture = log(&[]);
    let subscribers: Vec<_> =
        (0..500).map(|number| fixture.subscribe(&format!("t/{number}"), Start::Head)).collect();
    fixture.subscribe("other", Start::Head);
    let source = Source::Pattern(Pattern::new("t/>").unwrap());
    let (mut listed, mut place, mut pages) = (Vec::new(), (0, 0), 0);
    loop {
        let (page, next) = fixture.log.list(&source, place, 7, fixture.now);
        assert!(page.len() <= 7);
        listed.extend(page.into_iter().map(|listed| listed.topic.name().to_owned()));
        pages += 1;
        // Every fifth topic of those that are left ends, and a new one begins.
        fixture.unsubscribe(&subscribers[pages * 5 % 500]);
        fixture.subscribe(&format!("t/new/{pages}"), Start::Head);
        let Some(next) = next else { break };
        place = next;
    }
    let stays = |number: &usize| !number.is_multiple_of(5) || *number > pages * 5;
    for number in (0..500).filter(stays) {
        let name = format!("t/{number}");
        assert_eq!(listed.iter().filter(|known| **known == name).count(), 1, "{name}");
    }
    assert!(!listed.contains(&"other".to_owned()));
    let all = fixture.log.list(&source, (u32::MAX, u32::MAX), 7, fixture.now);
    assert!(all.0.is_empty() && all.1.is_none());
    let one = Source::Topic(Topic::new("other").unwrap());
    assert_eq!(fixture.log.list(&one, (0, 0), 7, fixture.now).0[0].stats.cursors, 1);
}

#[test]
fn a_pattern_continues_after_its_checkpoint() {
    let options = TopicOptions::new().history(3, Duration::MAX);
    let fixture = log(&[(">", options)]);
    let all = Source::Pattern(Pattern::new("*").unwrap());
    let attach = |start| Attach { source: all.clone(), start, group: None, ack: None };
    // Ends at once: it keeps no entries.
    let begin = |start| {
        let member = Arc::<Member>::default();
        let attachment = fixture.log.attach(&attach(start), &member, fixture.now).unwrap();
        fixture.log.detach(&attachment.sets, &member, fixture.now);
        attachment
    };
    fixture.publish("a", "old");
    let mut checkpoint = *begin(Start::Head).checkpoint.unwrap();
    assert!(matches!(begin(fixture.log.behind(&checkpoint)).outcome, Outcome::Recovered));
    fixture.publish_all("a", &["1", "2", "3", "4", "5"]);
    fixture.publish("b", "6");
    let resumed = fixture.subscribe("*", fixture.log.behind(&checkpoint));
    let missing: Vec<_> = resumed.gaps.iter().map(|gap| (gap.topic.name(), gap.range.clone())).collect();
    assert_eq!(missing, [("a", 1..4)], "the first missing offset is not known");
    let mut received = fixture.read(&resumed);
    received.sort_unstable();
    assert_eq!(received, ["3", "4", "5", "6"]);
    // All of it was received.
    checkpoint.sequences.fill(u64::MAX);
    assert_eq!(fixture.read(&fixture.subscribe("*", fixture.log.behind(&checkpoint))), [""; 0]);
    // That of another process: all kept entries.
    checkpoint.epoch += 1;
    let other = fixture.subscribe("*", fixture.log.behind(&checkpoint));
    assert_eq!((other.gaps.len(), fixture.read(&other).len()), (1, 4));
}

fn durable_entries(texts: &[&str]) -> SmallVec<[Entry; 1]> {
    let publication = |text: &&str| Publication::new(Codec::Raw, text.to_string());
    let entry = |publication: Publication| publication.into_entry(|| SECOND, 1 << 20, 1 << 10).unwrap();
    texts.iter().map(publication).map(entry).collect()
}

#[test]
fn an_entry_on_its_way_to_the_files_keeps_the_cursors_of_patterns() {
    let fixture = log(&[(">", TopicOptions::new().storage(Storage::Synced))]);
    let subscriber = fixture.subscribe("a/>", Start::Head);
    let (topic, entries) = (Topic::new("a/b").unwrap(), durable_entries(&["x"]));
    let staged = fixture.log.stage(&topic, &entries, false, fixture.now).unwrap();
    fixture.log.remove_unused(fixture.now);
    fixture.log.commit(&staged, entries, fixture.now).unwrap();
    assert_eq!(fixture.take(&subscriber, 2).len(), 1);
}

#[test]
fn publishers_to_durable_topics_wait_for_their_own_size() {
    let wait = SlowReader::Wait(Duration::from_secs(1));
    let options = TopicOptions::new().backlog(4).slow_reader(wait).storage(Storage::File);
    let fixture = log(&[(">", options)]);
    let subscriber = fixture.subscribe("a", Start::Head);
    let topic = Topic::new("a").unwrap();
    let publish = |texts: &[&str]| {
        let entries = durable_entries(texts);
        let staged = fixture.log.stage(&topic, &entries, false, fixture.now)?;
        fixture.log.commit(&staged, entries, fixture.now)
    };
    publish(&["1", "2", "3"]).unwrap();
    // One entry fits, and two do not.
    assert!(matches!(publish(&["4", "5"]), Err(AppendError::Wait(..))));
    let check = |entries, bytes| fixture.log.check_room("a".into(), entries, bytes, fixture.now);
    check(1, 1).unwrap();
    let AppendError::Wait(room, _) = check(2, 2).unwrap_err() else { panic!("a wait") };
    assert!(matches!(check(1, usize::MAX / 2), Err(AppendError::Wait(..))));
    // Entries that are not written make room as well.
    let entries = durable_entries(&["4"]);
    let staged = fixture.log.stage(&topic, &entries, false, fixture.now).unwrap();
    assert!(matches!(check(1, 1), Err(AppendError::Wait(..))));
    let mut notified = std::pin::pin!(room.notified());
    notified.as_mut().enable();
    fixture.log.abort(&staged, &entries, fixture.now);
    let mut cx = std::task::Context::from_waker(Waker::noop());
    assert!(notified.as_mut().poll(&mut cx).is_ready());
    check(1, 1).unwrap();
    drop(subscriber);
}
