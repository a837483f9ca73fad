//! Jobs in streams of Redis: `push` appends, and the members of a group share the entries.

use super::{
    args::{ReceiveArgs, SendArgs},
    input,
    output::{self, Received},
    receive::topic,
    redis::{Redis, is_group_known},
    start::StartAt,
    target::{Remote, refuse},
};
use crate::call::Failure;
use bytes::Bytes;
use std::{process, time::Duration};
use switchboard::{Code, Status};
use switchboard_wire::resp::Value;

/// Time after which an entry without an acknowledgement is one of a member that has ended.
const CLAIM_IDLE_MS: &[u8] = b"60000";
/// Time between two looks for entries of members that have ended, while there are no new ones.
const CLAIM_EVERY_MS: &[u8] = b"10000";

/// Field of an entry that has the message; the others are headers.
const PAYLOAD: &[u8] = b"payload";

/// Appends one message after the other, and prints the ids of the entries.
pub(super) async fn push(remote: &Remote, args: &SendArgs) -> Result<(), Failure> {
    refuse(&[
        ("--key", args.key.is_some(), "entries of Redis streams have no key"),
        ("--id", args.id.is_some(), "Redis streams drop no duplicates"),
    ])?;
    let stream = args.message.topic()?;
    let mut redis = Redis::connect(remote).await?;
    let mut messages = input::messages(args.message.message.as_deref(), args.message.lines);
    while let Some(message) = messages.recv().await {
        let payload = input::check(message, args.message.codec)?;
        let mut command: Vec<&[u8]> = vec![b"XADD", stream.as_bytes(), b"*", PAYLOAD, &payload];
        for (name, value) in &args.message.headers {
            command.extend([name.as_bytes(), value]);
        }
        let reply = redis.command(&command).await?;
        let id = reply.bytes().ok_or_else(|| unexpected("XADD"))?;
        output::appended(stream, &String::from_utf8_lossy(id), args.common.json)?;
    }
    Ok(())
}

/// Prints the entries that the group gives to this member, and acknowledges them after that. Entries that a member has
/// received and not acknowledged within a minute come first.
pub(super) async fn pull(remote: &Remote, args: &ReceiveArgs, group: &str) -> Result<(), Failure> {
    let stream = topic(args.topic.as_deref())?;
    let mut redis = Redis::connect(remote).await?;
    let start = start(&mut redis, stream, args.from).await?;
    let create =
        [b"XGROUP", b"CREATE", stream.as_bytes(), group.as_bytes(), start.as_bytes(), &b"MKSTREAM"[..]];
    match redis.command(&create).await {
        Err(failure) if is_group_known(&failure) => {
            if args.from.is_some() {
                eprintln!(
                    "switchboard: the group {group} exists and continues at its place; --from has no effect"
                );
            }
        }
        created => created.map(|_| ())?,
    }
    let must_ack = args.ack || args.durable;
    let member = format!("switchboard-{}", process::id());
    let mut read: Vec<&[u8]> = vec![b"XREADGROUP", b"GROUP", group.as_bytes(), member.as_bytes()];
    if !must_ack {
        read.push(b"NOACK");
    }
    let block = if must_ack { CLAIM_EVERY_MS } else { b"0" };
    read.extend([&b"COUNT"[..], b"1", b"BLOCK", block, b"STREAMS", stream.as_bytes(), b">"]);
    eprintln!("subscribed to {stream}");
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut abandoned = must_ack.then(|| Abandoned::new(stream, group, &member));
    while left > 0 {
        let claimed = match &mut abandoned {
            Some(abandoned) => abandoned.claim(&mut redis).await?,
            None => None,
        };
        let reply = match claimed {
            Some(reply) => reply,
            None => redis.command(&read).await?,
        };
        let Some((id, fields)) = entry(&reply) else {
            if let Some(abandoned) = &mut abandoned {
                abandoned.is_due = true;
            }
            continue;
        };
        print(stream, &id, fields, args)?;
        if must_ack {
            redis.command(&[b"XACK", stream.as_bytes(), group.as_bytes(), &id]).await?;
        }
        left -= 1;
    }
    Ok(())
}

/// Entries of a group whose members have ended before they acknowledged them.
struct Abandoned<'a> {
    stream: &'a str,
    group: &'a str,
    member: &'a str,
    /// Set if the entries are to be searched.
    is_due: bool,
    /// Where the search continues.
    from: Bytes,
}

impl<'a> Abandoned<'a> {
    fn new(stream: &'a str, group: &'a str, member: &'a str) -> Abandoned<'a> {
        Abandoned { stream, group, member, is_due: true, from: Bytes::from_static(b"0-0") }
    }

    /// Makes one entry that of this member, and returns it in the form of a reply to `XREADGROUP`; `None` when there is
    /// none, or when the server is older than Redis 6.2, which cannot search.
    async fn claim(&mut self, redis: &mut Redis) -> Result<Option<Value>, Failure> {
        while self.is_due {
            let [stream, group, member] = [self.stream, self.group, self.member].map(str::as_bytes);
            let from = self.from.clone();
            let command: [&[u8]; 8] =
                [b"XAUTOCLAIM", stream, group, member, CLAIM_IDLE_MS, &from, b"COUNT", b"1"];
            let reply = match redis.command(&command).await {
                Err(failure) if failure.status_code() == Some(Code::Unimplemented) => {
                    self.is_due = false;
                    return Ok(None);
                }
                reply => reply?,
            };
            let Some([next, claimed, ..]) = reply.elements() else { return Err(unexpected("XAUTOCLAIM")) };
            self.from = next.bytes().cloned().ok_or_else(|| unexpected("XAUTOCLAIM"))?;
            // The search has seen all entries.
            self.is_due = self.from != b"0-0"[..];
            // A deleted entry has neither id nor fields.
            let claimed_entry = claimed.elements().and_then(|claimed| claimed.first());
            if claimed_entry.and_then(|entry| entry.elements()).is_some_and(|parts| parts.len() == 2) {
                let entries = Value::Array(vec![Value::Bulk(self.stream.to_owned().into()), claimed.clone()]);
                return Ok(Some(Value::Array(vec![entries])));
            }
        }
        Ok(None)
    }
}

/// Returns the id after which a new group starts.
async fn start(redis: &mut Redis, stream: &str, from: Option<StartAt>) -> Result<String, Failure> {
    Ok(match from {
        None | Some(StartAt::Head | StartAt::Last(0)) => "$".to_owned(),
        Some(StartAt::StreamId(milliseconds, sequence)) => format!("{milliseconds}-{sequence}"),
        Some(StartAt::After(_)) => {
            let text = "--from has a position of a topic; ids of Redis streams are as in 1700000000000-0";
            return Err(Failure::Usage(text.to_owned()));
        }
        Some(StartAt::Last(entries)) => {
            // A group starts after an id: that of the entry before, or 0.
            let count = entries.saturating_add(1).to_string();
            let newest = redis
                .command(&[b"XREVRANGE", stream.as_bytes(), b"+", b"-", b"COUNT", count.as_bytes()])
                .await?;
            let before =
                newest.elements().and_then(|newest| newest.get(entries)?.elements()?.first()?.bytes());
            before.map_or("0".to_owned(), |id| String::from_utf8_lossy(id).into_owned())
        }
        Some(StartAt::Since(age)) => {
            // The ids of entries are times of the server.
            let now = redis.command(&[b"TIME"]).await?;
            let seconds = now.elements().and_then(|now| now.first()?.bytes());
            let seconds = seconds.and_then(|seconds| std::str::from_utf8(seconds).ok()?.parse().ok());
            let now = Duration::from_secs(seconds.ok_or_else(|| unexpected("TIME"))?);
            format!("{}-0", now.saturating_sub(age).as_millis())
        }
    })
}

/// Returns the id and the fields of the one entry in a reply; `None` without one.
fn entry(reply: &Value) -> Option<(Bytes, &[Value])> {
    let [_, entries] = reply.elements()?.first()?.elements()? else { return None };
    let [id, fields] = entries.elements()?.first()?.elements()? else { return None };
    // A deleted entry has no fields.
    Some((id.bytes()?.clone(), fields.elements().unwrap_or_default()))
}

fn print(stream: &str, id: &Bytes, fields: &[Value], args: &ReceiveArgs) -> Result<(), Failure> {
    let (mut payload, mut headers) = (None, Vec::new());
    for pair in fields.chunks_exact(2) {
        let (Some(name), Some(value)) = (pair[0].bytes(), pair[1].bytes()) else { continue };
        if *name == PAYLOAD && payload.is_none() {
            payload = Some(value.clone());
        } else {
            headers.push((String::from_utf8_lossy(name).into_owned(), value.clone()));
        }
    }
    // Entries of other programs have fields of their own.
    let payload = payload.unwrap_or_else(|| {
        let fields = headers.iter().map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)));
        fields.collect::<Vec<_>>().join(" ").into()
    });
    let id = String::from_utf8_lossy(id).into_owned();
    let received = Received {
        topic: Some(stream.as_bytes()),
        position: Some(id),
        frames: std::slice::from_ref(&payload),
        headers,
    };
    output::received(&received, args.common.json, args.print)
}

fn unexpected(command: &str) -> Failure {
    Status::new(Code::Internal, format!("the server sent an unexpected reply to {command}")).into()
}
