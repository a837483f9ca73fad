//! `switchboard push top`.

use super::{
    args::TopArgs,
    client::{authorization, connect, timed},
    table::{self, Rates, Row},
};
use crate::{
    bus::parts::{is_terminal, print, print_json},
    call::Failure,
};
use std::{collections::HashMap, time::Instant};
use switchboard_push::v1::{CountsRequest, CountsResponse, PushClient, RoomsRequest};
use tokio::time::sleep;

/// Rooms of a page of the list.
const PAGE_ROOMS: u32 = 1_000;
/// Pages that are read for a table.
const PAGES_MAX: usize = 100;

/// Prints a table for each interval.
pub(super) async fn run(args: &TopArgs) -> Result<(), Failure> {
    let client = PushClient::new(timed(&args.server, connect(&args.server)).await?);
    let mut before = timed(&args.server, sample(&client, args)).await?;
    loop {
        sleep(args.interval).await;
        let now = timed(&args.server, sample(&client, args)).await?;
        show(args, &before, &now)?;
        if args.once {
            return Ok(());
        }
        before = now;
    }
}

/// Counts at one time.
struct Sample {
    at: Instant,
    counts: CountsResponse,
    /// Members and publications of each room.
    rooms: HashMap<String, (u64, u64)>,
    /// There are more rooms than were read.
    is_cut: bool,
}

async fn sample(client: &PushClient, args: &TopArgs) -> Result<Sample, Failure> {
    let token = authorization(&args.server);
    let mut call = client.counts(CountsRequest::default());
    if let Some(token) = &token {
        call = call.meta("authorization", token.clone());
    }
    let (counts, at) = (call.await?.into_inner(), Instant::now());
    let (mut rooms, mut after) = (HashMap::new(), String::new());
    for _ in 0..PAGES_MAX {
        let pattern = args.pattern.clone().unwrap_or_default();
        let request = RoomsRequest { pattern, after, limit: PAGE_ROOMS, ..Default::default() };
        let mut call = client.rooms(request);
        if let Some(token) = &token {
            call = call.meta("authorization", token.clone());
        }
        let page = call.await?.into_inner();
        rooms.extend(page.rooms.into_iter().map(|room| (room.name, (room.members, room.published))));
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    Ok(Sample { at, counts, rooms, is_cut: !after.is_empty() })
}

/// Prints the rooms with the highest rates, and the counts of the gateway.
fn show(args: &TopArgs, before: &Sample, now: &Sample) -> Result<(), Failure> {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let mut rows: Vec<_> = now
        .rooms
        .iter()
        .map(|(name, (members, published))| {
            // A room that is new had no publication before its first member.
            let earlier = before.rooms.get(name).map_or(*published, |(_, published)| *published);
            Row { name, members: *members, published: *published, per_s: rate(earlier, *published) }
        })
        .collect();
    rows.sort_by(|a, b| {
        b.per_s.total_cmp(&a.per_s).then(b.members.cmp(&a.members)).then_with(|| a.name.cmp(b.name))
    });
    rows.truncate(args.limit.into());
    let (earlier, counts) = (&before.counts, &now.counts);
    let rates = Rates {
        published: rate(earlier.published, counts.published),
        delivered: rate(earlier.delivered, counts.delivered),
        dropped: rate(earlier.dropped, counts.dropped),
        dropped_so_far: counts.dropped,
    };
    if args.server.json {
        return print_json(&table::json(counts, &rates, &rows));
    }
    let mut text = table::text(counts, &rates, &rows);
    if now.is_cut {
        let read = now.rooms.len();
        text += &format!("{read} rooms were read, and there are more: name a pattern.\n");
    }
    // A terminal shows the newest table alone.
    print(&if is_terminal() && !args.once { format!("\x1b[H\x1b[2J{text}") } else { text + "\n" })
}
