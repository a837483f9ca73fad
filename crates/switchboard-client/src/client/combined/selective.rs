//! Each call goes to one of several channels, and on failure to another.

use super::super::{
    Begin, Channel,
    calls::RawResponse,
    connection::Connection,
    fleet::{Budget, may_repeat},
    kind::ChannelKind,
    streaming::StartedStream,
    unary,
};
use bytes::Bytes;
use std::{fmt, future::Future, sync::Arc, time::Duration};
use switchboard_core::{Result, layer::BoxFuture, queue::Queue};
use switchboard_discovery::{
    balance::{Balance, Demand, Endpoint, Endpoints, Outcome, P2c, Pick, Probe},
    discover::Instance,
};
use switchboard_wire::{Code, Codec, Retry, Status};

/// A channel that sends each call to one of several channels, and on failure to another, see [`Channel::selective`].
/// For calls of all kinds; streams are retried only before they have begun.
#[derive(Clone)]
#[must_use = "it is a channel once it is built"]
pub struct Selective {
    channels: Vec<Channel>,
    balance: Arc<dyn Balance>,
    retries: u32,
    /// Each channel as an endpoint for balancers, in the same order.
    set: Arc<Endpoints>,
    budget: Arc<Budget>,
}

impl Channel {
    /// Creates a channel that sends each call to one of these, selected by latency and load, and on failure to another
    /// one that was not tried, if the call may be repeated: the server reports that it did not begin, or the method or
    /// the call is idempotent. The channels may be of any kind: single servers, fleets of other data centres,
    /// combinations.
    pub fn selective(channels: impl IntoIterator<Item = Channel>) -> Selective {
        let channels: Vec<_> = channels.into_iter().collect();
        // Ids with leading zeros, which sort like the numbers.
        let endpoint = |at| Endpoint::new(Instance::new("", format!("channel {at}")).id(format!("{at:09}")));
        let set = Arc::new(Endpoints::new((0..channels.len()).map(endpoint).collect()));
        Selective {
            channels,
            balance: Arc::new(P2c),
            retries: 3,
            set,
            budget: Arc::new(Budget::new(10, 10, switchboard_core::clock::now_ns())),
        }
    }
}

impl Selective {
    /// Sets the balancer, by default [`P2c`]. Channels have the ids `000000000`, `000000001` and so on.
    pub fn balance(mut self, balance: impl Balance) -> Selective {
        self.balance = Arc::new(balance);
        self
    }

    /// Sets the maximum number of retries, each on a channel that was not tried; the default is 3.
    pub fn retries(mut self, most: u32) -> Selective {
        self.retries = most;
        self
    }

    /// Sets the retry budget: retries per 100 calls of the last seconds, and retries per second that are always
    /// allowed; the default is 10 and 10.
    pub fn retry_budget(mut self, percent: u32, floor: u32) -> Selective {
        self.budget = Arc::new(Budget::new(percent, floor, switchboard_core::clock::now_ns()));
        self
    }

    /// Builds the channel.
    ///
    /// # Errors
    /// `InvalidArgument` without a channel.
    pub fn build(self) -> Result<Channel> {
        super::check(&self.channels)?;
        Ok(Channel(Arc::new(self)))
    }

    /// Sends the call to one channel after the other until one replies, or the call must not be retried.
    async fn tried<T, F>(
        &self,
        begin: &Begin,
        request: &[u8],
        again: bool,
        mut send: impl FnMut(Begin) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let deadline = begin.deadline(switchboard_core::clock::now());
        let (mut tried, mut retries) = (Vec::new(), 0);
        loop {
            let at = self.pick(begin, request, &tried);
            let permit = ChannelPermit::new(self, at, begin.method.path);
            let outcome = send(begin.part(&self.channels[at], deadline)).await;
            permit.ended(outcome.as_ref().err());
            let Err(status) = outcome else { return outcome };
            tried.push(self.set[at].number());
            let left = tried.len() < self.channels.len() && retries < self.retries && again;
            if !left || !may_repeat(&status, begin.is_idempotent()) {
                return Err(status);
            }
            let calls = self.set.iter().map(Endpoint::calls).sum();
            if !self.budget.spend(calls, switchboard_core::clock::now_ns()) {
                return Err(status);
            }
            if deadline.is_some_and(|deadline| deadline <= switchboard_core::clock::now()) {
                return Err(status);
            }
            retries += 1;
        }
    }

    /// Selects the index of the next channel.
    fn pick(&self, begin: &Begin, request: &[u8], tried: &[u64]) -> usize {
        let key = begin.options.as_ref().and_then(|options| options.hash_key.as_ref());
        let key = key.map_or(request, |key| &key[..]);
        let now_ns = switchboard_core::clock::now_ns();
        for demand in [Demand::Healthy, Demand::Connected] {
            let pick = Pick::new(begin.method.path, now_ns, switchboard_core::clock::random())
                .with_key(Some(key))
                .tried(tried)
                .demanding(demand, "");
            let at = self.balance.pick(&self.set, &pick);
            // A custom balancer may return any index.
            if let Some(at) = at.filter(|at| *at < self.set.len() && pick.accepts(&self.set[*at])) {
                return at;
            }
        }
        (0..self.set.len()).find(|at| !tried.contains(&self.set[*at].number())).unwrap_or(0)
    }
}

impl ChannelKind for Selective {
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("selective").field(&self.channels).finish()
    }

    fn prepare(&self, _begin: &mut Begin) -> Option<Arc<Connection>> {
        None
    }

    fn unary(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>> {
        Box::pin(async move {
            let mut sent = 0;
            let send = |part: Begin| {
                sent += 1;
                unary::run(part, request.clone())
            };
            let response = self.tried(&begin, &request, true, send).await?;
            Ok(RawResponse { attempts: response.attempts + sent - 1, ..response })
        })
    }

    fn oneway(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.tried(&begin, &request, true, |part| part.oneway(request.clone())).await })
    }

    fn stream(
        self: Arc<Self>,
        begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        Box::pin(async move {
            let request = message.clone().unwrap_or_default();
            // Requests that were taken from their queue cannot be sent again.
            let again = outbound.is_none();
            let send = |part: Begin| part.stream(message.clone(), outbound.clone());
            self.tried(&begin, &request, again, send).await
        })
    }

    fn codec(&self, preferred: Codec) -> Codec {
        super::codec(&self.channels, preferred)
    }

    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>) {
        super::add_hosts(&self.channels, hosts);
    }
}

/// A call on a channel. Dropping it without [`ended`](Self::ended) means that the caller dropped the call.
struct ChannelPermit<'a> {
    by: &'a Selective,
    at: usize,
    method: &'static str,
    begun_ns: u64,
    probe: Probe,
    code: Code,
}

impl<'a> ChannelPermit<'a> {
    fn new(by: &'a Selective, at: usize, method: &'static str) -> ChannelPermit<'a> {
        let begun_ns = switchboard_core::clock::now_ns();
        by.set[at].stats().begun();
        let probe = by.set[at].stats().breakers().begun(method, begun_ns);
        ChannelPermit { by, at, method, begun_ns, probe, code: Code::Canceled }
    }

    fn ended(mut self, failure: Option<&Status>) {
        self.code = failure.map_or(Code::Ok, |status| match status.retry() {
            // A rejection because of load is not a failure of the channel.
            Retry::After(_) => Code::ResourceExhausted,
            _ => status.code(),
        });
    }
}

impl Drop for ChannelPermit<'_> {
    fn drop(&mut self) {
        let now_ns = switchboard_core::clock::now_ns();
        let took = Duration::from_nanos(now_ns.saturating_sub(self.begun_ns));
        let outcome = Outcome::new(took, self.code);
        let endpoint = &self.by.set[self.at];
        endpoint.stats().ended(&outcome, now_ns);
        let failed = (self.code != Code::Canceled).then(|| outcome.is_fault());
        let breaking = switchboard_discovery::balance::Breaking::default();
        endpoint.stats().breakers().ended(&breaking, self.method, self.probe, failed, now_ns);
        self.by.balance.done(endpoint, &outcome);
    }
}

impl fmt::Debug for Selective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selective")
            .field("channels", &self.channels)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
