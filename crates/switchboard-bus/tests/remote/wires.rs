//! Every operation of a bus, over each wire that has streams of replies.

use crate::support::{Host, entries, entry, gap, with_history};
use std::time::Duration;
use switchboard::{Code, Codec};
use switchboard_message::{Bus, Delivery, GapReason, Pattern, Publication, SlowReader, TopicOptions};

const WIRES: [&str; 6] = ["", "?wire=grpc", "?wire=grpc-web", "?wire=connect", "ws", "ws?wire=jsonrpc"];

#[tokio::test]
async fn messages_are_published_and_received() {
    for wire in WIRES {
        let topics = with_history(10);
        let host = Host::start(&topics).await;
        let bus = host.connect(wire).await;
        let mut all = bus.subscribe::<u32>("numbers/*").await.unwrap();
        let first = bus.publish("numbers/a", &1_u32).await.unwrap();
        let batch = bus.publish_batch("numbers/a", &[2_u32, 3]).await.unwrap();
        assert_eq!((first.offset, batch.offset, first.epoch), (1, 3, batch.epoch), "{wire}");
        for number in 4..7_u32 {
            bus.publish("numbers/a", &number).later().unwrap();
        }
        assert_eq!(entries(&mut all, 6).await, [1, 2, 3, 4, 5, 6], "{wire}");

        // All parts of an entry, in another codec.
        let text = "größe".to_owned();
        let publish = bus.publish("texts", &text).codec(Codec::Json).key("k").id("i").header("h", "v");
        let position = publish.expires_in(Duration::from_secs(60)).await.unwrap();
        let mut texts = bus.subscribe::<String>("texts").last(1).await.unwrap();
        let Some(Delivery::Entry(message)) = texts.next().await.unwrap() else { panic!("{wire}: no entry") };
        let headers: Vec<_> = message.headers().iter().map(|(name, value)| (name, &value[..])).collect();
        assert_eq!((&*message, headers), (&text, vec![("h", &b"v"[..])]), "{wire}");
        assert_eq!((message.position(), message.attempt()), (position, 1), "{wire}");
        let entry = message.entry();
        assert_eq!((entry.key().unwrap(), entry.id().unwrap()), (&"k".into(), &"i".into()), "{wire}");
        assert_eq!(entry.codec(), Codec::Json);
        assert!(!message.ack() && !message.expects_reply(), "{wire}");
        // A known id.
        let again = bus.publish("texts", &text).id("i").await.unwrap();
        assert_eq!(again, position, "{wire}");
    }
}

#[tokio::test]
async fn subscriptions_begin_at_their_start() {
    for wire in WIRES {
        let topics = with_history(3);
        let host = Host::start(&topics).await;
        let bus = host.connect(wire).await;
        let first = bus.publish("t/a", &1_u32).await.unwrap();
        bus.publish_batch("t/a", &[2_u32, 3, 4, 5]).await.unwrap();
        let mut last = bus.subscribe::<u32>("t/a").last(2).await.unwrap();
        assert_eq!(entries(&mut last, 2).await, [4, 5], "{wire}");
        let mut after = bus.subscribe::<u32>("t/a").after(first).await.unwrap();
        let missing = gap(&mut after).await;
        assert_eq!((missing.range, missing.missing, missing.reason), (2..3, Some(1), GapReason::Expired));
        assert_eq!(entries(&mut after, 3).await, [3, 4, 5], "{wire}");
        let mut since = bus.subscribe::<u32>("t/*").since(Duration::from_secs(3600)).await.unwrap();
        assert!(matches!(since.next().await, Ok(Some(Delivery::Gap(_)))), "{wire}");
        assert_eq!(entries(&mut since, 3).await, [3, 4, 5], "{wire}");
        let mut prefix = bus.subscribe::<u32>(Pattern::prefix("t/")).last(1).await.unwrap();
        assert_eq!(entry(&mut prefix).await, (5, 5), "{wire}");

        let page = bus.history::<u32>("t/a").after(first).limit(2).await.unwrap();
        assert!(page.has_more && matches!(&page.deliveries[0], Delivery::Gap(_)), "{wire}: {page:?}");
        assert!(matches!(&page.deliveries[2], Delivery::Entry(fourth) if **fourth == 4), "{wire}: {page:?}");
        let missing = bus.history::<u32>("none").await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound, "{wire}");
        let page = bus.topics("t/*").await.unwrap();
        assert_eq!((page.topics[0].topic.name(), page.topics[0].stats.published), ("t/a", 5), "{wire}");
        assert_eq!((page.topics.len(), page.next), (1, None), "{wire}");
    }
}

#[tokio::test]
async fn groups_share_and_acknowledge_entries() {
    for wire in WIRES {
        let host = Host::start(&with_history(10)).await;
        let bus = host.connect(wire).await;
        let begin = || bus.subscribe::<u32>("jobs/>").group("workers").attempts_max(2).dead_letters("dead");
        let (mut one, mut dead) =
            (begin().unacknowledged_max(1).await.unwrap(), bus.subscribe::<u32>("dead").await.unwrap());
        bus.publish_batch("jobs/a", &[1_u32, 2]).await.unwrap();
        let Some(Delivery::Entry(job)) = one.next().await.unwrap() else { panic!("{wire}: no entry") };
        assert!(job.ack(), "{wire}");
        for attempt in 1..=2 {
            let Some(Delivery::Entry(job)) = one.next().await.unwrap() else { panic!("{wire}: no entry") };
            assert_eq!((*job, job.attempt()), (2, attempt), "{wire}");
            assert!(job.reject(), "{wire}");
        }
        assert_eq!(entry(&mut dead).await.0, 2, "{wire}");
        // A durable cursor continues where it was.
        drop(bus.subscribe::<u32>("inbox").durable("phone").await.unwrap());
        bus.publish("inbox", &7_u32).await.unwrap();
        let mut phone = bus.subscribe::<u32>("inbox").durable("phone").await.unwrap();
        assert_eq!(entry(&mut phone).await.0, 7, "{wire}");
        let refused = bus.subscribe::<u32>("jobs/>").ack().await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{wire}");
    }
}

#[tokio::test]
async fn requests_reach_subscribers_of_both_processes() {
    for wire in WIRES {
        let topics = Bus::new();
        let host = Host::start(&topics).await;
        let bus = host.connect(wire).await;
        let refused = bus.request::<u32, u32>("square", &3).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{wire}: {refused}");
        // One subscriber in the process of the topics, one in that of a caller.
        for responder in [topics.clone(), host.connect(wire).await] {
            let mut numbers = responder.subscribe::<u32>("square").await.unwrap();
            tokio::spawn(async move {
                while let Ok(Some(Delivery::Entry(number))) = numbers.next().await {
                    assert!(number.expects_reply());
                    number.reply(&(*number * *number)).await.unwrap();
                }
            });
        }
        assert_eq!(*bus.request::<u32, u32>("square", &3).await.unwrap(), 9, "{wire}");
        let survey = bus.survey::<u32, u32>("square", &4).await.unwrap();
        assert_eq!(survey.iter().map(|reply| **reply).collect::<Vec<_>>(), [16, 16], "{wire}");
        let mut replies = bus.request_many::<u32, u32>("square", &5).await.unwrap();
        for _ in 0..2 {
            assert_eq!(*replies.next().await.unwrap().unwrap(), 25, "{wire}");
        }
        // The reply topic of another request cannot be guessed, and others are refused.
        for (reply_to, code) in
            [("square", Code::InvalidArgument), ("$reply/1/0000000000000000", Code::NotFound)]
        {
            let reply = Publication::new(Codec::Raw, "x");
            let refused = bus.reply_to(reply_to, reply).await.unwrap_err();
            assert_eq!(refused.code(), code, "{wire}: {refused}");
        }
    }
}

#[tokio::test]
async fn a_sender_waits_for_credit() {
    let options = TopicOptions::new().backlog(4).slow_reader(SlowReader::Wait(Duration::from_millis(1)));
    let topics = Bus::builder().topics("jobs", options).unwrap().build();
    let host = Host::start(&topics).await;
    let bus = host.connect("").await;
    let mut worker = topics.subscribe::<u32>("jobs").await.unwrap();
    assert_eq!(bus.credit("jobs").await.unwrap(), 4);
    bus.publish_batch("jobs", &[1_u32, 2, 3, 4]).await.unwrap();
    let full = bus.credit("jobs").await.unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted, "{full}");
    entries(&mut worker, 4).await;
    assert_eq!(bus.credit("jobs").await.unwrap(), 4);
}

#[tokio::test]
async fn errors_of_the_server_reach_the_caller() {
    let host = Host::start(&Bus::new()).await;
    let bus = host.connect("").await;
    let refused = bus.publish("$nodes", &1_u32).await.unwrap_err();
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("reserved"), "{refused}");
    let refused = bus.publish("t", &1_u32).now().unwrap_err();
    assert!(refused.message().contains("later()"), "{refused}");
    let refused = bus.remove_durable("t", "name").unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
    let refused = bus.topics(">").page("x").await.unwrap_err();
    assert!(refused.message().contains("page token"), "{refused}");
}
