//! The ways of callers to the servers: channels on any wire, to a list of servers, to those of a registry, or to one.

use super::{chance::Chance, journal::Journal, node::Node, registry::Book, wires::Wire};
use crate::{
    Channel, Codec,
    discover::{Discovery, Registry},
};
use std::sync::Arc;

/// Retries of each channel: so many for 100 calls, and a second.
pub(super) const BUDGET: (u32, u32) = (20, 5);

const BALANCERS: [&str; 9] =
    ["p2c", "random", "round_robin", "weighted", "least_active", "ketama", "bounded", "jump", "ping"];
const FAIL_MODES: [&str; 5] = ["failover", "failover", "failfast", "failtry", "failbackup"];

/// A channel, and what it speaks.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) channel: Channel,
    pub(super) wire: &'static Wire,
    /// Whether it sends a second attempt beside a late one.
    pub(super) hedges: bool,
    /// Where it finds the servers.
    registry: Option<Arc<Discovery>>,
}

impl Way {
    /// One to all servers or, without anything that chooses, to the first; with any options.
    pub(super) fn new(
        nodes: &[Arc<Node>],
        book: &Book,
        wire: &'static Wire,
        chance: &Chance,
        journal: &Journal,
    ) -> Way {
        let registry = chance.percent(40).then(|| book.registry(wire));
        let is_plain = registry.is_none() && chance.percent(15);
        let options = if is_plain { String::new() } else { options(wire, chance) };
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
        let builder = builder.connections(chance.within(1..=2) as usize).keepalive(chance.millis(200..=5000));
        let found = if registry.is_some() { "in the registry" } else { "listed" };
        journal.note(format_args!("channel on {}, servers {found}: {options}", wire.name()));
        let hedges = ["fail=failbackup", "hedge="].iter().any(|option| options.contains(option));
        Way { channel: builder.lazy().unwrap(), wire, hedges, registry }
    }

    pub(super) fn codec(&self) -> Codec {
        self.wire.codec
    }

    /// Notes what the channel makes of servers that fail.
    pub(super) fn look(&self, journal: &Journal) {
        for endpoint in self.channel.endpoints() {
            if endpoint.state == "ejected" {
                journal.saw("an ejection");
            }
            if !endpoint.open_breakers.is_empty() {
                journal.saw("an open breaker");
            }
        }
        if let Some(registry) = &self.registry
            && !registry.watch("sim.Work").state().held_back.is_empty()
        {
            journal.saw("servers held back");
        }
    }

    /// The servers that it has from the registry, if none of them is in doubt.
    pub(super) fn known(&self) -> Option<Vec<String>> {
        let registry = self.registry.as_ref()?;
        let certain = registry.watch("sim.Work").state().held_back.is_empty();
        certain.then(|| self.channel.endpoints().into_iter().map(|endpoint| endpoint.id).collect())
    }

    /// Nobody calls: nothing may be held for a call. All servers are known.
    pub(super) fn check_idle(&self, nodes: usize) {
        for endpoint in self.channel.endpoints() {
            assert_eq!(endpoint.in_flight, 0, "{}", endpoint.address);
        }
        for (what, left) in self.channel.left() {
            assert_eq!(left, 0, "{what} of {:?}", self.channel);
        }
        if let Some(known) = self.known() {
            assert_eq!(known.len(), nodes, "the channel knows {known:?}");
        }
    }
}

/// Options of a fleet.
fn options(wire: &Wire, chance: &Chance) -> String {
    let mut options = format!(
        "balance={}&fail={}&retries={}",
        chance.one_of(&BALANCERS),
        chance.one_of(&FAIL_MODES),
        chance.within(0..=4)
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
        if chance.percent(percent) && (wire.compresses || option != "compression=gzip") {
            options = format!("{options}&{option}");
        }
    }
    options
}
