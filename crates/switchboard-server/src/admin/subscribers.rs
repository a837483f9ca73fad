//! The page of the connections that plugins have: one page at a time, never all.

use super::{
    page::{Page, Table},
    pages::{PageResponse, parameter},
};
use ::http::StatusCode;
use switchboard_driver::serving::{RunningPlugin, ServerState};
use switchboard_net::plugin::{ConnectionRow, ListPosition};

/// Rows of a page.
const ROWS: usize = 1000;

/// Makes the page of a plugin, or of the first one: `?plugin=NAME&from=WORKER.RECORD`.
///
/// # Errors
/// The response to a query that names no plugin or no position.
pub(super) async fn subscribers(shared: &ServerState, query: &str) -> Result<Page, PageResponse> {
    let plugins = shared.plugins.all();
    let plugin = match parameter(query, "plugin") {
        None => plugins.first(),
        Some(name) => Some(named(plugins, name)?),
    };
    let Some(plugin) = plugin else {
        return Ok(Page::new("subscribers").note("this server has no plugin with connections"));
    };
    let from = match parameter(query, "from") {
        None => ListPosition::default(),
        Some(text) => position(text)?,
    };
    let listed = plugin.server.list(from, ROWS).await;
    let columns = ["number", "worker", "peer", "sources", "held_bytes", "blocked"];
    let mut table = Table::new("subscribers", columns);
    for ConnectionRow { number, worker, address, sources, held_bytes, blocked, .. } in listed.rows {
        table.push([
            number.into(),
            (worker as u64).into(),
            address.into(),
            (sources as u64).into(),
            (held_bytes as u64).into(),
            blocked.then_some("yes").into(),
        ]);
    }
    let mut counts = Table::new("wires", ["plugin", "wire", "connections"]);
    for (name, wire, count) in plugins.iter().flat_map(RunningPlugin::counts) {
        counts.push([name.into(), wire.name().into(), (count as u64).into()]);
    }
    let page = Page::new("subscribers").table(counts).table(table);
    Ok(match listed.next {
        None => page,
        Some(ListPosition { worker, record, .. }) => {
            page.note(format!("more at ?plugin={}&from={worker}.{record}", plugin.name))
        }
    })
}

fn named<'a>(plugins: &'a [RunningPlugin], name: &str) -> Result<&'a RunningPlugin, PageResponse> {
    plugins.iter().find(|plugin| plugin.name == name).ok_or_else(|| {
        let known: Vec<_> = plugins.iter().map(|plugin| plugin.name).collect();
        let why = format!("plugin={name}: the server has no such plugin; it has: {}", known.join(", "));
        PageResponse::failure(StatusCode::BAD_REQUEST, why)
    })
}

fn position(text: &str) -> Result<ListPosition, PageResponse> {
    let parsed = text
        .split_once('.')
        .and_then(|(worker, record)| Some(ListPosition::new(worker.parse().ok()?, record.parse().ok()?)));
    parsed.ok_or_else(|| {
        let why = format!("from={text}: expected WORKER.RECORD, as a page before it says");
        PageResponse::failure(StatusCode::BAD_REQUEST, why)
    })
}
