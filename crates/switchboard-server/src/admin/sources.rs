//! Pages of plugins, topics and other sources: their counters, and their lists one page at a time, never all.

use super::{
    page::{Page, Table},
    pages::{PageResponse, parameter},
};
use ::http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::time::Duration;
use switchboard_core::{counters::ListRequest, limits::Unit};
use switchboard_driver::serving::ServerState;

/// Rows of a page.
const ROWS: usize = 1000;
/// Period over which rates are measured, by default and at most.
const PERIODS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// Makes the page of all counters, or of those of one source: `?source=NAME`.
pub(super) fn counters(shared: &ServerState, query: &str) -> Page {
    // A value that is not UTF-8 is the name of no source.
    let only = decoded(query, "source").unwrap_or_else(|_| Some(String::new()));
    let mut table = Table::new("counters", ["source", "kind", "counter", "label", "value", "what"]);
    for source in shared.sources.stats() {
        if only.as_ref().is_some_and(|name| *name != source.name) {
            continue;
        }
        for counter in source.counters {
            table.push([
                source.name.as_str().into(),
                source.kind.into(),
                counter.name.into(),
                counter.label.map(|(name, value)| format!("{name}={value}")).into(),
                counter.value.into(),
                counter.help.into(),
            ]);
        }
    }
    Page::new("counters").table(table)
}

/// Makes a page of the list of a source, or of the first one that has it; `None` without such a source. The query is
/// `?source=NAME&filter=TEXT&from=POSITION&period=TIME`.
///
/// # Errors
/// The response to a query that names no source, or that the list does not accept.
pub(super) async fn list(
    shared: &ServerState,
    name: &str,
    query: &str,
) -> Option<Result<Page, PageResponse>> {
    let sources: Vec<_> = shared.sources.with_list(name).collect();
    let (first, _) = *sources.first()?;
    let refuse = |why: String| Some(Err(PageResponse::failure(StatusCode::BAD_REQUEST, why)));
    let wanted = match decoded(query, "source") {
        Ok(wanted) => wanted.unwrap_or_else(|| first.to_owned()),
        Err(why) => return refuse(why),
    };
    let names: Vec<_> = sources.iter().map(|(name, _)| *name).collect();
    let Some((_, source)) = sources.iter().find(|(name, _)| **name == wanted) else {
        return refuse(format!(
            "source={wanted}: no such source has {name}; those are: {}",
            names.join(", ")
        ));
    };
    let request = match request(query) {
        Ok(request) => request,
        Err(why) => return refuse(why),
    };
    let listed = match source.list(name, request).await {
        Ok(listed) => listed,
        Err(status) => return refuse(status.message().to_owned()),
    };
    let page = Page::new(name).table(Table::listed(name, listed.columns, listed.rows));
    let page = match names.len() {
        1 => page,
        _ => page.note(format!("of {wanted}; others at ?source=NAME: {}", names.join(", "))),
    };
    Some(Ok(match listed.next {
        None => page,
        Some(next) => page.note(format!("more at {}", next_page(query, &wanted, &next))),
    }))
}

/// Returns the query of the next page: as this one, from another position.
fn next_page(query: &str, source: &str, from: &str) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut next = format!("?source={}&from={}", encoded(source), encoded(from));
    for name in ["filter", "period"] {
        if let Some(value) = parameter(query, name) {
            next += &format!("&{name}={value}");
        }
    }
    next
}

/// Returns the decoded value of a parameter.
///
/// # Errors
/// The reason why the value is refused.
fn decoded(query: &str, name: &str) -> Result<Option<String>, String> {
    let value = parameter(query, name).map(|value| percent_decode_str(value).decode_utf8());
    let value = value.transpose().map_err(|_| format!("{name}: the value is not UTF-8"))?;
    Ok(value.map(std::borrow::Cow::into_owned))
}

/// Reads the request for a list from a query.
///
/// # Errors
/// The reason why the query is refused.
fn request(query: &str) -> Result<ListRequest, String> {
    let mut request = ListRequest::new(ROWS);
    request.from = decoded(query, "from")?;
    request.filter = decoded(query, "filter")?;
    let [default, max] = PERIODS;
    request.period = match parameter(query, "period") {
        None => default,
        Some(text) => match Unit::Milliseconds.parse(text).map(Duration::from_millis) {
            Ok(period) if period <= max => period,
            Ok(_) => return Err(format!("period={text}: at most {}s", max.as_secs())),
            Err(error) => return Err(format!("period: {error}")),
        },
    };
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_has_the_filter_and_the_period_of_this_one() {
        let next = next_page("filter=jobs%2F%3E&from=a&period=0ms", "a&b", "jobs/9");
        assert_eq!(next, "?source=a%26b&from=jobs%2F9&filter=jobs%2F%3E&period=0ms");
        let read = request(next.trim_start_matches('?')).unwrap();
        assert_eq!((read.filter.as_deref(), read.from.as_deref()), (Some("jobs/>"), Some("jobs/9")));
        assert_eq!(decoded(&next[1..], "source"), Ok(Some("a&b".to_owned())));
    }

    #[test]
    fn a_query_is_decoded_and_checked() {
        let read = request("filter=a%2F%3E&from=0.7&period=250ms").unwrap();
        assert_eq!((read.filter.as_deref(), read.from.as_deref()), (Some("a/>"), Some("0.7")));
        assert_eq!((read.period, read.rows_max), (Duration::from_millis(250), ROWS));
        assert_eq!(request("").unwrap().period, PERIODS[0]);
        for (query, why) in [
            ("filter=%FF", "filter: the value is not UTF-8"),
            ("period=11s", "period=11s: at most 10s"),
            ("period=x", "period: "),
        ] {
            assert!(request(query).unwrap_err().starts_with(why), "{query}");
        }
    }
}
