//! The records of rpcx's mDNS plug-in: all services of a process in one string of the TXT record, as a JSON list that
//! is escaped like a URL query.

use super::records::{Announcement, STRING_BYTES_MAX};
use crate::layout::{Layout, RpcxLayout};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, time::Duration};
use switchboard::{Result, Status, discover::Instance, web};

/// The DNS-SD service type, with the default domain.
pub(super) const TYPE: &[&str] = &["_rpcxservices", "local"];

/// Records are valid for most of an hour, but each responder responds to every query.
const TTL_MAX: u32 = 45;

#[derive(Deserialize, Serialize)]
struct Entry<'a> {
    service: Cow<'a, str>,
    #[serde(default)]
    meta: Cow<'a, str>,
    service_address: Cow<'a, str>,
}

/// Encodes the announcement of an instance.
///
/// # Errors
/// `InvalidArgument` for an instance that does not fit, or that rpcx cannot express.
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

/// Reads the announcement of a record for `service`.
pub(super) fn read(
    label: String,
    strings: &[Box<[u8]>],
    ttl: u32,
    service: &str,
    bytes_max: usize,
) -> Option<Announcement> {
    let string = str::from_utf8(strings.first()?).ok()?;
    let json = web::decode_query(string);
    let entries: Vec<Entry<'_>> = serde_json::from_str(&json).ok()?;
    let layout = RpcxLayout::new("");
    let entries = entries.iter().filter(|entry| entry.service == service);
    let instances: Vec<_> = entries
        .filter_map(|entry| {
            // Addresses on unsupported networks are for other clients.
            layout.decode(service, &entry.service_address, entry.meta.as_bytes(), bytes_max).ok()
        })
        .collect();
    Some(match ttl {
        0 => Announcement::Gone(label),
        _ if instances.is_empty() => Announcement::Gone(label),
        ttl => Announcement::Present(label, instances, Duration::from_secs(ttl.min(TTL_MAX).into())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{layout::Style, mdns::records};

    #[test]
    fn own_records_have_the_form_of_the_plug_in() {
        let instance = Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx").group("a b");
        let string = String::from_utf8(string(&instance).unwrap()).unwrap();
        let json = r#"[{"service":"Arith","meta":"group=a%20b","service_address":"tcp@10.0.0.7:8972"}]"#;
        assert_eq!(web::decode(&string), json);
        for address in ["tcp://10.0.0.7:8972?wire=rpcx", "tcp://h.example:8972?wire=rpcx"] {
            let instance = Instance::new("Arith", address);
            let datagram = records::announcement(Style::Rpcx, &instance, 9).unwrap();
            let announcements = records::read_announcements(Style::Rpcx, &datagram, "Arith", 1000);
            let [Announcement::Present(_, found, ttl)] = &announcements[..] else { panic!("it is there") };
            assert_eq!((&found[..], ttl.as_secs()), (&[instance][..], 9));
            assert!(records::is_query(Style::Rpcx, &records::query(Style::Rpcx)));
            assert!(!records::is_query(Style::Own, &records::query(Style::Rpcx)));
        }
        let long = Instance::new("Arith", "tcp://10.0.0.7:8972").tag("t", "x".repeat(200));
        assert!(super::string(&long).unwrap_err().message().contains("room for 255"));
    }

    #[test]
    fn services_of_one_process_are_distinguished() {
        let json = r#"[{"service":"Arith","meta":"weight=7","service_address":"tcp@h:1"},
            {"service":"Other","service_address":"tcp@h:1"},{"service":"Arith","service_address":"quic@h:2"}]"#;
        // Escaped as in Go.
        let string = web::encode(json).replace("%20", "+").into_bytes().into_boxed_slice();
        let read = |service, ttl| {
            read("host".to_owned(), std::slice::from_ref(&string), ttl, service, 1000).unwrap()
        };
        let Announcement::Present(_, found, ttl) = read("Arith", 3200) else { panic!("it is there") };
        assert_eq!(found, [Instance::new("Arith", "tcp://h:1?wire=rpcx").weight(700)]);
        assert_eq!(ttl, Duration::from_secs(TTL_MAX.into()));
        assert!(
            matches!(read("Missing", 3200), Announcement::Gone(_))
                && matches!(read("Arith", 0), Announcement::Gone(_))
        );
        for noise in [&b""[..], b"%5B", b"\xff", b"%7B%7D"] {
            assert!(super::read("host".to_owned(), &[noise.into()], 9, "Arith", 1000).is_none());
        }
        assert!(super::read("host".to_owned(), &[], 9, "Arith", 1000).is_none());
    }
}
