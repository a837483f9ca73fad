//! Configuration of the guards, and construction of the chains.

use super::{
    Chain, Concurrency, Fair, Method, Rate, ResultCache, Rule,
    access::{Addresses, Check},
    audit,
    concurrency::{ConcurrencyStats, Limiter},
    deadlines::Deadlines,
    fair::Queue,
    hooks::{Connected, Hooks},
    rate,
    results::Keeper,
    unknown::UnknownRules,
};
use std::{net::IpAddr, sync::Arc, time::Duration};
use switchboard_auth::auth::{Accepted, Auth};
use switchboard_core::{Error, Flag, Peer, Result, layer::Layer, pattern};
use switchboard_wire::{MethodId, MethodTable, WireSet};

/// Name in rules for the response to `switchboard-explain`.
const EXPLAIN: &str = "switchboard.Limits/Explain";

/// Guard configuration until the server starts.
#[derive(Default)]
pub struct Guards {
    /// Layers, the outermost first.
    pub layers: Vec<Arc<dyn Layer>>,
    /// Limit of concurrency of the server.
    pub concurrency: Option<Concurrency>,
    /// Fair queue before this limit.
    pub fair: Option<Fair>,
    /// Limits of concurrency by service.
    pub services: Vec<(String, Concurrency)>,
    /// Limits of concurrency by method.
    pub methods: Vec<(String, Concurrency)>,
    /// Rates of calls.
    pub rates: Vec<Rate>,
    /// Checks of credentials, in their order.
    pub auth: Vec<Box<dyn Auth>>,
    /// Access rules.
    pub rules: Vec<Rule>,
    /// Address ranges whose connections are accepted.
    pub addresses: Addresses,
    /// Wires that the server is limited to.
    pub wires: Option<WireSet>,
    /// Wires in addition to those.
    pub added_wires: WireSet,
    /// Longest deadline of calls.
    pub deadline: Option<Duration>,
    /// Flag that changes it.
    pub deadline_flag: Option<Flag>,
    /// Longest deadlines by method.
    pub deadlines: Vec<(String, Duration)>,
    /// Further names of methods.
    pub aliases: Vec<(String, String)>,
    /// Methods that every caller may see.
    pub exposed: Vec<String>,
    /// Methods that no caller may see.
    pub hidden: Vec<String>,
    /// Caches of results.
    pub caches: Vec<ResultCache>,
    /// Functions that observe calls.
    pub hooks: Hooks,
}

/// The active guards.
#[derive(Default)]
pub struct Guarding {
    /// Chains by service; empty without guards and layers.
    chains: Vec<Arc<Chain>>,
    limiters: Vec<Arc<Limiter>>,
    addresses: Addresses,
    /// Deadlines by method.
    pub deadlines: Deadlines,
    hooks: Option<Arc<Hooks>>,
    /// The configured authentication.
    pub(super) auth: Arc<[Box<dyn Auth>]>,
    /// Kinds of credentials that `auth` accepts.
    #[cfg(feature = "http")]
    pub accepted: Arc<Accepted>,
    #[cfg(feature = "http")]
    pub(super) rules: Vec<Rule>,
}

impl Guards {
    /// Describes the guards that a call passes, in order.
    pub fn order(&self) -> Vec<String> {
        let mut order = Vec::new();
        let mut push = |present: bool, what: &str| {
            if present {
                order.push(what.to_owned());
            }
        };
        push(
            !self.addresses.allowed.is_empty() || !self.addresses.denied.is_empty(),
            "addresses of connections",
        );
        push(!self.hooks.connect.is_empty(), "on_connect");
        let caps = self.deadline.is_some() || self.deadline_flag.is_some() || !self.deadlines.is_empty();
        push(caps, "deadline caps");
        push(self.wires.is_some(), "wires");
        for auth in &self.auth {
            push(true, &format!("auth by {}", auth.name()));
        }
        for rule in &self.rules {
            push(true, &format!("rule for {}", rule.pattern()));
        }
        for rate in &self.rates {
            push(true, &format!("rate of {}", rate.methods));
        }
        let limits = self.concurrency.is_some() || !self.services.is_empty() || !self.methods.is_empty();
        push(self.fair.is_some(), "fair queue");
        push(limits, "concurrency limits");
        for layer in &self.layers {
            push(true, &format!("layer {}", layer.name()));
        }
        for cache in &self.caches {
            push(true, &format!("result cache of {}", cache.methods));
        }
        order
    }

    /// Applies the aliases of methods, and removes methods that must not be callable.
    ///
    /// # Errors
    /// Fails on names of methods that do not exist.
    pub fn name(&self, table: &mut MethodTable) -> Result<(), Error> {
        let mut shown = vec![self.exposed.is_empty(); table.slots()];
        for (patterns, value, setting) in [(&self.exposed, true, "expose"), (&self.hidden, false, "hide")] {
            for pattern in patterns {
                for id in pattern::find(table, pattern, setting)? {
                    shown[usize::from(id.0)] = value;
                }
            }
        }
        for (alias, name) in &self.aliases {
            table.alias(alias, name).map_err(|why| Error::config(format!("alias: {why}")))?;
        }
        for at in (0..table.slots()).filter(|at| !shown[*at]) {
            table.hide(MethodId(at as u16));
        }
        Ok(())
    }

    /// Builds the chains for the services of `table`; `limited` states whether a listener restricts its
    /// wires.
    ///
    /// # Errors
    /// Fails on names of services and methods that do not exist, and on invalid rates and networks.
    pub fn build(mut self, table: &MethodTable, limited: bool) -> Result<Guarding, Error> {
        let mut guarding = self.without_chains(table)?;
        let counts = self.concurrency.is_some() || !(self.services.is_empty() && self.methods.is_empty());
        let screens = limited || !self.auth.is_empty() || !self.rules.is_empty();
        if self.fair.is_some() && self.concurrency.is_none() {
            let text = "fair: there is nothing to wait for without a concurrency limit of the server";
            return Err(Error::config(text));
        }
        if !counts && !screens && self.rates.is_empty() && self.layers.is_empty() && self.caches.is_empty() {
            return Ok(guarding);
        }
        let all: Vec<_> = (0..table.slots()).map(|at| MethodId(at as u16)).collect();
        let mut methods = self.checked(table, &all)?;
        add_rates(std::mem::take(&mut self.rates), table, &mut methods)?;
        guarding.limiters = self.add_limiters(table, &all, &mut methods)?;
        // The limit of the server comes first.
        let queue = self.fair.map(|fair| Arc::new(Queue::new(fair, guarding.limiters[0].clone())));
        let accepted = Arc::new(Accepted::by(&self.auth));
        let auth: Arc<[Box<dyn Auth>]> = self.auth.into();
        let auth_reads = auth.iter().any(|auth| auth.reads_message());
        let explains = self.rules.iter().find(|rule| rule.is_for(EXPLAIN)).map(Rule::check).transpose()?;
        let mut keepers = keepers(&self.caches, table)?.into_iter();
        let unknown = match table.guards_unknown() {
            true => Some((methods.last().cloned().unwrap_or_default(), UnknownRules::new(&self.rules)?)),
            false => None,
        };
        let mut methods = methods.into_iter();
        let chain = |count: usize| {
            let methods = methods.by_ref().take(count).collect();
            // Layers may authenticate and reject: they see every call, including calls whose response is
            // stored.
            let mut layers = self.layers.clone();
            layers.extend(keepers.next().unwrap_or_default());
            Arc::new(Chain {
                methods,
                auth: auth.clone(),
                accepted: accepted.clone(),
                auth_reads,
                screens,
                queue: queue.clone(),
                layers,
                explains: explains.clone(),
                unknown: None,
            })
        };
        let counts = table.services().iter().map(|service| service.methods.len());
        guarding.chains = counts.chain(table.accepts_undeclared().then_some(1)).map(chain).collect();
        if let Some((method, rules)) = unknown {
            guarding.chains.push(Arc::new(Chain {
                methods: vec![method],
                auth_reads,
                auth: auth.clone(),
                accepted: accepted.clone(),
                screens: true,
                queue: None,
                // Layers see the calls of methods that exist.
                layers: Vec::new(),
                explains,
                unknown: Some(rules),
            }));
        }
        guarding.auth = auth;
        #[cfg(feature = "http")]
        {
            guarding.rules = self.rules;
            guarding.accepted = accepted;
        }
        Ok(guarding)
    }

    /// Returns addresses, deadlines and hooks, which apply without a chain.
    fn without_chains(&mut self, table: &MethodTable) -> Result<Guarding, Error> {
        let hooks = std::mem::take(&mut self.hooks);
        let has_hooks = !hooks.connect.is_empty() || !hooks.disconnect.is_empty();
        Ok(Guarding {
            addresses: std::mem::take(&mut self.addresses),
            deadlines: Deadlines::new(self.deadline, self.deadline_flag.take(), &self.deadlines, table)?,
            hooks: has_hooks.then(|| Arc::new(hooks)),
            ..Guarding::default()
        })
    }

    /// Adds limits of calls in flight to the methods, and returns them: that of the server, of services, of methods.
    fn add_limiters(
        &self,
        table: &MethodTable,
        all: &[MethodId],
        methods: &mut [Method],
    ) -> Result<Vec<Arc<Limiter>>, Error> {
        let mut limiters = Vec::new();
        let mut limit = |what: String, concurrency: &Concurrency, ids: &[MethodId]| {
            let limiter = Arc::new(Limiter::new(what, concurrency));
            for id in ids {
                let method = &mut methods[usize::from(id.0)];
                method.limiters.push(limiter.clone());
                if concurrency.is_in_time() {
                    method.in_time.push(limiter.clone());
                }
            }
            limiters.push(limiter);
        };
        if let Some(concurrency) = &self.concurrency {
            limit("server".into(), concurrency, all);
        }
        for (service, concurrency) in &self.services {
            let ids = pattern::find(table, &format!("{service}/*"), "service_concurrency")?;
            limit(format!("service {service}"), concurrency, &ids);
        }
        for (pattern, concurrency) in &self.methods {
            for id in pattern::find(table, pattern, "method_concurrency")? {
                limit(format!("method {}", table.full_name(id)), concurrency, &[id]);
            }
        }
        Ok(limiters)
    }

    /// Returns the methods with their rules; the first matching rule applies.
    fn checked(&self, table: &MethodTable, all: &[MethodId]) -> Result<Vec<Method>, Error> {
        for rule in &self.rules {
            // Names of standard services are not in the method table.
            if !rule.is_of_discovery() && rule.pattern() != EXPLAIN {
                pattern::find(table, rule.pattern(), "rule")?;
            }
            rule.check()?;
        }
        let method = |id: &MethodId| {
            let name = table.full_name(*id);
            let check = match self.rules.iter().find(|rule| rule.is_for(&name)) {
                Some(rule) => rule.check()?,
                None => Check::of_all(!self.auth.is_empty()),
            };
            Ok(Method { name: name.into(), check, ..Method::default() })
        };
        all.iter().map(method).collect()
    }
}

/// Adds each rate to the methods that it names.
fn add_rates(rates: Vec<Rate>, table: &MethodTable, methods: &mut [Method]) -> Result<(), Error> {
    for rate in rates {
        let ids = pattern::find(table, &rate.methods, "rate")?;
        let limit = Arc::new(rate::Limit::new(rate)?);
        for id in ids {
            methods[usize::from(id.0)].rates.push(limit.clone());
        }
    }
    Ok(())
}

/// Returns the layers that store the responses of each service.
///
/// # Errors
/// Fails on names of methods that do not exist.
fn keepers(caches: &[ResultCache], table: &MethodTable) -> Result<Vec<Vec<Arc<dyn Layer>>>, Error> {
    let mut keepers: Vec<Vec<Arc<dyn Layer>>> = table.services().iter().map(|_| Vec::new()).collect();
    for cache in caches {
        let ids = pattern::find(table, &cache.methods, "result_cache")?;
        let store = cache.build();
        let mut first = 0;
        for (at, service) in table.services().iter().enumerate() {
            let index = |method: usize| MethodId((first + method) as u16);
            let methods: Vec<_> = (0..service.methods.len()).map(|at| ids.contains(&index(at))).collect();
            first += service.methods.len();
            if methods.contains(&true) {
                keepers[at].push(Arc::new(Keeper::new(store.clone(), at as u16, methods)));
            }
        }
    }
    Ok(keepers)
}

impl Guarding {
    /// Returns the chain of a service.
    pub fn chain(&self, service: usize) -> Option<Arc<Chain>> {
        self.chains.get(service).cloned()
    }

    #[cfg(test)]
    pub(super) fn into_chains(self) -> Vec<Arc<Chain>> {
        self.chains
    }

    /// Returns the state of every limit of concurrency.
    pub fn concurrency(&self) -> Vec<ConcurrencyStats> {
        self.limiters.iter().map(|limiter| limiter.stats()).collect()
    }

    /// Returns whether a peer at this address may connect; writes an audit line if not.
    pub fn admits(&self, peer: &Peer) -> bool {
        let address: Option<IpAddr> = peer.socket.map(|socket| socket.ip());
        let admits = self.addresses.admits(address);
        if !admits && let Some(left_out) = audit::line() {
            tracing::warn!(
                target: "switchboard::audit",
                left_out,
                peer = peer.address,
                by = "addresses",
                "connection denied"
            );
        }
        admits
    }

    /// Runs the hooks for the start of a connection.
    ///
    /// # Errors
    /// Returns the reason of a rejection, which is also written to the audit log.
    pub fn connect(&self, peer: &Peer) -> Result<Option<Box<Connected>>> {
        let Some(hooks) = &self.hooks else { return Ok(None) };
        Hooks::connect(hooks, peer).inspect_err(|status| {
            let Some(left_out) = audit::line() else { return };
            tracing::warn!(
                target: "switchboard::audit",
                left_out,
                peer = peer.address,
                by = "on_connect",
                "connection denied: {}",
                status.message()
            );
        })
    }

    /// Removes methods that not every caller may call from the error texts of `table`.
    pub fn unlist(&self, table: &mut MethodTable) {
        for at in 0..table.len() {
            let id = MethodId(at as u16);
            if self.check(table, id).is_some_and(|check| !check.is_open()) {
                table.unlist(id);
            }
        }
    }

    /// Returns the rules of a method; `None` if the server has no guards.
    pub(super) fn check(&self, table: &MethodTable, id: MethodId) -> Option<&Check> {
        let (service, index) = table.service_and_index(id);
        let chain = self.chains.get(usize::from(service))?;
        Some(&chain.method(index).check)
    }
}
