//! The service over a bus.

use crate::{
    acks::{AckId, SubscriptionAcks, Unacknowledged},
    convert,
    v1::{self, history_request, request_event, subscribe_event::Event, subscribe_request},
};
use bytes::Bytes;
use std::{slice, sync::Arc};
use switchboard::{Call, Cx, Reply, Result, Sender, Service, ServiceInfo, Status};
use switchboard_message::{Bus, Delivery, Message, Subscribe, TopicRules};
use tokio::sync::watch;

/// Ids or names of one request.
const NAMES_MAX: usize = 1_024;
/// The service `switchboard.bus.v1.Bus` over a [`Bus`], for [`Server::add`](switchboard::Server::add); for
/// [`Server::plugin`](switchboard::Server::plugin), which adds `GET /events` as well.
///
/// A subscription takes entries from the bus as its stream has room: a subscriber that does not read holds the messages
/// of one stream, and the topic's own limits define when it misses entries, which are then reported as a gap.
///
/// Guards of the server restrict who calls its methods, and [rules](TopicRules) who uses which topics:
///
/// ```
/// use switchboard_bus::BusServer;
/// use switchboard_message::{Bus, TopicRule, TopicRules};
///
/// let rules = TopicRules::new([
///     TopicRule::topics("quotes/>").to_subscribe().public(),
///     TopicRule::topics("quotes/>").roles(["market"]).rate(1_000.0),
///     TopicRule::topics(">").deny(),
/// ])?;
/// let topics = BusServer::new(Bus::new()).rules(rules);
/// # Ok::<_, switchboard::Status>(())
/// ```
///
/// A subscription has no end of its own, and a server that stops waits for it until the end of its drain. [`close`]
/// ends subscriptions at once; the plugin calls it when the server drains:
///
/// ```
/// # use switchboard::Server;
/// # use switchboard_bus::BusServer;
/// # use switchboard_message::Bus;
/// let topics = BusServer::new(Bus::new());
/// let closing = topics.clone();
/// let server = Server::new().add(topics).on_stop(move || async move { closing.close() });
/// ```
///
/// [`close`]: BusServer::close
#[derive(Clone, Debug)]
pub struct BusServer {
    topics: Arc<Topics>,
    event_patterns: bool,
}

impl BusServer {
    /// Creates the service of a bus. Servers that share a bus share its topics; entries are acknowledged at the service
    /// that delivered them.
    pub fn new(bus: Bus) -> BusServer {
        let (unacknowledged, closed) = (Arc::default(), watch::Sender::new(false));
        let rules = TopicRules::default();
        BusServer { topics: Arc::new(Topics { bus, rules, unacknowledged, closed }), event_patterns: false }
    }

    /// Sets the rules of topics; by default, all are open to those who may call the methods. A reply is allowed to each
    /// receiver of its request, and an acknowledgement to each receiver of its entry.
    #[must_use]
    pub fn rules(self, rules: TopicRules) -> BusServer {
        let Topics { bus, unacknowledged, closed, .. } = &*self.topics;
        let (bus, unacknowledged, closed) = (bus.clone(), unacknowledged.clone(), closed.clone());
        BusServer { topics: Arc::new(Topics { bus, rules, unacknowledged, closed }), ..self }
    }

    /// Also accepts patterns as topics of `GET /events`, which the plugin adds. The id of a stream has no position of a
    /// pattern: a client that reconnects gets a gap for it, and entries from then on.
    #[must_use]
    pub fn event_patterns(mut self) -> BusServer {
        self.event_patterns = true;
        self
    }

    pub(crate) fn allows_event_patterns(&self) -> bool {
        self.event_patterns
    }

    pub(crate) fn rules_of_topics(&self) -> &TopicRules {
        &self.topics.rules
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.topics.bus
    }

    /// Resolves when subscriptions must end, to the reason.
    pub(crate) fn until_closed(&self) -> impl Future<Output = Status> + Send + use<> {
        self.topics.until_closed()
    }

    /// Ends all subscriptions with `Unavailable`, and refuses later ones. Publications are still accepted.
    pub fn close(&self) {
        self.topics.closed.send_replace(true);
    }
}

impl Service for BusServer {
    fn info(&self) -> &'static ServiceInfo {
        &v1::BUS
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        v1::BusServer::from_arc(self.topics.clone()).call(call).await
    }
}

#[derive(Debug)]
struct Topics {
    bus: Bus,
    rules: TopicRules,
    unacknowledged: Arc<Unacknowledged>,
    closed: watch::Sender<bool>,
}

impl v1::Bus for Topics {
    async fn publish(&self, request: v1::PublishRequest, cx: &Cx) -> Result<v1::PublishResponse> {
        let publication = convert::publication(entry_of(request.entry.into_option())?)?;
        self.rules.admit(&request.topic, cx.caller(), slice::from_ref(&publication))?;
        let position = self.bus.publish_encoded(&request.topic, publication).await?;
        Ok(v1::PublishResponse { position: convert::position(position).into(), ..Default::default() })
    }

    async fn publish_batch(
        &self,
        request: v1::PublishBatchRequest,
        cx: &Cx,
    ) -> Result<v1::PublishBatchResponse> {
        let entries = request.entries.into_iter();
        let publications = entries.map(convert::publication).collect::<Result<Vec<_>>>()?;
        self.rules.admit(&request.topic, cx.caller(), &publications)?;
        let position = self.bus.publish_batch_encoded(&request.topic, publications).await?;
        Ok(v1::PublishBatchResponse { position: convert::position(position).into(), ..Default::default() })
    }

    async fn subscribe(
        &self,
        request: v1::SubscribeRequest,
        cx: &Cx,
        out: Sender<v1::SubscribeEvent>,
    ) -> Result<()> {
        self.may_subscribe(&request, cx)?;
        tokio::select! {
            closed = self.until_closed() => Err(closed),
            result = self.deliver(request, out) => result,
        }
    }

    async fn ack(&self, request: v1::AckRequest, _: &Cx) -> Result<v1::AckResponse> {
        let unknown_ack_ids = self.each_unacknowledged(request.ack_ids, Message::ack)?;
        Ok(v1::AckResponse { unknown_ack_ids, ..Default::default() })
    }

    async fn reject(&self, request: v1::RejectRequest, _: &Cx) -> Result<v1::RejectResponse> {
        let unknown_ack_ids = self.each_unacknowledged(request.ack_ids, Message::reject)?;
        Ok(v1::RejectResponse { unknown_ack_ids, ..Default::default() })
    }

    async fn history(&self, request: v1::HistoryRequest, cx: &Cx) -> Result<v1::HistoryResponse> {
        self.rules.may_subscribe(&request.topic, cx.caller())?;
        let mut history = self.bus.history_with(&request.topic, |_, bytes| Ok(bytes));
        history = match request.start {
            None => history,
            Some(history_request::Start::After(position)) => history.after(convert::to_position(&position)),
            Some(history_request::Start::Since(since)) => history.since(convert::age(*since)?),
        };
        if request.limit > 0 {
            history = history.limit(request.limit as usize);
        }
        let page = history.await?;
        let mut response = v1::HistoryResponse { has_more: page.has_more, ..Default::default() };
        for delivery in &page.deliveries {
            match delivery {
                Delivery::Entry(message) => response.entries.push(convert::entry(message)),
                Delivery::Gap(gap) => response.gaps.push(convert::gap(gap)),
                _ => {}
            }
        }
        Ok(response)
    }

    async fn topics(&self, request: v1::TopicsRequest, cx: &Cx) -> Result<v1::TopicsResponse> {
        check_names(request.topics.len(), "topics")?;
        if request.topics.is_empty() {
            return self.list(request, cx).await;
        }
        if !request.pattern.is_empty() || request.prefix.is_some() {
            let text = "the request has names as well as a pattern or prefix; set one of them";
            return Err(Status::invalid_argument(text));
        }
        let topic = |name: String| {
            let stats = self.bus.topic_stats(&name)?;
            Some(convert::topic(name, stats))
        };
        let names = request.topics.into_iter().filter(|name| self.may_see(name, cx));
        let topics = names.filter_map(topic).collect();
        Ok(v1::TopicsResponse { topics, ..Default::default() })
    }

    async fn request(
        &self,
        request: v1::RequestRequest,
        cx: &Cx,
        out: Sender<v1::RequestEvent>,
    ) -> Result<()> {
        let publication = convert::publication(entry_of(request.entry.into_option())?)?;
        self.rules.admit(&request.topic, cx.caller(), slice::from_ref(&publication))?;
        let time_limit = request.time_limit.into_option();
        let time_limit = time_limit.map(|limit| convert::duration("time_limit", limit)).transpose()?;
        let event =
            |event: request_event::Event| v1::RequestEvent { event: Some(event), ..Default::default() };
        let sent = self.bus.request_encoded(&request.topic, publication, time_limit).await?;
        let (position, receivers, mut replies) = sent;
        let position = convert::position(position).into();
        out.send(event(v1::Sent { position, receivers, ..Default::default() }.into())).await?;
        while let Some(reply) = replies.next().await? {
            out.send(event(request_event::Event::Reply(convert::entry(&reply).into()))).await?;
        }
        Ok(())
    }

    async fn reply(&self, request: v1::ReplyRequest, _: &Cx) -> Result<v1::ReplyResponse> {
        let reply = convert::publication(entry_of(request.entry.into_option())?)?;
        self.bus.reply_to(&request.reply_to, reply).await?;
        Ok(v1::ReplyResponse::default())
    }

    async fn credit(&self, request: v1::CreditRequest, cx: &Cx) -> Result<v1::CreditResponse> {
        self.rules.may_publish(&request.topic, cx.caller())?;
        let entries = self.bus.credit(&request.topic).await?;
        Ok(v1::CreditResponse { entries: entries.try_into().unwrap_or(u32::MAX), ..Default::default() })
    }
}

impl Topics {
    /// Resolves when subscriptions must end, to the reason.
    fn until_closed(&self) -> impl Future<Output = Status> + Send + use<> {
        let mut closed = self.closed.subscribe();
        async move {
            // The sender may end first: then the service is gone, too.
            let _ = closed.wait_for(|closed| *closed).await;
            Status::unavailable(
                "the subscription has ended because the server closes; subscribe at another one",
            )
        }
    }

    /// Delivers the entries of a subscription until the caller leaves.
    async fn deliver(&self, request: v1::SubscribeRequest, out: Sender<v1::SubscribeEvent>) -> Result<()> {
        let (subscribe, acks) = self.begin(request)?;
        let mut subscription = subscribe.await?;
        let event = |event: Event| v1::SubscribeEvent { event: Some(event), ..Default::default() };
        let checkpoint = subscription.next_checkpoint().map(convert::from_checkpoint);
        let is_pattern = checkpoint.is_some();
        let started = v1::Started {
            position: subscription.begins_after().map(convert::position).into(),
            checkpoint: checkpoint.into(),
            ..Default::default()
        };
        out.send(event(started.into())).await?;
        // An entry is taken when the one before it is in the queue of the stream, which has a limit.
        while let Some(delivery) = subscription.next().await? {
            let next = match delivery {
                Delivery::Entry(message) => entry(message, is_pattern, acks.as_ref()).into(),
                Delivery::Gap(gap) => convert::gap(&gap).into(),
                Delivery::Recovered => v1::Recovered::default().into(),
                _ => continue,
            };
            out.send(event(next)).await?;
        }
        Ok(())
    }

    /// Converts the request of a subscription.
    fn begin(
        &self,
        request: v1::SubscribeRequest,
    ) -> Result<(Subscribe<'_, Bytes>, Option<SubscriptionAcks>)> {
        let topics = convert::to_selector(&request.topic, request.prefix.as_ref())?;
        let mut subscribe = self.bus.subscribe_encoded(topics);
        subscribe = match request.start {
            None => subscribe,
            Some(subscribe_request::Start::Last(entries)) => subscribe.last(entries as usize),
            Some(subscribe_request::Start::After(position)) => {
                subscribe.after(convert::to_position(&position))
            }
            Some(subscribe_request::Start::Resume(checkpoint)) => {
                subscribe.resume(convert::to_checkpoint(*checkpoint))
            }
            Some(subscribe_request::Start::Since(since)) => subscribe.since(convert::age(*since)?),
        };
        subscribe = match (request.group.is_empty(), request.durable) {
            (true, false) => subscribe,
            (true, true) => {
                let text = "a durable subscription has no name; set the field group";
                return Err(Status::invalid_argument(text));
            }
            (false, false) => subscribe.group(request.group),
            (false, true) => subscribe.durable(request.group),
        };
        let ack = request.ack.into_option();
        if ack.is_none() && !request.durable {
            return Ok((subscribe, None));
        }
        let ack = ack.unwrap_or_default();
        subscribe = subscribe.ack();
        if let Some(wait) = ack.ack_wait.into_option() {
            subscribe = subscribe.ack_wait(convert::duration("ack_wait", wait)?);
        }
        if ack.attempts_max > 0 {
            subscribe = subscribe.attempts_max(ack.attempts_max);
        }
        if !ack.dead_letter_topic.is_empty() {
            subscribe = subscribe.dead_letters(&ack.dead_letter_topic);
        }
        let mut max = self.bus.limits().unacknowledged_max.max(1);
        if ack.unacknowledged_max > 0 {
            max = max.min(ack.unacknowledged_max as usize);
            subscribe = subscribe.unacknowledged_max(max);
        }
        Ok((subscribe, Some(self.unacknowledged.subscribe(max))))
    }

    /// Checks the topics of a subscription, and the one for its dead letters.
    fn may_subscribe(&self, request: &v1::SubscribeRequest, cx: &Cx) -> Result<()> {
        let topics = convert::to_selector(&request.topic, request.prefix.as_ref())?;
        self.rules.may_subscribe(topics, cx.caller())?;
        let dead_letters = request.ack.as_option().map_or("", |ack| &ack.dead_letter_topic);
        if dead_letters.is_empty() {
            return Ok(());
        }
        self.rules.may_publish(dead_letters, cx.caller())
    }

    /// Returns whether the counters of a topic are for this caller: one that may publish or subscribe to it.
    fn may_see(&self, topic: &str, cx: &Cx) -> bool {
        let caller = cx.caller();
        self.rules.may_subscribe(topic, caller).is_ok() || self.rules.may_publish(topic, caller).is_ok()
    }

    /// Lists the topics that the caller may use.
    async fn list(&self, request: v1::TopicsRequest, cx: &Cx) -> Result<v1::TopicsResponse> {
        let pattern = match (&*request.pattern, &request.prefix) {
            ("", None) => ">",
            (pattern, _) => pattern,
        };
        let mut list = self.bus.topics(convert::to_selector(pattern, request.prefix.as_ref())?);
        if request.limit > 0 {
            list = list.limit(request.limit as usize);
        }
        if !request.page_token.is_empty() {
            list = list.page(request.page_token);
        }
        let page = list.await?;
        let topics = page.topics.into_iter().filter(|listed| self.may_see(listed.topic.name(), cx));
        let topics = topics.map(|listed| convert::topic(listed.topic.name().to_owned(), listed.stats));
        let next_page_token = page.next.unwrap_or_default();
        Ok(v1::TopicsResponse { topics: topics.collect(), next_page_token, ..Default::default() })
    }

    /// Runs an operation for each entry; returns the ids of those for which it had no effect.
    fn each_unacknowledged(
        &self,
        ack_ids: Vec<String>,
        run: impl Fn(&Message<Bytes>) -> bool,
    ) -> Result<Vec<String>> {
        check_names(ack_ids.len(), "ack_ids")?;
        // All are parsed first: a malformed one refuses the whole request.
        let parsed: Vec<AckId> = ack_ids.iter().map(|id| id.parse()).collect::<Result<_>>()?;
        let taken = self.unacknowledged.take(parsed.into_iter());
        let unknown =
            ack_ids.into_iter().zip(taken).filter(|(_, message)| !message.as_ref().is_some_and(&run));
        Ok(unknown.map(|(text, _)| text).collect())
    }
}

/// Converts a delivered entry, and holds it for its acknowledgement.
fn entry(message: Message<Bytes>, is_pattern: bool, acks: Option<&SubscriptionAcks>) -> v1::Entry {
    let mut entry = convert::entry(&message);
    if is_pattern {
        (entry.shard, entry.sequence) = message.sequence();
    }
    if let Some(acks) = acks {
        entry.ack_id = acks.hold(message).to_text();
    }
    entry
}

fn entry_of(entry: Option<v1::Publication>) -> Result<v1::Publication> {
    entry.ok_or_else(|| Status::invalid_argument("field entry of the request is missing"))
}

fn check_names(count: usize, field: &str) -> Result<()> {
    if count > NAMES_MAX {
        let text =
            format!("field {field} has {count} values; the limit is {NAMES_MAX}; send several requests");
        return Err(Status::resource_exhausted(text));
    }
    Ok(())
}
