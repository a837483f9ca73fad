//! The protocol of services of NATS: `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS` list the services of the server.

use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};
use switchboard_core::clock;
use switchboard_message::Publication;
use switchboard_wire::{Codec, Kind, MethodId, MethodTable};

/// Queue group that INFO names: any server takes the calls.
const QUEUE: &str = "q";

/// The services of a server.
#[derive(Debug)]
pub(super) struct Micro {
    id: String,
    services: Vec<Service>,
    started: String,
    stats: Mutex<HashMap<MethodId, Stats>>,
}

#[derive(Debug)]
struct Service {
    /// Its name without dots, which names of services do not have in NATS.
    name: String,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug)]
struct Endpoint {
    name: &'static str,
    subject: String,
    method: MethodId,
}

/// Calls of a method by clients of NATS.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    requests: u64,
    errors: u64,
    time: Duration,
}

impl Micro {
    /// Lists the unary methods that are not hidden.
    pub(super) fn new(id: &str, methods: Option<&MethodTable>) -> Micro {
        let mut services = Vec::new();
        for service in methods.map_or(&[][..], MethodTable::services) {
            let endpoint = |method: &'static str| {
                let id = methods?.find(&format!("{}/{method}", service.name))?;
                Some(Endpoint { name: method, subject: format!("{}.{method}", service.name), method: id })
            };
            let unary = service.methods.iter().filter(|method| method.kind == Kind::Unary);
            let endpoints: Vec<_> = unary.filter_map(|method| endpoint(method.name)).collect();
            if !endpoints.is_empty() {
                services.push(Service { name: service.name.replace('.', "-"), endpoints });
            }
        }
        let started = clock::time_of_day().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Micro { id: id.to_owned(), services, started: utc(started), stats: Mutex::default() }
    }

    fn stats(&self) -> MutexGuard<'_, HashMap<MethodId, Stats>> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call that has ended.
    pub(super) fn count(&self, method: MethodId, is_ok: bool, took: Duration) {
        let mut stats = self.stats();
        let stats = stats.entry(method).or_default();
        stats.requests = stats.requests.saturating_add(1);
        stats.errors = stats.errors.saturating_add(u64::from(!is_ok));
        stats.time = stats.time.saturating_add(took);
    }

    /// Returns the responses to `$SRV.VERB[.name[.id]]`, one for each service that it means.
    pub(super) fn respond(&self, subject: &[u8]) -> Vec<Publication> {
        let Ok(subject) = std::str::from_utf8(subject) else { return Vec::new() };
        let mut tokens = subject.split('.').skip(1);
        let (verb, name, id) = (tokens.next(), tokens.next(), tokens.next());
        if tokens.next().is_some() || id.is_some_and(|id| id != self.id) {
            return Vec::new();
        }
        let named = self.services.iter().filter(|service| name.is_none_or(|name| name == service.name));
        let response = |service: &Service| self.response(verb?, service);
        let responses = named.filter_map(response);
        responses.map(|response| Publication::new(Codec::Json, response.to_string())).collect()
    }

    fn response(&self, verb: &str, service: &Service) -> Option<Value> {
        let mut response = json!({
            "name": service.name,
            "id": self.id,
            "version": env!("CARGO_PKG_VERSION"),
            "metadata": {},
        });
        let (kind, further) = match verb {
            "PING" => ("ping", json!({})),
            "INFO" => {
                let endpoints = service.endpoints.iter().map(Endpoint::info).collect::<Vec<_>>();
                ("info", json!({"description": "", "endpoints": endpoints}))
            }
            "STATS" => {
                let stats = self.stats();
                let stats = |endpoint: &Endpoint| stats.get(&endpoint.method).copied().unwrap_or_default();
                let endpoints = service.endpoints.iter().map(|endpoint| endpoint.stats(stats(endpoint)));
                ("stats", json!({"started": self.started, "endpoints": endpoints.collect::<Vec<_>>()}))
            }
            _ => return None,
        };
        response["type"] = format!("io.nats.micro.v1.{kind}_response").into();
        if let (Value::Object(response), Value::Object(further)) = (&mut response, further) {
            response.extend(further);
        }
        Some(response)
    }
}

impl Endpoint {
    fn info(&self) -> Value {
        json!({"name": self.name, "subject": self.subject, "queue_group": QUEUE, "metadata": {}})
    }

    fn stats(&self, stats: Stats) -> Value {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let time = nanoseconds(stats.time);
        json!({
            "name": self.name,
            "subject": self.subject,
            "queue_group": QUEUE,
            "num_requests": stats.requests,
            "num_errors": stats.errors,
            "last_error": "",
            "processing_time": time,
            "average_processing_time": time.checked_div(stats.requests).unwrap_or(0),
        })
    }
}

/// Returns the time of RFC 3339 in UTC, of seconds since 1970.
fn utc(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970_u64;
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days = days.saturating_sub(length);
        year = year.saturating_add(1);
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days = days.saturating_sub(length);
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_form_of_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
