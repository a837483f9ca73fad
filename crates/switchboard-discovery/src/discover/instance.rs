//! The content of registries: instances of a service, and the whole set of them at one moment.

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};
use switchboard_core::Result;
use switchboard_wire::{Code, Status};

/// One endpoint of a service.
///
/// ```
/// use switchboard::discover::Instance;
/// let instance = Instance::new("demo.Greeter", "tcp://10.0.0.7:8080").weight(200).zone("eu-1a").tag("disk", "fast");
/// assert_eq!(instance.id, "tcp://10.0.0.7:8080");
/// ```
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Instance {
    /// Identifies the instance among those of its service. Keep it across restarts, so that the new registration
    /// replaces the old one. Defaults to the address.
    pub id: String,
    /// The full name of the service, `package.Service`.
    pub service: String,
    /// One URL as `Channel::connect` accepts it, including options of wire and TLS.
    pub address: String,
    /// Its share of the traffic: 100 is usual, 0 takes none.
    pub weight: u32,
    /// Name of a subset of the instances, which callers can select; empty means none.
    pub group: String,
    /// Zone where it runs, so that callers may prefer near instances; empty means unknown.
    pub zone: String,
    /// Version of the program that it runs; empty means unknown.
    pub version: String,
    /// State of the instance: it takes calls only when up.
    pub state: State,
    /// Further properties. Balancing by distance reads `latitude` and `longitude`, in degrees.
    pub tags: BTreeMap<String, String>,
}

/// State of an instance: `Up` takes calls, the others do not.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum State {
    /// Takes no calls; set by an operator.
    Down,
    /// Shuts down soon: takes no new calls, calls in flight continue.
    Draining,
    /// Takes calls.
    #[default]
    Up,
}

impl Default for Instance {
    fn default() -> Self {
        Instance::new("", "")
    }
}

impl Instance {
    /// Creates an instance of `service` at `address`, which is also its id.
    pub fn new(service: impl Into<String>, address: impl Into<String>) -> Instance {
        let address = address.into();
        Instance {
            id: address.clone(),
            service: service.into(),
            address,
            weight: 100,
            group: String::new(),
            zone: String::new(),
            version: String::new(),
            state: State::Up,
            tags: BTreeMap::new(),
        }
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Instance {
        self.id = id.into();
        self
    }

    /// Sets the share of the traffic: 100 is usual, 0 takes none.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Instance {
        self.weight = weight;
        self
    }

    /// Sets the group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Instance {
        self.group = group.into();
        self
    }

    /// Sets the zone.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Instance {
        self.zone = zone.into();
        self
    }

    /// Sets the version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Instance {
        self.version = version.into();
        self
    }

    /// Sets the state.
    #[must_use]
    pub fn state(mut self, state: State) -> Instance {
        self.state = state;
        self
    }

    /// Adds or replaces a tag.
    #[must_use]
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Instance {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// Encodes the instance as a JSON object with the fields of this type, for registries that store bytes. A reader
    /// accepts objects without the fields that have their default value, and ignores unknown fields.
    ///
    /// # Errors
    /// `InvalidArgument` when it has over `bytes_max` bytes, or no id, service or address.
    pub fn encode(&self, bytes_max: usize) -> Result<Vec<u8>> {
        self.check()?;
        let json = serde_json::to_vec(self).map_err(|error| {
            Status::internal(format!("instance {} of {} to json: {error}", self.id, self.service))
        })?;
        if json.len() > bytes_max {
            return Err(Status::new(
                Code::InvalidArgument,
                format!(
                    "instance {} of {} has {} bytes, more than instance_bytes_max {bytes_max}: give it fewer or \
                     shorter tags",
                    self.id,
                    self.service,
                    json.len()
                ),
            ));
        }
        Ok(json)
    }

    /// Decodes the result of [`encode`](Instance::encode).
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are too long or no such JSON, or an instance without id, service or address.
    pub fn decode(bytes: &[u8], bytes_max: usize) -> Result<Instance> {
        let invalid = |text: String| Status::new(Code::InvalidArgument, text);
        if bytes.len() > bytes_max {
            let bytes = bytes.len();
            return Err(invalid(format!(
                "an instance of {bytes} bytes is more than instance_bytes_max {bytes_max}"
            )));
        }
        let instance: Instance = serde_json::from_slice(bytes)
            .map_err(|error| invalid(format!("an instance as json: {error}")))?;
        instance.check()?;
        Ok(instance)
    }

    /// Checks that the instance can be registered.
    ///
    /// # Errors
    /// `InvalidArgument` when id, service or address is empty, or when id or service has control characters or over 256
    /// bytes: they become keys and file names.
    pub fn check(&self) -> Result<()> {
        let invalid = |text: String| Err(Status::new(Code::InvalidArgument, text));
        for (name, value) in [("service", &self.service), ("id", &self.id), ("address", &self.address)] {
            if value.is_empty() {
                return invalid(format!(
                    "an instance of {:?} at {:?} has no {name}",
                    self.service, self.address
                ));
            }
            if name != "address" && (value.len() > NAME_BYTES_MAX || value.chars().any(char::is_control)) {
                return invalid(format!(
                    "the {name} of an instance at {:?} has over {NAME_BYTES_MAX} bytes or control characters",
                    self.address
                ));
            }
        }
        Ok(())
    }
}

/// Longer than any name in use; with every byte escaped it is still a valid key of etcd, ZooKeeper and Redis.
const NAME_BYTES_MAX: usize = 256;

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Down => "down",
            State::Draining => "draining",
            State::Up => "up",
        })
    }
}

/// All instances of one service at one moment, sorted by id and with unique ids.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Sorted by [`id`](Instance::id).
    pub instances: Vec<Instance>,
}

impl Snapshot {
    /// Sorts the instances; of several with one id the last stays.
    pub fn new(instances: impl IntoIterator<Item = Instance>) -> Snapshot {
        let by_id: BTreeMap<String, Instance> =
            instances.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
        Snapshot { instances: by_id.into_values().collect() }
    }

    /// The instance with this id.
    pub fn find(&self, id: &str) -> Option<&Instance> {
        let at = self.instances.binary_search_by(|instance| instance.id.as_str().cmp(id));
        at.ok().map(|at| &self.instances[at])
    }
}

/// Escapes a name as one part of a key, path or file name: letters, digits and `- . _ : @` stay, other bytes become
/// `%XX`, and so does a leading dot.
pub fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        let stays = byte.is_ascii_alphanumeric() || b"-_:@".contains(&byte) || (byte == b'.' && at > 0);
        if stays {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trips_and_missing_fields_get_defaults() {
        let instance = Instance::new("a.B", "tcp://h:1?x=y").group("g").zone("z").version("1").weight(7);
        let instance = instance.tag("latitude", "1.5").state(State::Draining);
        assert_eq!(Instance::decode(&instance.encode(1024).unwrap(), 1024).unwrap(), instance);
        let short = br#"{"id":"1","service":"a.B","address":"tcp://h:1","later":{"x":[1]}}"#;
        assert_eq!(Instance::decode(short, 1024).unwrap(), Instance::new("a.B", "tcp://h:1").id("1"));
    }

    #[test]
    fn rejections_name_the_rule() {
        let long = Instance::new("a.B", "tcp://h:1").tag("t", "x".repeat(2000));
        assert!(long.encode(1024).unwrap_err().message().contains("instance_bytes_max 1024"));
        for (bytes, part) in [
            (&b"{}"[..], "no service"),
            (b"[", "as json"),
            (br#"{"service":"s","address":"a"}"#, "no id"),
            (br#"{"service":"s","address":"a","id":"\u0000"}"#, "control characters"),
        ] {
            let rejected = Instance::decode(bytes, 1024).unwrap_err();
            assert!(rejected.message().contains(part), "{rejected}");
        }
    }

    #[test]
    fn names_are_escaped_for_keys() {
        assert_eq!(escape("shop.Cart"), "shop.Cart");
        assert_eq!(escape("tcp://[::1]:80"), "tcp:%2F%2F%5B::1%5D:80");
        assert_eq!(escape(".."), "%2E.");
        assert_eq!(escape("\u{e4}"), "%C3%A4");
    }

    #[test]
    fn snapshots_are_sorted_and_ids_unique() {
        let make = |id: &str, weight| Instance::new("s", "tcp://h:1").id(id).weight(weight);
        let snapshot = Snapshot::new([make("b", 1), make("a", 2), make("b", 3)]);
        assert_eq!(snapshot.instances, [make("a", 2), make("b", 3)]);
        assert_eq!(snapshot.find("b").map(|found| found.weight), Some(3));
        assert_eq!(snapshot.find("c"), None);
    }
}
