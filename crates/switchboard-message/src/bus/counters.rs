//! The counters of a bus, and its lists, for the metrics and pages of servers.

use super::{Bus, Side, local::Local};
use crate::log::{GapReason, ListedGroup, ListedTopic, NameRef, Source, Totals};
use std::sync::Arc;
use switchboard_core::{
    Result,
    counters::{Cell, Counter, CounterSource, ListRequest, ListedRows, Listing},
};
use switchboard_wire::Status;

const TOPICS: &str = "topics";
const GROUPS: &str = "groups";

const TOPIC_COLUMNS: [&str; 14] = [
    "topic",
    "rate_per_s",
    "published",
    "cursors",
    "cursors_behind",
    "lag",
    "entries",
    "bytes",
    "duplicates",
    "conflated",
    "missed_epoch",
    "missed_expired",
    "missed_lagged",
    "missed_lost",
];
const GROUP_COLUMNS: [&str; 8] =
    ["group", "topics", "durable", "members", "topics_behind", "unread", "unacknowledged", "redeliveries"];

/// Counters of the topics of this process. A bus that is connected to another process has none: they are on the pages
/// of that process. Metrics have the sums over all topics, without a series per topic.
///
/// The lists are `topics`, filtered by a pattern, and `groups`, which have no filter. `groups` leaves out durable
/// cursors without a subscription.
impl CounterSource for Bus {
    fn kind(&self) -> &'static str {
        "bus"
    }

    fn counters(&self) -> Vec<Counter> {
        self.local().map(|local| counters(local)).unwrap_or_default()
    }

    fn lists(&self) -> &'static [&'static str] {
        match &self.side {
            Side::Local(_) => &[GROUPS, TOPICS],
            Side::Remote(_) => &[],
        }
    }

    fn list<'a>(&'a self, list: &'a str, request: ListRequest) -> Listing<'a> {
        Box::pin(async move {
            match (self.local(), list) {
                (Some(local), GROUPS) => groups(local, &request),
                (Some(local), TOPICS) => self.list_topics(local, request).await,
                _ => Err(Status::not_found(format!("list \"{list}\" is not one of a bus"))),
            }
        })
    }

    fn identity(&self) -> Option<usize> {
        Some(match &self.side {
            Side::Local(local) => Arc::as_ptr(local) as usize,
            Side::Remote(remote) => Arc::as_ptr(remote) as usize,
        })
    }
}

impl Bus {
    async fn list_topics(&self, local: &Local, request: ListRequest) -> Result<ListedRows> {
        let mut list = self.topics(request.filter.as_deref().unwrap_or(">")).limit(request.rows_max);
        if let Some(from) = &request.from {
            list = list.page(from);
        }
        let page = list.await?;
        let mut seconds = 0.0;
        if !request.period.is_zero() {
            let began = local.now();
            tokio::time::sleep(request.period).await;
            seconds = local.now().saturating_sub(began) as f64 / 1e9;
        }
        let rows = page.topics.iter().map(|topic| topic_row(local, topic, seconds)).collect();
        Ok(ListedRows::new(&TOPIC_COLUMNS, rows, page.next))
    }
}

fn counters(local: &Local) -> Vec<Counter> {
    let (stats, totals) = (local.log.stats(), local.log.totals());
    let gauge = |name, help, value: usize| Counter::gauge(name, help, value as u64);
    let Totals { published, duplicates, conflated, missing } = totals;
    let mut counters = vec![
        gauge("topics", "topics of the bus", stats.topics),
        gauge("entries", "entries in the logs of all topics", stats.entries),
        gauge("log_bytes", "bytes of these entries and of publication ids", stats.bytes),
        gauge("cursors", "cursors of subscriptions and groups", stats.cursors),
        gauge("subscriptions", "subscriptions", stats.subscriptions),
        gauge("durable_cursors", "durable cursors, connected or not", stats.durable_cursors),
        Counter::total("published", "entries that were appended", published),
        Counter::total(
            "duplicates",
            "publications that were not appended because their id was known",
            duplicates,
        ),
        Counter::total("conflated", "entries that a newer one of their key replaced", conflated),
        Counter::total(
            "dead_letters",
            "entries that were delivered as often as their group allows",
            stats.dead_letters,
        ),
        Counter::total(
            "dead_letters_lost",
            "dead letters that their topic did not accept",
            stats.dead_letters_lost as u64,
        ),
    ];
    let missed = GapReason::ALL.iter().zip(missing).map(|(reason, entries)| {
        Counter::total("missed_entries", "entries that subscriptions missed, by reason", entries)
            .label("reason", reason.name())
    });
    counters.extend(missed);
    counters
}

/// Makes the row of a topic. The rate is measured from the counters in `listed`, which were read so many seconds ago;
/// zero leaves it out.
fn topic_row(local: &Local, listed: &ListedTopic, seconds: f64) -> Vec<Cell> {
    let name = NameRef::from(&listed.topic);
    let stats = local.log.topic_stats(name).unwrap_or(listed.stats);
    let unread = local.log.unread(name).unwrap_or_default();
    let published = stats.published.saturating_sub(listed.stats.published);
    let rate = (seconds > 0.0).then(|| published as f64 / seconds);
    let mut row = vec![
        listed.topic.name().into(),
        rate.into(),
        stats.published.into(),
        (stats.cursors as u64).into(),
        (unread.cursors_behind as u64).into(),
        unread.lag.into(),
        (stats.entries as u64).into(),
        (stats.bytes as u64).into(),
        stats.duplicates.into(),
        stats.conflated.into(),
    ];
    row.extend(unread.missing.map(Cell::from));
    row
}

fn groups(local: &Local, request: &ListRequest) -> Result<ListedRows> {
    if let Some(filter) = &request.filter {
        let text = format!("filter \"{}\" is not supported for groups; leave it out", filter.escape_debug());
        return Err(Status::invalid_argument(text));
    }
    let place = request.from.as_deref().map(super::topics::parse).transpose()?.unwrap_or_default();
    let (groups, next) = local.log.list_groups(place, request.rows_max);
    let next = next.map(|(shard, index)| format!("{shard}.{index}"));
    Ok(ListedRows::new(&GROUP_COLUMNS, groups.iter().map(group_row).collect(), next))
}

fn group_row(group: &ListedGroup) -> Vec<Cell> {
    let topics = match &group.key.source {
        Source::Topic(topic) => topic.name().to_owned(),
        Source::Pattern(pattern) => pattern.to_string(),
    };
    vec![
        (*group.key.name).into(),
        topics.into(),
        group.key.is_durable.then_some("yes").into(),
        u64::from(group.members).into(),
        (group.topics_behind as u64).into(),
        group.unread.into(),
        (group.unacknowledged as u64).into(),
        (group.redeliveries as u64).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicOptions;

    fn value(bus: &Bus, name: &str, reason: Option<&str>) -> u64 {
        let counters = bus.counters();
        let found = counters
            .iter()
            .find(|counter| counter.name == name && counter.label.map(|(_, value)| value) == reason);
        found.unwrap().value
    }

    /// Returns the row that begins with this text.
    async fn row(bus: &Bus, list: &str, first: &str) -> Vec<Cell> {
        let listed = bus.list(list, ListRequest::new(10)).await.unwrap();
        assert!(listed.rows.iter().all(|row| row.len() == listed.columns.len()), "{listed:?}");
        let row = listed.rows.into_iter().find(|row| row[0] == Cell::from(first));
        row.unwrap_or_else(|| panic!("{list} has no {first}"))
    }

    fn number(cell: &Cell) -> u64 {
        let Cell::Number(number) = cell else { panic!("{cell:?} is no number") };
        *number as u64
    }

    #[tokio::test]
    async fn a_slow_subscription_is_shown_with_its_lag_and_what_it_missed() {
        let bus = Bus::builder().topics(">", TopicOptions::new().backlog(4)).unwrap().build();
        let mut slow = bus.subscribe::<u32>("a").await.unwrap();
        for number in 0..3u32 {
            bus.publish("a", &number).await.unwrap();
        }
        let topic = row(&bus, TOPICS, "a").await;
        let numbers: Vec<_> = topic[2..7].iter().map(number).collect();
        assert_eq!(numbers, [3, 1, 1, 3, 3], "published, cursors, cursors_behind, lag, entries");
        assert_eq!(topic[1], Cell::None, "no period, no rate");
        for number in 3..10u32 {
            bus.publish("a", &number).await.unwrap();
        }
        slow.next().await.unwrap();
        assert_eq!(value(&bus, "missed_entries", Some("lagged")), 6);
        assert_eq!(number(&row(&bus, TOPICS, "a").await[12]), 6);
        assert_eq!((value(&bus, "published", None), value(&bus, "topics", None)), (10, 1));
        drop(slow);
        bus.remove_unused();
        let kept = (value(&bus, "topics", None), value(&bus, "published", None));
        assert_eq!(kept, (0, 10), "the topic is removed, and totals never decrease");
        assert_eq!(value(&bus, "missed_entries", Some("lagged")), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_that_of_the_period() {
        let bus = Bus::new();
        let _subscription = bus.subscribe::<u32>("a").await.unwrap();
        let mut request = ListRequest::new(10);
        request.period = std::time::Duration::from_secs(2);
        let list = bus.list(TOPICS, request);
        let publish = async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            for number in 0..10u32 {
                bus.publish("a", &number).await.unwrap();
            }
        };
        let (listed, ()) = tokio::join!(list, publish);
        let rows = listed.unwrap().rows;
        let Cell::Number(rate) = rows[0][1] else { panic!("{rows:?}") };
        assert!((4.9..=5.0).contains(&rate), "{rate}");
    }

    #[tokio::test]
    async fn groups_of_topics_and_patterns_are_listed_once() {
        let bus = Bus::new();
        let mut workers = bus.subscribe::<u32>("jobs/>").group("workers").ack().await.unwrap();
        let _second = bus.subscribe::<u32>("jobs/>").group("workers").ack().await.unwrap();
        let _others = bus.subscribe::<u32>("jobs/1").group("others").await.unwrap();
        for number in 0..20u32 {
            bus.publish(&format!("jobs/{number}"), &number).await.unwrap();
        }
        let _held = workers.next().await.unwrap();
        let listed = bus.list(GROUPS, ListRequest::new(10)).await.unwrap();
        assert_eq!((listed.rows.len(), listed.next), (2, None), "a pattern has a set in each shard");
        let group = row(&bus, GROUPS, "workers").await;
        assert_eq!((&group[1], &group[2], number(&group[3])), (&"jobs/>".into(), &Cell::None, 2));
        assert_eq!(number(&group[5]) + number(&group[6]), 20, "unread and unacknowledged");
        assert!(number(&group[6]) > 0, "{group:?}");
        let group = row(&bus, GROUPS, "others").await;
        assert_eq!((number(&group[4]), number(&group[5])), (1, 1));
    }

    #[tokio::test]
    async fn lists_have_pages_and_refuse_what_they_do_not_know() {
        let bus = Bus::new();
        let _all = bus.subscribe::<u32>("jobs/1").group("a").await.unwrap();
        for number in 0..25u32 {
            let _ = bus.subscribe::<u32>(format!("jobs/{number}")).durable("b").await.unwrap();
        }
        let mut topics = Vec::new();
        let mut request = ListRequest::new(10);
        loop {
            let page = bus.list(TOPICS, request.clone()).await.unwrap();
            assert!(page.rows.len() <= 10, "{page:?}");
            topics.extend(page.rows.into_iter().map(|row| row[0].clone()));
            let Some(next) = page.next else { break };
            request.from = Some(next);
        }
        topics.sort_by_key(|cell| format!("{cell:?}"));
        topics.dedup();
        assert_eq!(topics.len(), value(&bus, "topics", None) as usize);
        for (list, from, filter) in [
            (TOPICS, Some("x"), None),
            (GROUPS, Some("x"), None),
            (GROUPS, None, Some("a")),
            (TOPICS, None, Some("a\0b")),
            ("engines", None, None),
        ] {
            let mut request = ListRequest::new(10);
            (request.from, request.filter) = (from.map(str::to_owned), filter.map(str::to_owned));
            bus.list(list, request).await.unwrap_err();
        }
    }
}
