//! What the application asked for, and the chains that come of it.

use super::{
    Chain, Concurrency, Method,
    concurrency::{ConcurrencyStats, Limiter},
    pattern,
};
use crate::{Error, layer::Layer};
use std::sync::Arc;
use switchboard_wire::{MethodId, MethodTable};

/// What was asked for, until the server starts.
#[derive(Default)]
pub(crate) struct Guards {
    pub(crate) layers: Vec<Arc<dyn Layer>>,
    pub(crate) concurrency: Option<Concurrency>,
    pub(crate) services: Vec<(String, Concurrency)>,
    pub(crate) methods: Vec<(String, Concurrency)>,
}

/// What is in force.
#[derive(Default)]
pub(crate) struct Guarding {
    /// By service; empty without any guard or layer.
    chains: Vec<Arc<Chain>>,
    limiters: Vec<Arc<Limiter>>,
}

impl Guards {
    /// What calls pass on their way in, in this order, for people.
    pub(crate) fn order(&self) -> Vec<String> {
        let mut order = Vec::new();
        if self.concurrency.is_some() || !self.services.is_empty() || !self.methods.is_empty() {
            order.push("concurrency limits".to_owned());
        }
        order.extend(self.layers.iter().map(|layer| format!("layer {}", layer.name())));
        order
    }

    /// The chains of the services of `table`.
    ///
    /// # Errors
    /// Names of services and methods that are not there.
    pub(crate) fn build(self, table: &MethodTable) -> Result<Guarding, Error> {
        if self.order().is_empty() {
            return Ok(Guarding::default());
        }
        let mut limiters = Vec::new();
        let mut methods: Vec<Method> = (0..table.len()).map(|_| Method::default()).collect();
        let mut limit = |what: String, concurrency: &Concurrency, ids: &[MethodId]| {
            let limiter = Arc::new(Limiter::new(what, concurrency));
            for id in ids {
                methods[usize::from(id.0)].limiters.push(limiter.clone());
            }
            limiters.push(limiter);
        };
        let all: Vec<_> = (0..table.len()).map(|at| MethodId(at as u16)).collect();
        if let Some(concurrency) = &self.concurrency {
            limit("server".into(), concurrency, &all);
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
        let mut methods = methods.into_iter();
        let mut chain = |count: usize| {
            Arc::new(Chain { methods: methods.by_ref().take(count).collect(), layers: self.layers.clone() })
        };
        let chains = table.services().iter().map(|service| chain(service.methods.len())).collect();
        Ok(Guarding { chains, limiters })
    }
}

impl Guarding {
    /// That of a service.
    pub(crate) fn chain(&self, service: usize) -> Option<Arc<Chain>> {
        self.chains.get(service).cloned()
    }

    pub(crate) fn concurrency(&self) -> Vec<ConcurrencyStats> {
        self.limiters.iter().map(|limiter| limiter.stats()).collect()
    }
}
