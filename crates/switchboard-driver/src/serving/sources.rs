//! The sources of counters of a server, beside its own.

use std::{fmt, sync::Arc};
use switchboard_core::{
    counters::{CounterSource, is_name},
    metrics::SourceStats,
};

/// Kinds whose metrics would have the names of the server's own.
const RESERVED: [&str; 13] = [
    "accepted",
    "call",
    "calls",
    "connections",
    "disabled",
    "memory",
    "protocol",
    "received",
    "sent",
    "slow",
    "tls",
    "unknown",
    "uptime",
];

/// Sources of counters, each with its name.
#[derive(Default)]
pub struct Sources(Vec<(String, Arc<dyn CounterSource>)>);

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Sources {
    /// Adds a source under a name.
    ///
    /// # Errors
    /// The name is empty or that of another source, or the kind cannot be a part of the names of metrics.
    pub fn add(&mut self, name: String, source: Arc<dyn CounterSource>) -> Result<(), String> {
        let kind = source.kind();
        if !is_name(kind) {
            return Err(format!("the kind {kind:?} is not lower-case letters, digits and _"));
        }
        // `unknown_protocol` and `unknown` begin alike.
        if RESERVED.contains(&kind.split('_').next().unwrap_or(kind)) {
            return Err(format!("the server has metrics of the kind {kind:?}: choose another kind"));
        }
        if name.is_empty() {
            return Err(format!("a source of the kind {kind:?} has no name"));
        }
        if self.0.iter().any(|(known, _)| *known == name) {
            return Err(format!("two sources have the name {name:?}: choose another name"));
        }
        self.0.push((name, source));
        Ok(())
    }

    /// Adds a source under the name of its kind, with a number if another source has this name. Has no effect on a
    /// source whose [identity](CounterSource::identity) is known.
    ///
    /// # Errors
    /// The kind cannot be a part of the names of metrics.
    pub fn add_unnamed(&mut self, source: Arc<dyn CounterSource>) -> Result<(), String> {
        let identity = source.identity();
        if identity.is_some() && self.0.iter().any(|(_, known)| known.identity() == identity) {
            return Ok(());
        }
        let is_free = |name: &String| self.0.iter().all(|(known, _)| known != name);
        let mut names = (2u64..).map(|number| format!("{}-{number}", source.kind()));
        let name = Some(source.kind().to_owned()).filter(is_free).or_else(|| names.find(is_free));
        self.add(name.unwrap_or_default(), source)
    }

    /// Returns the sources that have this list.
    pub fn with_list<'a>(&'a self, list: &'a str) -> impl Iterator<Item = (&'a str, &'a dyn CounterSource)> {
        let sources = self.0.iter().filter(move |(_, source)| source.lists().contains(&list));
        sources.map(|(name, source)| (name.as_str(), &**source))
    }

    /// Returns the names of all lists, in order.
    pub fn lists(&self) -> Vec<&'static str> {
        let mut lists: Vec<_> =
            self.0.iter().flat_map(|(_, source)| source.lists().iter().copied()).collect();
        lists.sort_unstable();
        lists.dedup();
        lists
    }

    /// Reads all counters.
    pub fn stats(&self) -> Vec<SourceStats> {
        self.0.iter().map(|(name, source)| SourceStats::read(name.clone(), &**source)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_core::counters::Counter;

    struct Source(&'static str, Option<usize>);

    impl CounterSource for Source {
        fn kind(&self) -> &'static str {
            self.0
        }

        fn counters(&self) -> Vec<Counter> {
            let counter = |name, label| Counter::total(name, "for the test", 1).label(label, "x");
            vec![counter("good", "why"), counter("Bad name", "why"), counter("good", "source")]
        }

        fn identity(&self) -> Option<usize> {
            self.1
        }
    }

    #[test]
    fn a_source_is_shown_once_under_a_name_of_its_own() {
        let mut sources = Sources::default();
        for source in [Source("bus", Some(1)), Source("bus", Some(1)), Source("bus", None), Source("a", None)]
        {
            sources.add_unnamed(Arc::new(source)).unwrap();
        }
        let names: Vec<_> = sources.stats().into_iter().map(|stats| stats.name).collect();
        assert_eq!(names, ["bus", "bus-2", "a"]);
        let mut refused =
            |name: &str, kind| sources.add(name.into(), Arc::new(Source(kind, None))).unwrap_err();
        assert!(refused("bus", "b").contains("two sources have the name \"bus\""));
        assert!(refused("", "b").contains("no name"));
        assert!(refused("x", "B").contains("lower-case"));
        assert!(refused("x", "calls").contains("choose another kind"));
        assert!(refused("x", "memory_of").contains("choose another kind"));
    }

    #[test]
    fn counters_without_a_name_for_metrics_are_left_out() {
        let mut sources = Sources::default();
        sources.add_unnamed(Arc::new(Source("x", None))).unwrap();
        assert_eq!(sources.stats()[0].counters.len(), 1);
    }
}
