//! `switchboard push send`.

use super::{
    args::SendArgs,
    client::{authorization, connect, position, timed},
};
use crate::{
    bus::parts::{check, messages, print, print_json, report},
    call::Failure,
};
use bytes::Bytes;
use serde_json::json;
use switchboard::{Code, Status, codegen::buffa_types::google::protobuf};
use switchboard_push::v1::{self, PushClient, target::Target};

/// Targets of one request.
const TARGETS_MAX: usize = 1_000;

/// Publishes one message after the other.
pub(super) async fn run(args: &SendArgs) -> Result<(), Failure> {
    let (targets, data) = read(args)?;
    if args.lines && data.is_some() {
        return Err(Failure::Usage("--lines reads messages from standard input, and DATA is one".to_owned()));
    }
    let client = PushClient::new(timed(&args.server, connect(&args.server)).await?);
    let mut messages = messages(data, args.lines);
    let mut failed = None;
    while let Some(message) = messages.recv().await {
        let entry = publication(args, check(message, args.codec)?);
        let sent = timed(&args.server, send(&client, args, &targets, entry)).await?;
        failed = failed.or(sent);
    }
    failed.map_or(Ok(()), |status| Err(status.into()))
}

/// Returns the targets and the message of the command line.
fn read(args: &SendArgs) -> Result<(Vec<Target>, Option<&str>), Failure> {
    let mut targets: Vec<_> = args.user.iter().cloned().map(Target::User).collect();
    targets.extend(args.key.iter().cloned().map(Target::Key));
    targets.extend(args.rooms.iter().cloned().map(Target::Rooms));
    targets.extend(args.all.then_some(Target::All(true)));
    if targets.len() > TARGETS_MAX {
        let text = format!("{} targets are given; the limit is {TARGETS_MAX}", targets.len());
        return Err(Failure::Usage(text));
    }
    match (targets.is_empty(), &args.first, &args.second) {
        (true, None, _) => {
            let text = "the target is missing: a ROOM after the address, or --user, --key, --rooms or --all";
            Err(Failure::Usage(text.to_owned()))
        }
        (true, Some(room), data) => Ok((vec![Target::Room(room.clone())], data.as_deref())),
        (false, data, None) => Ok((targets, data.as_deref())),
        (false, Some(room), Some(_)) => {
            let text = format!(
                "room {room:?} and flags both name targets; omit the room, or push to it with --rooms {room}"
            );
            Err(Failure::Usage(text))
        }
        (false, None, Some(_)) => Ok((targets, args.second.as_deref())),
    }
}

fn publication(args: &SendArgs, payload: Bytes) -> v1::Publication {
    let header = |(name, value): &(String, Bytes)| v1::Header {
        name: name.clone(),
        value: value.clone(),
        ..Default::default()
    };
    let expires_in = args.expires_in.map(|period| protobuf::Duration {
        seconds: period.as_secs() as i64,
        nanos: period.subsec_nanos() as i32,
        ..Default::default()
    });
    v1::Publication {
        payload,
        codec: args.codec.codec().name().to_owned(),
        headers: args.headers.iter().map(header).collect(),
        id: args.id.clone().unwrap_or_default().into(),
        expires_in: expires_in.into(),
        operation: args.operation,
        ..Default::default()
    }
}

/// Publishes a message and prints the outcome of each target. Returns the first error of a target.
async fn send(
    client: &PushClient,
    args: &SendArgs,
    targets: &[Target],
    entry: v1::Publication,
) -> Result<Option<Status>, Failure> {
    let target = |target: &Target| v1::Target { target: Some(target.clone()), ..Default::default() };
    let request = v1::PublishRequest {
        targets: targets.iter().map(target).collect(),
        entry: entry.into(),
        ..Default::default()
    };
    let mut call = client.publish(request);
    if let Some(authorization) = authorization(&args.server) {
        call = call.meta("authorization", authorization);
    }
    let response = call.await?.into_inner();
    let mut failed = None;
    for (target, outcome) in targets.iter().zip(&response.published) {
        let (kind, name) = described(target);
        if !outcome.code.is_empty() {
            let known = Code::ALL.into_iter().find(|code| code.name() == outcome.code);
            let code = known.unwrap_or(Code::Unknown);
            let status = Status::new(code, outcome.error.clone());
            if args.server.json {
                print_json(&json!({kind: name, "error": outcome.error, "code": outcome.code}))?;
            } else {
                report(&format!("switchboard: {kind} {name:?}: {status}"));
            }
            failed = failed.or(Some(status));
            continue;
        }
        printed(target, outcome, (targets.len() > 1, args.server.json))?;
    }
    Ok(failed)
}

/// Prints the outcome of a target: the position, or the number of rooms of a pattern.
fn printed(
    target: &Target,
    outcome: &v1::Published,
    (has_names, is_json): (bool, bool),
) -> Result<(), Failure> {
    let (kind, name) = described(target);
    let place = outcome.position.as_option();
    if is_json {
        return print_json(&match (target, place) {
            (Target::Rooms(_), _) => json!({kind: name, "count": outcome.rooms}),
            (_, Some(at)) => json!({kind: name, "position": position(place), "offset": at.offset}),
            (_, None) => json!({kind: name}),
        });
    }
    let text = match target {
        Target::Rooms(_) if outcome.rooms == 1 => "1 room".to_owned(),
        Target::Rooms(_) => format!("{} rooms", outcome.rooms),
        _ => position(place),
    };
    print(&if has_names { format!("{kind} {name} {text}\n") } else { format!("{text}\n") })
}

/// Returns the kind and the name of a target.
fn described(target: &Target) -> (&'static str, &str) {
    match target {
        Target::Room(name) => ("room", name),
        Target::User(id) => ("user", id),
        Target::Key(key) => ("key", key),
        Target::Rooms(pattern) => ("rooms", pattern),
        Target::All(_) => ("all", "devices"),
    }
}
