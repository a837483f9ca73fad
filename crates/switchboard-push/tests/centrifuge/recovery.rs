//! Positions, recovery and history.

use crate::support::{command, start, subscribe, verified};
use switchboard_wire::centrifuge::{Format, History, Position, code};

#[tokio::test]
async fn a_client_that_comes_back_gets_what_it_missed_or_learns_that_something_is_missing() {
    let gateway = start(verified(), |plugin| plugin).await;
    for format in [Format::Json, Format::Protobuf] {
        let room = if format == Format::Json { "1" } else { "2" };
        let (channel, room) = (format!("live:{room}"), gateway.hub.room(format!("live/{room}")));
        let mut device = gateway.user(format, "ali").await;
        let begun = device.join(&channel).await;
        assert!(begun.recoverable && begun.positioned && !begun.was_recovering, "{begun:?}");
        room.publish(&1).await.unwrap();
        let (data, offset) = device.publication().await;
        assert_eq!(data, "1");
        let epoch = device_epoch(&begun.epoch, room.publish(&2).await.unwrap().epoch);
        drop(device);
        room.publish(&3).await.unwrap();

        let mut device = gateway.user(format, "ali").await;
        let recover = |epoch: &str, offset: u64| {
            let epoch = epoch.to_owned();
            subscribe(&channel, |request| {
                (request.recover, request.epoch, request.offset) = (true, epoch, offset);
            })
        };
        let result = device.reply(recover(&epoch, offset)).await.subscribe.unwrap();
        assert!(result.was_recovering && result.recovered && result.recoverable, "{result:?}");
        assert_eq!((result.offset, &*result.epoch), (offset, &*epoch));
        let next = [device.publication().await.0, device.publication().await.0];
        assert_eq!(next, ["2", "3"]);
        for (epoch, offset) in [("77", offset), ("no epoch", offset), (&*epoch, offset + 1_000)] {
            let mut device = gateway.user(format, "ali").await;
            let result = device.reply(recover(epoch, offset)).await.subscribe.unwrap();
            assert!(result.was_recovering && !result.recovered, "{epoch} {offset}: {result:?}");
        }
        // More entries than the room keeps.
        for number in 0..20 {
            room.publish(&number).await.unwrap();
        }
        let mut device = gateway.user(format, "ali").await;
        let result = device.reply(recover(&epoch, offset)).await.subscribe.unwrap();
        assert!(result.was_recovering && !result.recovered, "{result:?}");
    }
}

/// Returns the epoch of a log in the protocol. Before its first entry, a log may have none.
fn device_epoch(begun: &str, published: u64) -> String {
    let epoch = format!("{published:x}");
    assert!(begun == epoch || begun.is_empty(), "{begun} {epoch}");
    epoch
}

#[tokio::test]
async fn history_is_read_from_either_end() {
    let gateway = start(verified(), |plugin| plugin).await;
    let mut last = None;
    for number in 0..5 {
        last = Some(gateway.hub.room("live/7").publish(&number).await.unwrap());
    }
    let last = last.unwrap();
    let mut device = gateway.user(Format::Json, "ali").await;
    let history = |limit, since: Option<u64>, reverse| {
        let mut request = History::default();
        (request.channel, request.limit, request.reverse) = ("live:7".to_owned(), limit, reverse);
        request.since = since.map(|offset| {
            let mut position = Position::default();
            (position.offset, position.epoch) = (offset, format!("{:x}", last.epoch));
            Box::new(position)
        });
        command(|command| command.history = Some(Box::new(request)))
    };
    for (limit, since, reverse, expected) in [
        (0, None, false, &[][..]),
        (-1, None, false, &["0", "1", "2", "3", "4"]),
        (2, None, true, &["4", "3"]),
        (2, Some(last.offset - 3), false, &["2", "3"]),
        (-1, Some(last.offset), false, &[]),
    ] {
        let result = device.reply(history(limit, since, reverse)).await.history.unwrap();
        assert_eq!((result.offset, result.epoch), (last.offset, format!("{:x}", last.epoch)));
        let found: Vec<_> = result.publications.iter().map(|entry| entry.data.0.escape_ascii()).collect();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{limit} {since:?} {reverse}");
    }
    assert_eq!(device.error(history(1, Some(1), true)).await, code::NOT_AVAILABLE);
}
