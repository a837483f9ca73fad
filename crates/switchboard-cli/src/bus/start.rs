//! The first entry of a subscription, as written on the command line.

use crate::call::Failure;
use std::time::Duration;
use switchboard_message::{Position, Subscribe};

/// Start of a subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum StartAt {
    After(Position),
    Head,
    Last(usize),
    Since(Duration),
    /// After the entry of a Redis stream with this id.
    StreamId(u64, u64),
}

impl StartAt {
    pub(super) fn parse(text: &str) -> Result<StartAt, String> {
        let start = match text.split_once(':') {
            Some(("last", entries)) => entries.parse().ok().map(StartAt::Last),
            Some((epoch, offset)) => position(epoch, offset).map(StartAt::After),
            None if text == "head" => Some(StartAt::Head),
            None if text.starts_with('-') => text.strip_prefix('-').and_then(age).map(StartAt::Since),
            None => text.split_once('-').and_then(|(milliseconds, sequence)| {
                Some(StartAt::StreamId(milliseconds.parse().ok()?, sequence.parse().ok()?))
            }),
        };
        let forms = "expected head, last:N, a position such as 5e1f:42, the id of a Redis stream such as 1700-0, or an \
                     age with s, m, h or d such as -5m";
        start.ok_or_else(|| forms.to_owned())
    }

    /// Applies the start to a subscription to topics.
    pub(super) fn apply<T>(self, subscribe: Subscribe<'_, T>) -> Result<Subscribe<'_, T>, Failure> {
        Ok(match self {
            StartAt::After(position) => subscribe.after(position),
            StartAt::Head => subscribe,
            StartAt::Last(entries) => subscribe.last(entries),
            StartAt::Since(age) => subscribe.since(age),
            StartAt::StreamId(..) => {
                let text = "--from has the id of a Redis stream; positions of topics are as in 5e1f:42";
                return Err(Failure::Usage(text.to_owned()));
            }
        })
    }
}

fn position(epoch: &str, offset: &str) -> Option<Position> {
    Some(Position { epoch: u64::from_str_radix(epoch, 16).ok()?, offset: offset.parse().ok()? })
}

fn age(text: &str) -> Option<Duration> {
    let (number, seconds) = [("s", 1), ("m", 60), ("min", 60), ("h", 3_600), ("d", 86_400)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?.parse::<u32>().ok()?, seconds)))?;
    Some(Duration::from_secs(u64::from(number) * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_parsed() {
        let position = Position { epoch: 0xab, offset: 7 };
        assert_eq!(StartAt::parse("head"), Ok(StartAt::Head));
        assert_eq!(StartAt::parse("last:3"), Ok(StartAt::Last(3)));
        assert_eq!(StartAt::parse(&position.to_string()), Ok(StartAt::After(position)));
        assert_eq!(StartAt::parse("-5m"), Ok(StartAt::Since(Duration::from_secs(300))));
        assert_eq!(StartAt::parse("-2min"), Ok(StartAt::Since(Duration::from_secs(120))));
        assert_eq!(StartAt::parse("1700-3"), Ok(StartAt::StreamId(1700, 3)));
        for wrong in ["", "7-", "a-1", "last:", "last:-1", "-5", "5m", "x:1", "-m", "tail"] {
            assert!(StartAt::parse(wrong).is_err(), "{wrong}");
        }
    }
}
