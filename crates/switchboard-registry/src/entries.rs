//! The instances of one service in a key-value store.

use crate::layout::Layout;
use std::collections::BTreeMap;
use switchboard::{
    Result, Status,
    discover::{Feed, Instance},
};

/// Maps the names in the folder to their instances, or to the error of a value that cannot be decoded.
pub(crate) struct Entries<'a> {
    layout: &'a dyn Layout,
    service: &'a str,
    feed: &'a Feed,
    known: BTreeMap<String, Result<Instance>>,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(layout: &'a dyn Layout, service: &'a str, feed: &'a Feed) -> Entries<'a> {
        Entries { layout, service, feed, known: BTreeMap::new() }
    }

    /// Returns the part of a key after the folder if the key is one of an instance: not of another service and not in a
    /// subfolder.
    pub(crate) fn name<'k>(&self, key: &'k str) -> Option<&'k str> {
        let name = key.strip_prefix(&self.layout.folder(self.service))?;
        (!name.is_empty() && self.layout.is_name(name)).then_some(name)
    }

    pub(crate) fn put(&mut self, name: &str, value: &[u8]) -> Result<()> {
        let instance = self.layout.decode(self.service, name, value, self.feed.instance_bytes_max());
        self.known.insert(name.to_owned(), instance);
        let max = self.feed.instances_max();
        if self.known.len() > max {
            let text = format!("more instances of {} than instances_max {max}", self.service);
            return Err(Status::resource_exhausted(text));
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.known.remove(name);
    }

    pub(crate) fn publish(&self) {
        self.feed.publish(self.known.values().cloned());
    }
}
