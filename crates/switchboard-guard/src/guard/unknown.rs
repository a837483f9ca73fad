//! Calls of unknown methods pass the guards, so that callers without credentials cannot find out which methods exist.

use super::{Chain, Guarding, Rule, access::Check};
use std::sync::Arc;
use switchboard_core::{Call, Error, Reply, Result, Service};
use switchboard_wire::{Kind, MethodId, MethodInfo, MethodTable, Params, ServiceInfo, Status};

static INFO: ServiceInfo = ServiceInfo {
    name: "*",
    methods: &[
        MethodInfo::new("*", Kind::Unary).params(Params::AsSent),
        MethodInfo::new("*", Kind::Bidi).params(Params::AsSent),
    ],
    descriptor: &[],
};

/// Service of the unknown methods: ends each call with the status of its wire for the name.
pub struct Unknown {
    table: Arc<MethodTable>,
    /// Rules of the methods that exist, by number.
    checks: Box<[Check]>,
}

impl Unknown {
    /// Creates the service with the access rules of all methods.
    pub fn new(table: &Arc<MethodTable>, guarding: &Guarding) -> Unknown {
        let check = |at| guarding.check(table, MethodId(at as u16)).cloned().unwrap_or_default();
        Unknown { table: table.clone(), checks: (0..table.len()).map(check).collect() }
    }

    /// Returns whether the caller may call a method that exists.
    fn shows(&self, call: &Call, id: MethodId) -> bool {
        let (peer, caller) = (call.cx().peer(), call.cx().caller());
        let check = self.checks.get(usize::from(id.0));
        check.is_some_and(|check| check.before(peer).is_ok() && check.after(caller).is_ok())
    }
}

impl Service for Unknown {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let Some(refusal) = call.cx().metadata().undeclared_name().and_then(|name| name.refusal()) else {
            return Err(Status::unimplemented("unknown method"));
        };
        Err(self.table.relist(refusal, |id| self.shows(&call, id)))
    }

    fn takes_thrift(&self) -> bool {
        true
    }
}

/// Rules of unknown methods, by the name that the caller sent.
#[derive(Clone, Debug, Default)]
pub struct UnknownRules {
    rules: Vec<(Rule, Check)>,
    /// Check of the names without a rule.
    others: Check,
}

impl UnknownRules {
    /// # Errors
    /// Fails on invalid networks.
    pub(super) fn new(rules: &[Rule]) -> Result<UnknownRules, Error> {
        let rules = rules.iter().map(|rule| Ok((rule.clone(), rule.check()?)));
        Ok(UnknownRules { rules: rules.collect::<Result<_, Error>>()?, others: Check::of_all(true) })
    }

    /// Returns the check of a name: that of the first matching rule, as for a method that exists.
    pub(super) fn check(&self, name: &str) -> &Check {
        self.rules.iter().find(|(rule, _)| rule.is_for(name)).map_or(&self.others, |(_, check)| check)
    }
}

impl Chain {
    /// Returns the rules for the method of a call.
    #[inline]
    pub(super) fn check_of(&self, call: &Call) -> &Check {
        match &self.unknown {
            None => &self.method(call.method()).check,
            Some(rules) => rules.check(&call.full_name()),
        }
    }
}
