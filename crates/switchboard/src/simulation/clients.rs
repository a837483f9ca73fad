//! Clients of the callers: channels on any wire, to a list of servers, to those of a registry, or to one server.

use super::{journal::Journal, node::Node, random::Random, registry::SimRegistry, wires::Wire};
use std::sync::Arc;
use switchboard_client::Channel;
use switchboard_discovery::discover::{Discovery, Registry};
use switchboard_wire::Codec;

/// Retry budget of each channel: percentage of the calls, and retries per second.
pub(super) const BUDGET: (u32, u32) = (20, 5);

const BALANCERS: [&str; 9] =
    ["p2c", "random", "round_robin", "weighted", "least_active", "ketama", "bounded", "jump", "ping"];
const FAIL_MODES: [&str; 5] = ["failover", "failover", "failfast", "failtry", "failbackup"];

/// A channel and its wire.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) channel: Channel,
    pub(super) wire: &'static Wire,
    /// True when it sends a hedge, a second attempt beside a slow one.
    pub(super) hedges: bool,
    /// The registry that it finds the servers in.
    registry: Option<Arc<Discovery>>,
}

impl Client {
    /// Creates a client of all servers or, without a fleet, of the first; with random options.
    pub(super) fn new(
        nodes: &[Arc<Node>],
        sim_registry: &SimRegistry,
        wire: &'static Wire,
        random: &Random,
        journal: &Journal,
    ) -> Client {
        let registry = random.percent(40).then(|| sim_registry.registry(wire));
        let is_plain = registry.is_none() && random.percent(15);
        let options = if is_plain { String::new() } else { options(wire, random) };
        let builder = match &registry {
            Some(registry) => Channel::fleet(registry.clone(), "sim.Work").url_options(&options).unwrap(),
            None => {
                let urls: Vec<_> = nodes.iter().map(|node| node.front.as_str()).collect();
                let urls = if is_plain { urls[0].to_owned() } else { urls.join(",") };
                let join = if wire.options.is_empty() { "?" } else { "&" };
                Channel::builder(format!("{}{join}{options}", wire.at(&urls)).trim_end_matches(['?', '&']))
            }
        };
        let builder = if is_plain { builder } else { builder.retry_budget(BUDGET.0, BUDGET.1) };
        let builder = builder.connections(random.within(1..=2) as usize).keepalive(random.millis(200..=5000));
        let found = if registry.is_some() { "in the registry" } else { "listed" };
        journal.note(format_args!("channel on {}, servers {found}: {options}", wire.name()));
        let hedges = ["fail=failbackup", "hedge="].iter().any(|option| options.contains(option));
        Client { channel: builder.lazy().unwrap(), wire, hedges, registry }
    }

    pub(super) fn codec(&self) -> Codec {
        self.wire.codec
    }

    /// Records how the channel treats servers that fail.
    pub(super) fn observe_failures(&self, journal: &Journal) {
        for endpoint in self.channel.endpoints() {
            if endpoint.state == "ejected" {
                journal.observed("an ejection");
            }
            if !endpoint.open_breakers.is_empty() {
                journal.observed("an open breaker");
            }
        }
        if let Some(registry) = &self.registry
            && !registry.watch("sim.Work").state().held_back.is_empty()
        {
            journal.observed("servers held back");
        }
    }

    /// Returns the servers that it has from the registry, when none of them is held back.
    pub(super) fn registry_servers(&self) -> Option<Vec<String>> {
        let registry = self.registry.as_ref()?;
        let certain = registry.watch("sim.Work").state().held_back.is_empty();
        certain.then(|| self.channel.endpoints().into_iter().map(|endpoint| endpoint.id).collect())
    }

    /// Checks, while there are no calls, that the channel holds nothing for a call and knows all servers.
    pub(super) fn check_idle(&self, nodes: usize) {
        for endpoint in self.channel.endpoints() {
            assert_eq!(endpoint.in_flight, 0, "{}", endpoint.address);
        }
        for (what, left) in self.channel.left() {
            assert_eq!(left, 0, "{what} of {:?}", self.channel);
        }
        if let Some(registry_servers) = self.registry_servers() {
            assert_eq!(registry_servers.len(), nodes, "servers of the channel: {registry_servers:?}");
        }
    }
}

/// Returns random options of a fleet.
fn options(wire: &Wire, random: &Random) -> String {
    let mut options = format!(
        "balance={}&fail={}&retries={}",
        random.one_of(&BALANCERS),
        random.one_of(&FAIL_MODES),
        random.within(0..=4)
    );
    for (percent, option) in [
        (20, "sticky=true"),
        (20, "breaker=off"),
        (20, "eject=0"),
        (20, "slow_start=1s"),
        (20, "hedge=10ms"),
        (20, "compression=gzip"),
        (30, "hash=request"),
    ] {
        if random.percent(percent) && (wire.compresses || option != "compression=gzip") {
            options = format!("{options}&{option}");
        }
    }
    options
}

#[test]
fn every_balancer_is_simulated() {
    let names = switchboard_discovery::balance::BALANCERS.map(|spec| spec.name);
    // It needs a location.
    for name in names.into_iter().filter(|name| *name != "closest") {
        assert!(BALANCERS.contains(&name), "{name}");
    }
}
