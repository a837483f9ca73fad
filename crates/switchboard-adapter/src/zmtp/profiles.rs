//! The mapping of each listener, from the options in its address: `tcp://0.0.0.0:5557?zmtp.req=router`.
//!
//! An option `zmtp.TYPE=LOCAL` replaces the local socket of one type of peers on its listener. The other types have the
//! mapping of the plugin. A listener with a `message_bytes_max` of its own has settings of its own too.

use super::{
    Zmtp,
    mapping::{Local, Mapping},
};
use std::sync::{Arc, Mutex, PoisonError};
use switchboard_core::{Limit, Limits};
use switchboard_wire::zmtp::{Settings, SocketType};

/// Name of the plugin in options.
pub(super) const NAME: &str = "zmtp";

/// The mapping of a listener, and the settings of its connections.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) mapping: Mapping,
    pub(super) settings: Arc<Settings>,
}

/// Options of a listener: the names of types, and of local sockets.
type Options = Vec<(String, String)>;

/// The parts of the limits of a listener that determine its profile.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Key {
    options: Options,
    message_bytes_max: u64,
}

impl Key {
    fn new(limits: &Limits) -> Key {
        let options = limits.plugin_options(NAME);
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Key { options, message_bytes_max: limits.get(Limit::MessageBytesMax) }
    }
}

/// The mapping of the plugin with the limits of the server, and those of listeners with options or other limits.
#[derive(Debug)]
pub(super) struct Profiles {
    zmtp: Zmtp,
    common: Arc<Profile>,
    common_key: Key,
    /// Those with options are added before connections are accepted, the others with their first connection.
    of_listeners: Mutex<Vec<(Key, Arc<Profile>)>>,
}

impl Profiles {
    /// Begins with the mapping of the plugin and the limits of the server.
    pub(super) fn new(zmtp: Zmtp, common: Profile, server: &Limits) -> Profiles {
        let common_key = Key { options: Vec::new(), ..Key::new(server) };
        Profiles { zmtp, common: Arc::new(common), common_key, of_listeners: Mutex::default() }
    }

    /// Adds the mapping of a listener.
    ///
    /// # Errors
    /// Fails on an option that names no type or no local socket of the program, and on two local sockets for one type.
    pub(super) fn add(&self, limits: &Limits) -> Result<(), String> {
        let key = Key::new(limits);
        if key.options.is_empty() {
            return Ok(());
        }
        let mapping = self.common.mapping.with_options(&key.options)?;
        let settings = Arc::new(self.zmtp.settings(limits, mapping.settings()?));
        let profile = Arc::new(Profile { mapping, settings });
        self.of_listeners.lock().unwrap_or_else(PoisonError::into_inner).push((key, profile));
        Ok(())
    }

    /// Returns the mapping for a connection of the listener with these limits.
    pub(super) fn of(&self, limits: &Limits) -> Arc<Profile> {
        let key = Key::new(limits);
        if key == self.common_key {
            return self.common.clone();
        }
        let mut profiles = self.of_listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |is_found: &dyn Fn(&Key) -> bool| {
            profiles.iter().find(|(known, _)| is_found(known)).map(|(_, profile)| profile.clone())
        };
        if let Some(profile) = find(&|known| *known == key) {
            return profile;
        }
        // The mapping is known, with other limits.
        let other = find(&|known| known.options == key.options).unwrap_or_else(|| self.common.clone());
        let settings = Arc::new(self.zmtp.settings(limits, (*other.settings).clone()));
        let profile = Arc::new(Profile { mapping: other.mapping.clone(), settings });
        profiles.push((key, profile.clone()));
        profile
    }
}

impl Mapping {
    /// Returns the mapping with the options of a listener.
    fn with_options(&self, options: &Options) -> Result<Mapping, String> {
        let mut mapping = self.clone();
        let mut seen = Vec::new();
        for (name, value) in options {
            let option = format!("{NAME}.{name}={value}");
            let Some(peer) = SocketType::from_name(name.to_ascii_uppercase().as_bytes()) else {
                return Err(format!("{option}: {name:?} is not a socket type"));
            };
            if seen.contains(&peer) {
                return Err(format!("{option}: {peer} peers are mapped twice: choose one local socket"));
            }
            seen.push(peer);
            let local = match &**value {
                "none" => None,
                value => Some(self.named(value).map_err(|why| format!("{option}: {why}"))?),
            };
            mapping.replace(peer, local);
        }
        Ok(mapping)
    }

    /// Returns the local socket with this name: `topics`, `services`, `pipeline`, or `router`, `dealer` and `pair` with
    /// the number among those of its type, `router:1`.
    fn named(&self, text: &str) -> Result<Local, String> {
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => {
                (name, number.parse().map_err(|_| format!("{number:?} is not a number"))?)
            }
            None => (text, 0),
        };
        let is_named = |local: &Local| match local {
            Local::Dealer(_) => name == "dealer",
            Local::Pair(_) => name == "pair",
            Local::Pipeline => name == "pipeline",
            Local::Router(_) => name == "router",
            Local::Services => name == "services",
            Local::Topics => name == "topics",
        };
        let found: Vec<_> = self.locals().filter(is_named).collect();
        found.get(number).copied().ok_or_else(|| match name {
            "dealer" | "pair" | "pipeline" | "router" | "services" | "topics" => {
                format!("the program has {} of them; call Zmtp::{name} for {text}", found.len())
            }
            _ => "expected topics, services, pipeline, router, dealer, pair or none".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SocketType::{Dealer, Pub, Push, Req, Sub};

    fn mapped(options: &[(&str, &str)]) -> Result<Mapping, String> {
        let mut mapping = Mapping::default();
        mapping.add([Pub, Sub], Local::Topics);
        mapping.add([Req], Local::Services);
        mapping.add([], Local::Router(0));
        mapping.add([], Local::Dealer(1));
        mapping.add([], Local::Router(2));
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        mapping.with_options(&options)
    }

    #[test]
    fn options_replace_the_local_socket_of_their_types() {
        let mapping = mapped(&[("req", "router:1"), ("dealer", "router"), ("pub", "none")]).unwrap();
        assert_eq!(
            [Req, Dealer, Sub, Pub].map(|peer| mapping.local(peer)),
            [Some(Local::Router(2)), Some(Local::Router(0)), Some(Local::Topics), None]
        );
        assert!(mapping.settings().is_ok());
        for (options, text) in [
            (&[("req", "router"), ("req", "services")][..], "zmtp.req=services: REQ peers are mapped twice"),
            (&[("request", "router")], "zmtp.request=router: \"request\" is not a socket type"),
            (&[("req", "pair")], "zmtp.req=pair: the program has 0 of them; call Zmtp::pair for pair"),
            (&[("req", "router:2")], "zmtp.req=router:2: the program has 2 of them"),
            (&[("req", "router:x")], "zmtp.req=router:x: \"x\" is not a number"),
            (&[("req", "queue")], "zmtp.req=queue: expected topics, services,"),
        ] {
            let error = mapped(options).unwrap_err();
            assert!(error.starts_with(text), "{error}");
        }
        // A type that its local socket cannot talk to.
        let error = mapped(&[("push", "router")]).unwrap().settings().unwrap_err();
        assert!(error.starts_with("PUSH peers cannot talk to ROUTER 0"), "{error}");
        assert_eq!(mapped(&[]).unwrap().local(Push), None);
    }
}
