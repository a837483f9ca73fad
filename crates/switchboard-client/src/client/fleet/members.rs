//! Sets of members: created from the instances of a fleet; members that stay keep their connections.

use super::{
    super::ChannelBuilder,
    Shared,
    link::{Link, Member},
};
use std::{collections::HashMap, sync::Arc};
use switchboard_core::Result;
use switchboard_discovery::{
    balance::{Endpoint, Endpoints, subset},
    discover::Instance,
};
use switchboard_wire::{Codec, Retry, Status};

/// The members at one time.
pub(super) struct Set {
    pub(super) endpoints: Endpoints,
    /// In the order of `endpoints`.
    pub(super) members: Vec<Arc<Member>>,
    /// A member whose address selects the wire of another framework. Such wires have their own codecs, which members on
    /// the native wire support, too.
    pub(super) foreign: Option<Arc<Member>>,
}

impl Default for Set {
    fn default() -> Set {
        Set { endpoints: Endpoints::new(Vec::new()), members: Vec::new(), foreign: None }
    }
}

impl Shared {
    /// Creates a set of the endpoints that the policy selects. Endpoints of the previous set keep their connections.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid address; without `strictly` such endpoints are skipped and logged.
    pub(super) fn next_set(self: &Arc<Self>, instances: Vec<Instance>, strictly: bool) -> Result<Set> {
        let before = self.set().clone();
        let known: HashMap<(&str, &str), &Arc<Link>> = (before.members.iter())
            .map(|member| ((member.endpoint.id(), member.endpoint.address()), &member.link))
            .collect();
        let wanted: Vec<Endpoint> =
            instances.into_iter().map(Endpoint::new).filter(|endpoint| self.policy.wants(endpoint)).collect();
        let wanted = match self.policy.subset {
            None => wanted,
            Some((size, client)) => {
                let ids = wanted.iter().map(Endpoint::id).map(str::to_owned).collect::<Vec<_>>();
                let chosen = subset(ids.iter().map(String::as_str), client, size);
                wanted.into_iter().filter(|endpoint| chosen.contains(endpoint.id())).collect()
            }
        };
        let mut members = Vec::with_capacity(wanted.len());
        for endpoint in wanted {
            let link = match known.get(&(endpoint.id(), endpoint.address())) {
                Some(link) => (*link).clone(),
                None => match self.base.member(endpoint.address()) {
                    Ok(channel) => Arc::new(Link::new(channel)),
                    Err(status) if strictly => return Err(status),
                    Err(status) => {
                        tracing::warn!(endpoint = endpoint.address(), %status, "cannot use the address of an instance");
                        continue;
                    }
                },
            };
            let endpoint = Arc::new(endpoint.with_stats(link.stats.clone()));
            members.push(Arc::new(Member { endpoint, link, shared: self.clone() }));
        }
        members.sort_by(|a, b| a.endpoint.id().cmp(b.endpoint.id()));
        let endpoints = Endpoints::shared(members.iter().map(|member| member.endpoint.clone()).collect());
        let usual = self.base.options().codec(Codec::Postcard);
        let is_foreign = |member: &&Arc<Member>| member.link.channel.codec(Codec::Postcard) != usual;
        let foreign = members.iter().find(is_foreign).cloned();
        Ok(Set { endpoints, members, foreign })
    }
}

/// Maximum number of endpoints named in a message.
const NAMED_MAX: usize = 5;

impl Set {
    /// The status for callers while no endpoint is connected.
    pub(super) fn connect_error(&self, base: &ChannelBuilder) -> Status {
        let text = match &self.members[..] {
            [] => format!("there is no endpoint of {}", base.name()),
            // For a single endpoint its own error is enough.
            [only] => match only.link.last() {
                Some(last) => return last.with_retry(Retry::Safe),
                None => format!("{} is not connected yet", only.endpoint.address()),
            },
            members => {
                let why = |member: &Arc<Member>| match member.link.last() {
                    Some(last) => last.message().to_owned(),
                    None => format!("{} is not connected yet", member.endpoint.address()),
                };
                let more = members.len().saturating_sub(NAMED_MAX);
                let more = if more == 0 { String::new() } else { format!("; and {more} more") };
                let each: Vec<_> = members.iter().take(NAMED_MAX).map(why).collect();
                format!("none of {} endpoints is connected: {}{more}", members.len(), each.join("; "))
            }
        };
        Status::unavailable(text).with_origin(switchboard_wire::Origin::Connection).with_retry(Retry::Safe)
    }
}
