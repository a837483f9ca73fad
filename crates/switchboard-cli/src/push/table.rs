//! The table of `switchboard push top`.

use crate::bus::parts::escaped;
use serde_json::{Value, json};
use switchboard_push::v1::CountsResponse;

/// A room.
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) members: u64,
    /// Entries since the process has the topic of the room.
    pub(super) published: u64,
    pub(super) per_s: f64,
}

/// Entries of the gateway per second, and those that are missing so far.
pub(super) struct Rates {
    pub(super) published: f64,
    pub(super) delivered: f64,
    pub(super) dropped: f64,
    pub(super) dropped_so_far: u64,
}

/// Formats the table for people.
pub(super) fn text(counts: &CountsResponse, rates: &Rates, rows: &[Row<'_>]) -> String {
    let mut table = format!(
        "devices {}, users {}, rooms {}, memberships {}\n\
         {:.1} entries published/s, {:.1} delivered/s, {:.1} dropped/s, {} dropped so far\n\n",
        counts.devices,
        counts.users,
        counts.rooms,
        counts.memberships,
        rates.published,
        rates.delivered,
        rates.dropped,
        rates.dropped_so_far
    );
    let names: Vec<_> = rows.iter().map(|row| escaped(row.name.as_bytes())).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(4);
    table += &format!("{:width$}  {:>9}  {:>11}  {:>10}\n", "ROOM", "MEMBERS", "PUBLISHED", "PER SECOND");
    for (row, name) in rows.iter().zip(&names) {
        table += &format!("{name:width$}  {:>9}  {:>11}  {:>10.1}\n", row.members, row.published, row.per_s);
    }
    table
}

/// Formats the table for programs.
pub(super) fn json(counts: &CountsResponse, rates: &Rates, rows: &[Row<'_>]) -> Value {
    let room = |row: &Row<'_>| {
        json!({
            "room": row.name,
            "members": row.members,
            "published": row.published,
            "published_per_s": row.per_s,
        })
    };
    json!({
        "devices": counts.devices,
        "users": counts.users,
        "rooms": counts.rooms,
        "memberships": counts.memberships,
        "published_per_s": rates.published,
        "delivered_per_s": rates.delivered,
        "dropped_per_s": rates.dropped,
        "dropped": rates.dropped_so_far,
        "top": rows.iter().map(room).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_counts_rates_and_rooms() {
        let counts = CountsResponse { devices: 3, users: 2, rooms: 1, memberships: 4, ..Default::default() };
        let rates = Rates { published: 1.25, delivered: 3.0, dropped: 0.0, dropped_so_far: 7 };
        let rows = [Row { name: "live/\u{1b}7", members: 3, published: 12, per_s: 1.25 }];
        let table = text(&counts, &rates, &rows);
        let expected = "devices 3, users 2, rooms 1, memberships 4\n\
                        1.2 entries published/s, 3.0 delivered/s, 0.0 dropped/s, 7 dropped so far\n\n\
                        ROOM            MEMBERS    PUBLISHED  PER SECOND\n\
                        live/\\u{1b}7          3           12         1.2\n";
        assert_eq!(table, expected);
        let object = json(&counts, &rates, &rows);
        assert_eq!((&object["top"][0]["published_per_s"], &object["dropped"]), (&json!(1.25), &json!(7)));
    }
}
