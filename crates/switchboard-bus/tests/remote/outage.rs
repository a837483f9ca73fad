//! Messages and acknowledgements in the background that the server refuses.

use std::{
    fmt,
    sync::{Arc, Mutex},
};
use switchboard::{Caller, Server, auth::Tokens, guard::Rule};
use switchboard_bus::{BusServer, Connect};
use switchboard_message::{Bus, Delivery, TopicRule, TopicRules};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Keeps the log of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "switchboard::bus"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Lines {
    /// Waits for a line with both texts.
    async fn until(&self, what: &str, part: &str) {
        let has = |line: &String| line.contains(what) && line.contains(part);
        self.reach(|lines| lines.iter().any(has)).await;
    }

    /// Waits for lines that are as required.
    async fn reach(&self, is: impl Fn(&[String]) -> bool) {
        let reached = async {
            while !is(&self.0.lock().unwrap()) {
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::time::timeout(std::time::Duration::from_secs(60), reached).await;
        assert!(reached.is_ok(), "{:?}", self.0.lock().unwrap());
    }

    fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(what)).count()
    }
}

#[tokio::test]
async fn lost_messages_are_counted_and_logged_at_the_end_of_an_outage() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let rules = TopicRules::new([TopicRule::topics("closed/>").deny()]).unwrap();
    let topics = BusServer::new(Bus::new()).rules(rules);
    let server = Server::new().add(topics).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let bus = Bus::connect(&server.url()).await.unwrap();
    for round in 1..=2 {
        for message in 0..30_u32 {
            // Each topic is a batch of its own.
            bus.publish(&format!("closed/{message}"), &message).later().unwrap();
        }
        bus.publish("open", &1_u32).later().unwrap();
        let ended = |line: &&String| line.contains("what=\"messages\" lost=30");
        lines.reach(|lines| lines.iter().filter(ended).count() >= round).await;
        // One line at the beginning of each outage, and one at its end.
        assert_eq!(lines.count("what=\"messages\""), 2 * round);
    }
    bus.publish("closed/1", &1_u32).later().unwrap();
    drop(bus);
    // The queue ends with the bus, and so does the outage.
    lines.until("what=\"messages\"", "lost=1").await;
}

#[tokio::test]
async fn lost_acknowledgements_are_counted() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let tokens = Tokens::default().token("ali", Caller::new("ali"));
    let rule = |method: &str| Rule::methods(format!("switchboard.bus.v1.Bus/{method}"));
    let server = Server::new()
        .auth(tokens)
        .rule(rule("Ack").callers(["ali"]))
        .rule(rule("*").public())
        .add(BusServer::new(Bus::new()))
        .listen("tcp://127.0.0.1:0");
    let server = server.start().await.unwrap();
    let bus = Bus::connect(&server.url()).await.unwrap();
    let mut jobs = bus.subscribe::<u32>("jobs").group("workers").ack().await.unwrap();
    for job in 0..3_u32 {
        bus.publish("jobs", &job).await.unwrap();
        let Some(Delivery::Entry(entry)) = jobs.next().await.unwrap() else { panic!("no entry") };
        entry.ack();
        bus.settled().await.unwrap();
    }
    assert_eq!(lines.count("what=\"acknowledgements\""), 1, "one line for the outage");
    drop((jobs, bus));
    lines.until("what=\"acknowledgements\"", "lost=3").await;
}
