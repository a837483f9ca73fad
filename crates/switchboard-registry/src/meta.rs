//! Instances in foreign registries: a host, a port, and pairs of text.
//!
//! Fields that other programs share have the plain names `group`, `version` and `zone`, and tags have their own names;
//! fields that only Switchboard has begin with `switchboard.`.

use std::collections::BTreeMap;
use switchboard::{
    Address, Code, Result, Status,
    discover::{Instance, State},
};

/// Pairs of text, sorted by name.
pub(crate) type Meta = BTreeMap<String, String>;

/// Prefix of our own fields.
const OWN: &str = "switchboard.";
/// Names that tags may not have, because they have another meaning there.
const TAKEN: [&str; 5] = ["group", "state", "version", "weight", "zone"];
/// Counters that servers write repeatedly.
const COUNTED: [&str; 2] = ["calls", "connections"];

/// Writes all fields of an instance except service and weight; `implied` is the address that a reader derives from host
/// and port.
///
/// # Errors
/// `InvalidArgument` for a tag whose name has another meaning there.
pub(crate) fn write(instance: &Instance, implied: &str) -> Result<Meta> {
    let mut meta = Meta::new();
    for (name, value) in &instance.tags {
        if TAKEN.contains(&name.as_str()) || name.starts_with(OWN) || name.starts_with("preserved.") {
            let text = format!("the tag {name:?} of the instance {} has another meaning there", instance.id);
            return Err(Status::new(Code::InvalidArgument, text));
        }
        meta.insert(name.clone(), value.clone());
    }
    let fields = [("group", &instance.group), ("version", &instance.version), ("zone", &instance.zone)];
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        meta.insert(name.to_owned(), value.clone());
    }
    if instance.address != implied {
        meta.insert(format!("{OWN}address"), instance.address.clone());
    }
    if instance.id != instance.address {
        meta.insert(format!("{OWN}id"), instance.id.clone());
    }
    if instance.state != State::Up {
        meta.insert(format!("{OWN}state"), instance.state.to_string());
    }
    Ok(meta)
}

/// Adds the exact weight if the registry's own field cannot express it.
pub(crate) fn write_weight(meta: &mut Meta, weight: u32) {
    meta.insert(format!("{OWN}weight"), weight.to_string());
}

/// Reads the output of [`write`], or metadata of other programs. `weight` is that of the registry.
pub(crate) fn read(service: &str, implied: String, weight: u32, mut meta: Meta) -> Instance {
    let mut own = |name: &str| meta.remove(&format!("{OWN}{name}"));
    let address = own("address").unwrap_or(implied);
    let id = own("id").unwrap_or_else(|| address.clone());
    let state = own("state");
    let weight = own("weight").and_then(|weight| weight.parse().ok()).unwrap_or(weight);
    let mut instance = Instance::new(service, address).id(id).weight(weight);
    instance.state = match state.as_deref() {
        Some("down") => State::Down,
        Some("draining") => State::Draining,
        _ => State::Up,
    };
    let mut field = |name: &str| meta.remove(name).unwrap_or_default();
    (instance.group, instance.version, instance.zone) = (field("group"), field("version"), field("zone"));
    meta.retain(|name, _| {
        let foreign = TAKEN.contains(&name.as_str()) || COUNTED.contains(&name.as_str());
        !foreign && !name.starts_with(OWN) && !name.starts_with("preserved.")
    });
    instance.tags = meta;
    instance
}

/// Returns host and port of an address.
///
/// # Errors
/// `InvalidArgument` for an address without them.
pub(crate) fn place(address: &str) -> Result<(String, u16)> {
    let bare = address.split_once('?').map_or(address, |(bare, _)| bare);
    match bare.parse::<Address>()? {
        Address::Tcp(host, port)
        | Address::Tls(host, port)
        | Address::WebSocket(host, port, _)
        | Address::WebSocketTls(host, port, _) => Ok((host, port)),
        _ => {
            let text = format!("the address {address:?} has no host and port, which this registry needs");
            Err(Status::new(Code::InvalidArgument, text))
        }
    }
}

/// Formats a host as in a URL.
pub(crate) fn in_url(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_survive_and_others_are_read() {
        let instance = Instance::new("s", "tls://h:1?wire=grpc").id("one").group("g").zone("z").version("2");
        let instance = instance.state(State::Draining).tag("disk", "fast");
        let meta = write(&instance, "tcp://h:1").unwrap();
        assert_eq!(read("s", "tcp://h:1".to_owned(), 100, meta), instance);
        let plain = Instance::new("s", "tcp://h:1");
        assert_eq!(write(&plain, "tcp://h:1").unwrap(), Meta::new());
        assert_eq!(read("s", "tcp://h:1".to_owned(), 7, Meta::new()), plain.clone().weight(7));
        let counted =
            Meta::from([("calls", "1.00"), ("disk", "fast")].map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(read("s", "tcp://h:1".to_owned(), 100, counted), plain.tag("disk", "fast"));
        let taken = write(&Instance::new("s", "tcp://h:1").tag("weight", "1"), "tcp://h:1").unwrap_err();
        assert!(taken.message().contains("has another meaning"), "{taken}");
    }

    #[test]
    fn host_and_port_are_parsed() {
        assert_eq!(place("tls://[::1]:8?ca=x").unwrap(), ("::1".to_owned(), 8));
        assert!(place("unix:/a").unwrap_err().message().contains("no host and port"));
    }
}
