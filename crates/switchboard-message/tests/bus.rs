//! The bus as applications use it.
#![allow(clippy::unwrap_used)]

use buffa_types::google::protobuf::StringValue;
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use switchboard_core::{Result, codec};
use switchboard_message::{
    Bus, Delivery, Gap, GapReason, Limits, Message, Pattern, Position, Publication, SlowReader, Subscription,
    Topic, TopicOptions,
};
use switchboard_wire::{Code, Codec, Status};

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Quote {
    name: String,
    cents: u64,
}

fn keeping(entries: usize) -> Bus {
    let options = TopicOptions::new().history(entries, Duration::MAX);
    Bus::builder().topics(">", options).unwrap().build()
}

fn bus_with(options: TopicOptions) -> Bus {
    Bus::builder().topics(">", options).unwrap().build()
}

async fn entry<T: std::fmt::Debug>(subscription: &mut Subscription<T>) -> Message<T> {
    match subscription.next().await.unwrap() {
        Some(Delivery::Entry(message)) => message,
        other => panic!("{other:?}"),
    }
}

async fn gap<T: std::fmt::Debug>(subscription: &mut Subscription<T>) -> Gap {
    match subscription.next().await.unwrap() {
        Some(Delivery::Gap(gap)) => gap,
        other => panic!("{other:?}"),
    }
}

/// Polls once; `None` if the subscription waits.
fn poll_now<T>(subscription: &mut Subscription<T>) -> Option<Result<Delivery<T>>> {
    match pin!(subscription).poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn messages_have_the_codec_of_their_publication() -> Result<()> {
    let bus = Bus::builder().codec(Codec::Json).build();
    let mut quotes = bus.subscribe::<Quote>("quotes/acme").await?;
    let quote = Quote { name: "acme".into(), cents: 1250 };
    bus.publish("quotes/acme", &quote).header("source", "desk").await?;
    for codec in [Codec::Postcard, Codec::MsgPack] {
        bus.publish("quotes/acme", &quote).codec(codec).await?;
    }
    bus.publish_with("quotes/acme", &quote, Codec::Json, codec::serde::encode).await?;
    bus.publish_encoded("quotes/acme", Publication::new(Codec::Json, r#"{"name":"acme","cents":1250}"#))
        .await?;
    let first = entry(&mut quotes).await;
    assert_eq!((first.headers().text("source"), first.entry().codec()), (Some("desk"), Codec::Json));
    assert_eq!(*first, quote);
    for offset in 2..6 {
        let message = entry(&mut quotes).await;
        assert_eq!(
            (message.position().offset, message.into_inner()),
            (offset, Quote { name: "acme".into(), cents: 1250 })
        );
    }
    Ok(())
}

#[tokio::test]
async fn messages_of_protobuf_are_published_in_its_codecs() -> Result<()> {
    let bus = Bus::new();
    let mut texts = bus.subscribe_with::<StringValue>("t", codec::proto::decode).await?;
    let text = StringValue { value: "hello".into(), ..StringValue::default() };
    for codec in [Codec::Proto, Codec::Json] {
        bus.publish_with("t", &text, codec, codec::proto::encode).await?;
        let message = entry(&mut texts).await;
        assert_eq!((message.value.as_str(), message.entry().codec()), ("hello", codec));
    }
    Ok(())
}

#[tokio::test]
async fn an_entry_that_cannot_be_decoded_is_an_error_and_the_next_one_arrives() -> Result<()> {
    let bus = Bus::new();
    let mut quotes = bus.subscribe::<Quote>("q").await?;
    bus.publish_encoded("q", Publication::new(Codec::Json, "{")).await?;
    bus.publish("q", &Quote { name: "b".into(), cents: 1 }).await?;
    let status = quotes.next().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("entry 1 of topic \"q\": "), "{status}");
    assert_eq!(entry(&mut quotes).await.name, "b");
    Ok(())
}

#[tokio::test]
async fn topics_and_patterns_are_selected_by_text_or_type() -> Result<()> {
    let bus = Bus::new();
    let mut subscriptions = vec![
        bus.subscribe::<u8>("a/b").await?,
        bus.subscribe::<u8>(String::from("a/*")).await?,
        bus.subscribe::<u8>(Topic::new("a/b")?).await?,
        bus.subscribe::<u8>(Pattern::prefix("a/")).await?,
        bus.subscribe::<u8>(Pattern::new("#")?).await?,
    ];
    bus.publish(&Topic::new("a/b")?, &7_u8).await?;
    for subscription in &mut subscriptions {
        assert_eq!(*entry(subscription).await, 7);
        assert!(poll_now(subscription).is_none());
    }
    let refused = [bus.publish("", &7).now(), bus.publish("$x", &7).now(), bus.publish("a/*", &7).now()];
    for (refused, rule) in refused.into_iter().zip(["is empty", "reserved", "wildcard"]) {
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(rule), "{status}");
    }
    assert!(bus.subscribe::<u8>("$reply/*").await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_subscription_is_a_stream() -> Result<()> {
    let bus = Bus::new();
    let numbers = bus.subscribe::<u32>("numbers").await?;
    bus.publish_batch("numbers", &[1, 2, 3]).codec(Codec::Json).await?;
    let mut numbers = pin!(numbers);
    for expected in 1..4 {
        let item = poll_fn(|cx| numbers.as_mut().poll_next(cx)).await.unwrap()?;
        assert!(matches!(item, Delivery::Entry(number) if *number == expected));
    }
    Ok(())
}

#[tokio::test]
async fn a_batch_is_appended_completely_or_not() -> Result<()> {
    let mut limits = Limits::default();
    (limits.entry_bytes_max, limits.batch_entries_max) = (10, 3);
    let bus = Bus::builder().limits(limits).build();
    let mut texts = bus.subscribe::<String>("t").await?;
    let status = bus.publish_batch("t", &["ok".to_owned(), "x".repeat(11)]).await.unwrap_err();
    assert!(status.message().contains("entry_bytes_max=10"), "{status}");
    let status = bus.publish_batch("t", &[1, 2, 3, 4]).await.unwrap_err();
    assert!(status.message().contains("batch_entries_max=3"), "{status}");
    assert_eq!(bus.publish_batch("t", &[0; 0]).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(poll_now(&mut texts).is_none());
    assert_eq!(bus.publish_batch("t", &["a".to_owned(), "b".to_owned()]).await?.offset, 2);
    assert_eq!(entry(&mut texts).await.into_inner(), "a");
    Ok(())
}

#[tokio::test]
async fn kept_entries_are_followed_by_live_ones() -> Result<()> {
    let bus = keeping(3);
    bus.publish_batch("t", &[1, 2, 3, 4]).await?;
    let mut last = bus.subscribe::<i32>("t").last(2).await?;
    bus.publish("t", &5).await?;
    for expected in [3, 4, 5] {
        assert_eq!(*entry(&mut last).await, expected);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_start_at_a_position_or_time_reports_its_outcome() -> Result<()> {
    let bus = keeping(2);
    let first = bus.publish("t", &1).await?;
    tokio::time::advance(Duration::from_secs(10)).await;
    bus.publish("t", &2).await?;
    let mut after = bus.subscribe::<i32>("t").after(first).await?;
    assert!(matches!(after.next().await?, Some(Delivery::Recovered)));
    assert_eq!(*entry(&mut after).await, 2);
    let mut since = bus.subscribe::<i32>("t").since(Duration::from_secs(5)).await?;
    assert!(matches!(since.next().await?, Some(Delivery::Recovered)));
    assert_eq!(*entry(&mut since).await, 2);
    bus.publish_batch("t", &[3, 4]).await?;
    let mut late = bus.subscribe::<i32>("t").after(first).await?;
    let missing = gap(&mut late).await;
    assert_eq!((missing.range, missing.missing, missing.reason), (2..3, Some(1), GapReason::Expired));
    assert_eq!(*entry(&mut late).await, 3);
    let other = Position { epoch: first.epoch.wrapping_add(1), ..first };
    assert_eq!(gap(&mut bus.subscribe::<i32>("t").after(other).await?).await.reason, GapReason::Epoch);
    let status = bus.subscribe::<i32>("t/*").after(first).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    Ok(())
}

#[tokio::test]
async fn a_slow_subscription_receives_a_gap_or_is_closed() -> Result<()> {
    let bus = bus_with(TopicOptions::new().backlog(2));
    let mut slow = bus.subscribe::<i32>("t").await?;
    bus.publish_batch("t", &[1, 2, 3]).await?;
    assert_eq!(gap(&mut slow).await.range, 1..2);
    assert_eq!(*entry(&mut slow).await, 2);

    let bus = bus_with(TopicOptions::new().backlog(2).slow_reader(SlowReader::Close));
    let mut slow = bus.subscribe::<i32>("t").await?;
    bus.publish_batch("t", &[1, 2, 3]).await?;
    assert_eq!(gap(&mut slow).await.reason, GapReason::Lagged);
    assert_eq!(slow.next().await.unwrap_err().code(), Code::ResourceExhausted);
    assert!(slow.next().await?.is_none() && slow.next().await?.is_none());
    assert_eq!((bus.stats().subscriptions, bus.stats().cursors, bus.stats().entries), (0, 0, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_publisher_waits_for_the_slowest_subscription_within_a_limit() -> Result<()> {
    let options = TopicOptions::new().backlog(2).slow_reader(SlowReader::Wait(Duration::from_secs(3)));
    let bus = bus_with(options);
    let mut slow = bus.subscribe::<i32>("t").await?;
    assert_eq!(bus.credit("t").await?, 2);
    bus.publish_batch("t", &[1, 2]).await?;
    assert_eq!(bus.publish("t", &3).now().unwrap_err().code(), Code::ResourceExhausted);
    let began = tokio::time::Instant::now();
    let status = bus.publish("t", &3).await.unwrap_err();
    assert!(status.message().contains("within 3s"), "{status}");
    assert_eq!(began.elapsed().as_secs(), 3);
    let status = bus.publish_batch("t", &[1, 2, 3]).await.unwrap_err();
    assert!(status.message().contains("backlog_entries_max"), "{status}");
    let publisher = tokio::spawn({
        let bus = bus.clone();
        async move {
            bus.credit("t").await?;
            bus.publish("t", &3).await
        }
    });
    tokio::task::yield_now().await;
    assert!(!publisher.is_finished());
    assert_eq!(*entry(&mut slow).await, 1);
    assert_eq!(publisher.await.unwrap()?.offset, 3);
    drop(slow);
    assert_eq!(bus.publish("t", &4).await?.offset, 1, "a topic that held nothing is a new log");
    Ok(())
}

#[tokio::test]
async fn a_group_shares_the_entries() -> Result<()> {
    let bus = Bus::new();
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(bus.subscribe::<usize>("jobs/>").group("workers").await?);
    }
    for job in 0..30_usize {
        bus.publish(&format!("jobs/{}", job % 7), &job).await?;
    }
    let mut received = Vec::new();
    for turn in 0..30 {
        received.push(*entry(&mut members[turn % 3]).await);
    }
    received.sort_unstable();
    assert!(received.into_iter().eq(0..30));
    assert!(members.iter_mut().all(|member| poll_now(member).is_none()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unacknowledged_entries_are_delivered_again_and_then_dead_letters() -> Result<()> {
    let bus = Bus::new();
    let mut dead = bus.subscribe::<i32>("dead").await?;
    let workers = || {
        bus.subscribe::<i32>("jobs")
            .group("workers")
            .ack_wait(Duration::from_secs(9))
            .attempts_max(2)
            .dead_letters("dead")
    };
    let (mut first, mut second) = (workers().await?, workers().await?);
    bus.publish_batch("jobs", &[1, 2, 3]).await?;
    let kept = entry(&mut first).await;
    assert!(entry(&mut first).await.ack());
    let rejected = entry(&mut first).await;
    assert!(rejected.reject() && !rejected.reject());
    let again = entry(&mut second).await;
    assert_eq!((*again, again.attempt()), (3, 2));
    assert!(again.ack() && !rejected.ack());
    // The other member waits, and receives the entry when its period has passed.
    let again = entry(&mut second).await;
    assert_eq!((*again, again.attempt()), (*kept, 2));
    let stopped = tokio::time::timeout(Duration::from_secs(60), second.next()).await;
    assert!(stopped.is_err(), "delivered a third time");
    let letter = entry(&mut dead).await;
    assert_eq!((*letter, bus.stats().dead_letters), (1, 1));
    assert!(!again.ack() && first.unacknowledged() + second.unacknowledged() == 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_member_at_its_limit_receives_no_more_until_it_acknowledges() -> Result<()> {
    let bus = Bus::new();
    let mut full =
        bus.subscribe::<i32>("jobs").group("workers").ack().attempts_max(9).unacknowledged_max(1).await?;
    bus.publish_batch("jobs", &[1, 2]).await?;
    let first = entry(&mut full).await;
    assert!(poll_now(&mut full).is_none());
    assert!(first.ack());
    let second = entry(&mut full).await;
    assert_eq!(*second, 2);
    // At the limit, its own entry is delivered again after the period.
    assert_eq!((*entry(&mut full).await, full.unacknowledged()), (2, 1));
    // Another member receives the entries that a full one does not take.
    let mut other = bus.subscribe::<i32>("jobs").group("workers").ack().attempts_max(9).await?;
    let waiting = tokio::spawn(async move { *entry(&mut other).await });
    tokio::task::yield_now().await;
    bus.publish("jobs", &3).await?;
    assert!(poll_now(&mut full).is_none());
    assert_eq!(waiting.await.unwrap(), 3);
    Ok(())
}

#[tokio::test]
async fn a_durable_subscription_continues() -> Result<()> {
    let bus = keeping(10);
    let inbox = || bus.subscribe::<i32>("inbox/*").durable("phone");
    let mut connected = inbox().await?;
    bus.publish_batch("inbox/a", &[1, 2]).await?;
    assert!(entry(&mut connected).await.ack());
    let _unacknowledged = entry(&mut connected).await;
    drop(connected);
    assert_eq!((bus.stats().cursors, bus.stats().subscriptions), (0, 0));
    bus.publish("inbox/a", &3).await?;
    bus.publish("inbox/b", &4).await?;
    let mut connected = inbox().await?;
    let mut received = Vec::new();
    while let Some(Ok(Delivery::Entry(message))) = poll_now(&mut connected) {
        received.push(*message);
        message.ack();
    }
    received.sort_unstable();
    assert_eq!(received, [2, 3, 4]);
    assert!(!bus.remove_durable("inbox/*", "phone")?, "it has a subscription");
    drop(connected);
    assert!(bus.remove_durable("inbox/*", "phone")?);
    assert_eq!(bus.stats().durable_cursors, 0);
    Ok(())
}

#[tokio::test]
async fn a_durable_subscription_keeps_its_topic_and_no_entry() -> Result<()> {
    let bus = Bus::new();
    let inbox = || bus.subscribe::<i32>("inbox").durable("phone");
    drop(inbox().await?);
    bus.publish_batch("inbox", &[1, 2]).await?;
    assert_eq!((bus.stats().topics, bus.stats().entries), (1, 0));
    let mut connected = inbox().await?;
    let missing = gap(&mut connected).await;
    assert_eq!((missing.range, missing.missing, missing.reason), (1..3, Some(2), GapReason::Expired));
    bus.publish("inbox", &3).await?;
    assert_eq!((*entry(&mut connected).await, connected.unacknowledged()), (3, 1));
    drop(connected);
    assert!(bus.remove_durable("inbox", "phone")?);
    assert_eq!(bus.stats().topics, 0);
    Ok(())
}

async fn respond(bus: &Bus, topic: &str, replies: u32) -> Result<()> {
    let mut requests = bus.subscribe::<u32>(topic).await?;
    tokio::spawn(async move {
        while let Ok(Some(Delivery::Entry(request))) = requests.next().await {
            assert!(request.expects_reply());
            for reply in 0..replies {
                // The requester may have received enough.
                _ = request.reply(&(*request + reply)).await;
            }
        }
    });
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn requests_receive_replies() -> Result<()> {
    let bus = Bus::new();
    let status = bus.request::<u32, u32>("add", &1).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    respond(&bus, "add", 2).await?;
    respond(&bus, "add", 1).await?;
    assert_eq!(*bus.request::<u32, u32>("add", &1).codec(Codec::Json).await?, 1);
    let mut replies = bus.request_many::<u32, u32>("add", &5).await?;
    let mut received = Vec::new();
    while let Some(reply) = replies.next().await? {
        received.push(*reply);
    }
    received.sort_unstable();
    assert_eq!(received, [5, 5, 6]);
    drop(replies);

    let _silent = bus.subscribe::<u32>("silent").await?;
    let began = tokio::time::Instant::now();
    let status = bus.request::<u32, u32>("silent", &1).time_limit(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((status.code(), began.elapsed().as_secs()), (Code::DeadlineExceeded, 2));
    bus.remove_unused();
    assert_eq!(bus.stats().topics, 2, "reply topics are removed");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn replies_are_limited() -> Result<()> {
    let mut limits = Limits::default();
    limits.replies_max = 2;
    let bus = Bus::builder().limits(limits).build();
    respond(&bus, "add", 5).await?;
    let mut replies = bus.request_many::<u32, u32>("add", &1).await?;
    assert_eq!(replies.next().await?.map(Message::into_inner), Some(1));
    assert_eq!(replies.next().await?.map(Message::into_inner), Some(2));
    assert!(replies.next().await?.is_none());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_at_its_limit_while_the_topic_is_full() -> Result<()> {
    let options = TopicOptions::new().backlog(1).slow_reader(SlowReader::Wait(Duration::from_secs(60)));
    let bus = bus_with(options);
    let _stalled = bus.subscribe::<u32>("t").await?;
    bus.publish("t", &1).await?;
    let began = tokio::time::Instant::now();
    let status = bus.request::<u32, u32>("t", &1).time_limit(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((status.code(), began.elapsed().as_secs()), (Code::DeadlineExceeded, 2));
    Ok(())
}

#[tokio::test]
async fn a_subscription_lets_other_tasks_run() -> Result<()> {
    let bus = Bus::new();
    let mut numbers = bus.subscribe::<u32>("t").await?;
    let other = tokio::spawn(async {});
    // Without a pause the subscription would receive its own publications forever.
    while !other.is_finished() {
        bus.publish("t", &1).await?;
        entry(&mut numbers).await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_survey_ends_with_the_last_reply_or_at_its_limit() -> Result<()> {
    let bus = Bus::new();
    for _ in 0..3 {
        respond(&bus, "load", 1).await?;
    }
    let began = tokio::time::Instant::now();
    let replies = bus.survey::<u32, u32>("load", &7).await?;
    assert_eq!((replies.len(), began.elapsed()), (3, Duration::ZERO));
    let _silent = bus.subscribe::<u32>("load").await?;
    let replies = bus.survey::<u32, u32>("load", &7).time_limit(Duration::from_secs(2)).await?;
    assert_eq!((replies.len(), began.elapsed().as_secs()), (3, 2));
    Ok(())
}

#[tokio::test]
async fn options_that_contradict_each_other_are_refused() -> Result<()> {
    let bus = Bus::new();
    let messages = [
        bus.subscribe::<u8>("a").ack().await.err(),
        bus.subscribe::<u8>("a").group("x".repeat(257)).await.err(),
        bus.subscribe::<u8>("a").group("g").dead_letters("$dead").await.err(),
        bus.subscribe::<u8>("a/*").group("g").dead_letters("a/dead").await.err(),
        bus.publish("a", &1).header("No spaces", "x").now().err(),
        entry(&mut {
            let mut subscription = bus.subscribe::<u8>("a").await?;
            bus.publish("a", &1).await?;
            assert!(poll_now(&mut subscription).is_some());
            bus.publish("a", &1).await?;
            subscription
        })
        .await
        .reply(&1)
        .await
        .err(),
    ];
    for (status, text) in
        messages.into_iter().zip(["group", "key_bytes_max", "reserved", "own topics", "header", "no reply"])
    {
        let status: Status = status.unwrap();
        assert!(status.message().contains(text), "{status}");
    }
    assert_eq!(bus.stats().subscriptions, 0);
    Ok(())
}

#[tokio::test]
async fn a_pattern_without_a_wildcard_is_its_topic() -> Result<()> {
    let bus = keeping(10);
    let first = bus.publish("a/b", &1_u8).await?;
    let _member = bus.subscribe::<u8>("a/b").group("g").await?;
    let _other = bus.subscribe::<u8>(Pattern::new("a/b")?).group("g").await?;
    assert_eq!(bus.stats().cursors, 1);
    bus.subscribe::<u8>(Pattern::new("a/b")?).after(first).await.map(drop)
}

#[tokio::test]
async fn a_member_receives_an_entry_if_the_limit_is_zero() -> Result<()> {
    let mut limits = Limits::default();
    limits.unacknowledged_max = 0;
    let bus = Bus::builder().limits(limits).build();
    let mut jobs = bus.subscribe::<u8>("jobs").group("g").ack().await?;
    bus.publish("jobs", &1_u8).await?;
    assert!(matches!(poll_now(&mut jobs), Some(Ok(Delivery::Entry(_)))));
    assert!(poll_now(&mut jobs).is_none());
    Ok(())
}

#[tokio::test]
async fn a_member_that_dropped_next_does_not_hold_back_entries() -> Result<()> {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }
    let bus = Bus::new();
    let mut first = bus.subscribe::<u8>("jobs").group("g").await?;
    let mut second = bus.subscribe::<u8>("jobs").group("g").await?;
    let woken = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    // The first member waits and then does something else: before an entry arrives, and after it was woken for one.
    assert!(pin!(first.next()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    for number in 1..3 {
        let mut next = pin!(second.next());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let mut other = Box::pin(first.next());
        if number == 2 {
            assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        bus.publish("jobs", &number).await?;
        drop(other);
        if number == 2 {
            bus.publish("jobs", &3_u8).await?;
        }
        assert!(woken.0.swap(false, Ordering::AcqRel));
        let Poll::Ready(Ok(Some(Delivery::Entry(job)))) = next.poll(&mut Context::from_waker(&waker)) else {
            panic!("no entry")
        };
        assert_eq!(*job, number);
    }
    assert_eq!(*entry(&mut first).await, 3);
    Ok(())
}
