//! The page `/recent`: ended calls that the access log or the slow-call log recorded.

use super::{
    page::{Page, Table},
    pages::{PageResponse, parameter},
};
use ::http::StatusCode;
use std::time::Duration;
use switchboard_core::{access::Access, clock, limits::Unit};

/// Builds the page from the calls that match the query: `filter=TEXT` matches part of the method, peer, code
/// or trace; `slower=TIME` selects calls that took at least this time.
///
/// # Errors
/// Returns the response to send if the time is invalid.
pub(super) fn recent(access: &Access, query: &str) -> Result<Page, PageResponse> {
    let filter = parameter(query, "filter").unwrap_or_default();
    let slower = parameter(query, "slower").map(|text| Unit::Milliseconds.parse(text)).transpose();
    let slower = slower
        .map_err(|error| PageResponse::failure(StatusCode::BAD_REQUEST, format!("slower: {error}")))?
        .map_or(Duration::ZERO, Duration::from_millis);
    let mut table = Table::new(
        "calls",
        [
            "seconds_ago",
            "took_us",
            "code",
            "method",
            "wire",
            "peer",
            "caller",
            "received_bytes",
            "sent_bytes",
            "trace",
            "why",
        ],
    );
    let now = clock::time_of_day();
    for seen in access.recent.newest_first() {
        let trace = seen.trace.as_deref().unwrap_or_default();
        let is_named =
            [&seen.method, &seen.peer, seen.code.name(), trace].iter().any(|text| text.contains(filter));
        if seen.took < slower || !is_named {
            continue;
        }
        table.push([
            now.duration_since(seen.ended).unwrap_or_default().as_secs_f64().into(),
            (seen.took.as_nanos() as f64 / 1e3).into(),
            seen.code.name().into(),
            seen.method.into(),
            seen.wire.into(),
            seen.peer.into(),
            seen.caller.into(),
            seen.received.into(),
            seen.sent.into(),
            seen.trace.into(),
            if seen.is_slow { "slow" } else { "sampled" }.into(),
        ]);
    }
    let page = Page::new("recent")
        .note("calls of the access log and of the slow-call log; ?filter=TEXT&slower=TIME");
    let page = match access.is_on() {
        true => page,
        false => page.note(
            "both logs are off: POST /flags/access_log?value=100&expires=10min keeps one call in a hundred for a while",
        ),
    };
    Ok(page.table(table))
}
