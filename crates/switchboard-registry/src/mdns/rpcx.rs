//! What rpcx's plug-in for mDNS tells: all services of a process in one string of the TXT record, as a list in JSON
//! that is escaped like a URL query.

use super::records::{STRING_BYTES_MAX, Told};
use crate::layout::{Layout, RpcxLayout};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, time::Duration};
use switchboard::{Result, Status, discover::Instance, web};

/// The type of DNS-SD, with the domain that it has unless somebody chose another.
pub(super) const TYPE: &[&str] = &["_rpcxservices", "local"];

/// Records hold for most of an hour, but whoever is there answers each question.
const TTL_MAX: u32 = 45;

#[derive(Deserialize, Serialize)]
struct Entry<'a> {
    service: Cow<'a, str>,
    #[serde(default)]
    meta: Cow<'a, str>,
    service_address: Cow<'a, str>,
}

/// What an instance says of itself.
///
/// # Errors
/// `InvalidArgument` for one that does not fit, or that rpcx cannot say.
pub(super) fn string(instance: &Instance) -> Result<Vec<u8>> {
    let layout = RpcxLayout::new("");
    let meta = layout.encode(instance)?;
    let entry = Entry {
        service: Cow::Borrowed(&instance.service),
        meta: String::from_utf8_lossy(&meta),
        service_address: layout.name(instance)?.into(),
    };
    let json = serde_json::to_string(&[entry]);
    let json = json.map_err(|error| Status::internal(format!("an instance as json: {error}")))?;
    let string = web::encode(&json).into_bytes();
    match string.len() {
        0..=STRING_BYTES_MAX => Ok(string),
        len => Err(Status::invalid_argument(format!(
            "mdns: {} has {len} bytes for rpcx, and a record has room for {STRING_BYTES_MAX}",
            instance.id
        ))),
    }
}

/// What a record tells of `service`.
pub(super) fn read(
    label: String,
    strings: &[Box<[u8]>],
    ttl: u32,
    service: &str,
    bytes_max: usize,
) -> Option<Told> {
    let string = str::from_utf8(strings.first()?).ok()?;
    let json = web::decode(&string.replace('+', " "));
    let entries: Vec<Entry<'_>> = serde_json::from_str(&json).ok()?;
    let layout = RpcxLayout::new("");
    let entries = entries.iter().filter(|entry| entry.service == service);
    let instances: Vec<_> = entries
        .filter_map(|entry| {
            // What is not spoken here is for others.
            layout.decode(service, &entry.service_address, entry.meta.as_bytes(), bytes_max).ok()
        })
        .collect();
    Some(match ttl {
        0 => Told::Gone(label),
        _ if instances.is_empty() => Told::Gone(label),
        ttl => Told::Are(label, instances, Duration::from_secs(ttl.min(TTL_MAX).into())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{layout::Style, mdns::records};

    #[test]
    fn ours_are_as_the_plug_in_writes_them() {
        let instance = Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx").group("a b");
        let string = String::from_utf8(string(&instance).unwrap()).unwrap();
        let json = r#"[{"service":"Arith","meta":"group=a%20b","service_address":"tcp@10.0.0.7:8972"}]"#;
        assert_eq!(web::decode(&string), json);
        for address in ["tcp://10.0.0.7:8972?wire=rpcx", "tcp://h.example:8972?wire=rpcx"] {
            let instance = Instance::new("Arith", address);
            let datagram = records::answer(Style::Rpcx, &instance, 9).unwrap();
            let told = records::read_answer(Style::Rpcx, &datagram, "Arith", 1000);
            let [Told::Are(_, found, ttl)] = &told[..] else { panic!("it is there") };
            assert_eq!((&found[..], ttl.as_secs()), (&[instance][..], 9));
            assert!(records::is_question(Style::Rpcx, &records::question(Style::Rpcx)));
            assert!(!records::is_question(Style::Own, &records::question(Style::Rpcx)));
        }
        let long = Instance::new("Arith", "tcp://10.0.0.7:8972").tag("t", "x".repeat(200));
        assert!(super::string(&long).unwrap_err().message().contains("room for 255"));
    }

    #[test]
    fn several_services_of_a_process_are_told_apart() {
        let json = r#"[{"service":"Arith","meta":"weight=7","service_address":"tcp@h:1"},
            {"service":"Other","service_address":"tcp@h:1"},{"service":"Arith","service_address":"quic@h:2"}]"#;
        // As Go escapes it.
        let string = web::encode(json).replace("%20", "+").into_bytes().into_boxed_slice();
        let read = |service, ttl| {
            read("host".to_owned(), std::slice::from_ref(&string), ttl, service, 1000).unwrap()
        };
        let Told::Are(_, found, ttl) = read("Arith", 3200) else { panic!("it is there") };
        assert_eq!(found, [Instance::new("Arith", "tcp://h:1?wire=rpcx").weight(700)]);
        assert_eq!(ttl, Duration::from_secs(TTL_MAX.into()));
        assert!(matches!(read("Nobody", 3200), Told::Gone(_)) && matches!(read("Arith", 0), Told::Gone(_)));
        for noise in [&b""[..], b"%5B", b"\xff", b"%7B%7D"] {
            assert!(super::read("host".to_owned(), &[noise.into()], 9, "Arith", 1000).is_none());
        }
        assert!(super::read("host".to_owned(), &[], 9, "Arith", 1000).is_none());
    }
}
