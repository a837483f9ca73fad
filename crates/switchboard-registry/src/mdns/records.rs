//! The datagrams: queries, announcements of an instance, and goodbyes.
//!
//! In our own records, the instance is in the TXT record, as JSON in pieces `0=…`, `1=…` of at most 255 bytes; the PTR,
//! SRV and A or AAAA records are for other browsers. Its label is a fingerprint of service and id, so that two
//! instances with the same service and id replace each other. The records of rpcx are in [`rpcx`].

use super::rpcx;
use crate::{layout::Style, meta};
use hickory_resolver::{
    Name,
    proto::{
        ProtoError,
        op::{Message, MessageType, Query, ResponseCode},
        rr::{
            RData, Record, RecordType,
            rdata::{A, AAAA, PTR, SRV, TXT},
        },
    },
};
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};
use switchboard::{Result, Status, discover::Instance};

/// The limit of RFC 6762.
pub(super) const DATAGRAM_BYTES_MAX: usize = 9000;

/// The DNS-SD service type.
const TYPE: &[&str] = &["_switchboard", "_tcp", "local"];
/// Most bytes of a TXT string.
pub(super) const STRING_BYTES_MAX: usize = 255;

/// Content of a datagram about a label: its instances, and how long the records are valid.
pub(super) enum Announcement {
    Gone(String),
    Present(String, Vec<Instance>, Duration),
}

/// Creates a query for all instances.
pub(super) fn query(style: Style) -> Vec<u8> {
    let mut message = Message::new();
    message.add_query(Query::query(type_name(style), RecordType::PTR));
    message.to_vec().expect("a fixed message")
}

/// Returns whether a datagram queries our service type.
pub(super) fn is_query(style: Style, datagram: &[u8]) -> bool {
    let Ok(message) = Message::from_vec(datagram) else { return false };
    let kind = type_name(style);
    message.message_type() == MessageType::Query
        && message.queries().iter().any(|query| kind.zone_of(query.name()))
}

/// Returns the label of an instance: FNV-1a of service and id, in hexadecimal digits.
pub(super) fn label(instance: &Instance) -> String {
    let names = instance.service.bytes().chain([0]).chain(instance.id.bytes());
    let hash = names.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Creates the announcement of an instance; with a TTL of zero it is its goodbye.
///
/// # Errors
/// `InvalidArgument` for an instance that does not fit.
pub(super) fn announcement(style: Style, instance: &Instance, ttl_seconds: u32) -> Result<Vec<u8>> {
    let strings = match style {
        Style::Own => strings(instance)?,
        Style::Rpcx => vec![rpcx::string(instance)?],
    };
    let wrong = |error: ProtoError| Status::invalid_argument(format!("mdns: {}: {error}", instance.id));
    let kind = type_name(style);
    let label = label(instance);
    let name = kind.prepend_label(label.as_bytes()).map_err(wrong)?;
    let strings = strings.iter().map(Vec::as_slice).collect();
    let mut message = Message::new();
    message.set_message_type(MessageType::Response).set_authoritative(true);
    message.add_answer(Record::from_rdata(kind, ttl_seconds, RData::PTR(PTR(name.clone()))));
    message.add_answer(Record::from_rdata(name.clone(), ttl_seconds, RData::TXT(TXT::from_bytes(strings))));
    // An instance without a port has no records for other browsers.
    if let Ok((host, port)) = meta::place(&instance.address) {
        let target = match (host.parse::<IpAddr>(), style) {
            // rpcx clients require the record and ignore its content.
            (Err(_), Style::Rpcx) => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            (address, _) => address.ok(),
        };
        let target = match target {
            Some(address) => {
                let target = Name::from_labels([label.as_bytes(), b"local"]).map_err(wrong)?;
                let data = match address {
                    IpAddr::V4(address) => RData::A(A(address)),
                    IpAddr::V6(address) => RData::AAAA(AAAA(address)),
                };
                message.add_additional(Record::from_rdata(target.clone(), ttl_seconds, data));
                target
            }
            None => Name::from_ascii(&host).map_err(wrong)?,
        };
        message.add_answer(Record::from_rdata(name, ttl_seconds, RData::SRV(SRV::new(0, 0, port, target))));
    }
    message.to_vec().map_err(wrong)
}

/// Splits the instance into pieces.
fn strings(instance: &Instance) -> Result<Vec<Vec<u8>>> {
    let json = instance.encode(super::INSTANCE_BYTES_MAX)?;
    let mut strings = vec![b"txtvers=1".to_vec()];
    // Leaves room for the number of the piece and the `=` behind it.
    for (at, piece) in json.chunks(STRING_BYTES_MAX - 4).enumerate() {
        strings.push([format!("{at}=").as_bytes(), piece].concat());
    }
    Ok(strings)
}

/// Reads the announcements for instances of `service`. Other datagrams return none.
pub(super) fn read_announcements(
    style: Style,
    datagram: &[u8],
    service: &str,
    bytes_max: usize,
) -> Vec<Announcement> {
    let Ok(message) = Message::from_vec(datagram) else { return Vec::new() };
    // RFC 6762, 18.11: messages with a response code are ignored.
    if message.message_type() != MessageType::Response || message.response_code() != ResponseCode::NoError {
        return Vec::new();
    }
    let kind = type_name(style);
    // A responder to a query for names puts the other records into the additional section.
    let records = message.answers().iter().chain(message.additionals());
    let announcements = records.filter(|record| kind.zone_of(record.name())).filter_map(|record| {
        let RData::TXT(text) = record.data() else { return None };
        if style == Style::Rpcx {
            let label = record.name().to_ascii();
            return rpcx::read(label, text.txt_data(), record.ttl(), service, bytes_max);
        }
        let mut pieces: Vec<(usize, &[u8])> =
            text.txt_data().iter().filter_map(|string| piece(string)).collect();
        pieces.sort_unstable_by_key(|(at, _)| *at);
        let json: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect();
        let instance = Instance::decode(&json, bytes_max).ok()?;
        let label = label(&instance);
        if instance.service != service {
            return None;
        }
        Some(match record.ttl() {
            0 => Announcement::Gone(label),
            ttl => Announcement::Present(label, vec![instance], Duration::from_secs(ttl.min(TTL_MAX).into())),
        })
    });
    announcements.collect()
}

/// Announcements are valid for at most this time.
const TTL_MAX: u32 = 75 * 60;

/// Parses a piece, `0=…`.
fn piece(string: &[u8]) -> Option<(usize, &[u8])> {
    let at = string.iter().position(|byte| *byte == b'=')?;
    let number = str::from_utf8(&string[..at]).ok()?.parse().ok()?;
    Some((number, &string[at + 1..]))
}

fn type_name(style: Style) -> Name {
    let labels = match style {
        Style::Own => TYPE,
        Style::Rpcx => rpcx::TYPE,
    };
    let mut name = Name::from_labels(labels.iter().map(|label| label.as_bytes())).expect("a fixed name");
    name.set_fqdn(true);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_decoded() {
        let instance =
            Instance::new("a.B", "tcp://[::1]:80").id("tcp://x/\u{1f600}").tag("t", "x".repeat(700));
        assert!(is_query(Style::Own, &query(Style::Own)));
        let datagram = announcement(Style::Own, &instance, 9).unwrap();
        assert!(!is_query(Style::Own, &datagram) && datagram.len() < 1472, "{}", datagram.len());
        let announcements = read_announcements(Style::Own, &datagram, "a.B", 2000);
        let [Announcement::Present(name, found, ttl)] = &announcements[..] else { panic!("it is there") };
        assert_eq!((name, &found[..], ttl.as_secs()), (&label(&instance), &[instance.clone()][..], 9));
        assert!(matches!(
            &read_announcements(Style::Own, &announcement(Style::Own, &instance, 0).unwrap(), "a.B", 2000)[..],
            [Announcement::Gone(_)]
        ));
        assert!(
            read_announcements(Style::Own, &datagram, "a.BC", 2000).is_empty()
                && read_announcements(Style::Own, &datagram, "a.B", 100).is_empty()
        );
        let unix = Instance::new("a.B", "unix:/run/a.sock");
        assert_eq!(
            read_announcements(Style::Own, &announcement(Style::Own, &unix, 1).unwrap(), "a.B", 2000).len(),
            1
        );
        let long = Instance::new("a.B", "tcp://h:1").tag("t", "x".repeat(1200));
        assert!(
            announcement(Style::Own, &long, 1).unwrap_err().message().contains("instance_bytes_max 1100")
        );
    }

    #[test]
    fn messages_with_a_response_code_are_ignored() {
        // The goodbye of an instance, in the response of a server that fails.
        let mut datagram = announcement(Style::Own, &Instance::new("a.B", "tcp://10.0.0.1:80"), 0).unwrap();
        assert_eq!(read_announcements(Style::Own, &datagram, "a.B", 2000).len(), 1);
        for code in 1..16 {
            datagram[3] = datagram[3] & 0xf0 | code;
            assert!(read_announcements(Style::Own, &datagram, "a.B", 2000).is_empty(), "{code}");
        }
    }

    #[test]
    fn unrelated_datagrams_are_ignored() {
        let datagram = announcement(Style::Own, &Instance::new("a.B", "tcp://10.0.0.1:80"), 9).unwrap();
        for at in 0..datagram.len() {
            let _ = (
                read_announcements(Style::Own, &datagram[..at], "a.B", 2000).len(),
                is_query(Style::Own, &datagram[..at]),
            );
            let mut broken = datagram.clone();
            broken[at] ^= 0xff;
            let _ =
                (read_announcements(Style::Own, &broken, "a.B", 2000).len(), is_query(Style::Own, &broken));
        }
    }
}
