//! Bodies of im-cloud: replies, and the pushes that its devices and its HTTP API send.

use super::room_key;
use bytes::Bytes;
use serde_json::{Map, Value};

/// Body of the reply to an authentication.
pub const AUTH_REPLY: &[u8] = br#"{"ok":"yes"}"#;
/// Body of the reply to a heartbeat, as im-cloud spells it.
pub const HEARTBEAT_REPLY: &[u8] = br#"{"hreart":"ok"}"#;
/// Body of an HTTP response to a push: it is accepted.
pub const ACCEPTED: &str = r#"{"msg":"","data":["ok"],"code":0}"#;
/// Body of an HTTP response, or of a reply to a device: a parameter is missing.
pub const MISSING_PARAMETER: &str = r#"{"msg":"缺少参数","data":[],"code":1}"#;
/// Body of a reply to a device: its command is not known.
pub const UNKNOWN_COMMAND: &str = r#"{"msg":"unknown cmd","data":[],"code":1}"#;

/// Kind of a push.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: the commands of im-cloud
pub enum PushKind {
    /// To all devices.
    All,
    /// To devices by key.
    Keys,
    /// To the devices of users.
    Mids,
    /// To a room.
    Room,
}

impl PushKind {
    /// Finds a kind by the command of a device, such as `pushKeys`.
    pub fn from_command(command: &str) -> Option<PushKind> {
        match command {
            "pushAll" => Some(PushKind::All),
            "pushKeys" => Some(PushKind::Keys),
            "pushMids" => Some(PushKind::Mids),
            "pushRoom" => Some(PushKind::Room),
            _ => None,
        }
    }

    /// Returns the command of a device.
    pub fn command(self) -> &'static str {
        match self {
            PushKind::All => "pushAll",
            PushKind::Keys => "pushKeys",
            PushKind::Mids => "pushMids",
            PushKind::Room => "pushRoom",
        }
    }
}

/// A push of a device or of the HTTP API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Push {
    /// Receivers.
    pub to: Receivers,
    /// The message: a text as its bytes, anything else as JSON.
    pub message: Bytes,
}

/// Receivers of a push.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: the commands of im-cloud
pub enum Receivers {
    /// All devices.
    All,
    /// Devices by key.
    Keys(Vec<String>),
    /// Devices of users.
    Mids(Vec<i64>),
    /// A room, by `type://id`.
    Room(String),
}

impl Push {
    /// Reads a push from its parameters: `msg`, and `keys`, `mids`, or `type` and `room`. `None` if one is missing or
    /// empty as PHP sees it, or has a type that cannot be used.
    pub fn from_parameters(kind: PushKind, parameters: &Map<String, Value>) -> Option<Push> {
        let find = |name: &str| parameters.get(name).filter(|value| !is_empty(value));
        let text = |name: &str| find(name).and_then(scalar_text);
        let message = match find("msg")? {
            Value::String(text) => Bytes::copy_from_slice(text.as_bytes()),
            other => Bytes::from(other.to_string()),
        };
        let to = match kind {
            PushKind::All => Receivers::All,
            PushKind::Keys => {
                Receivers::Keys(values(find("keys")?).iter().map(scalar_text).collect::<Option<_>>()?)
            }
            PushKind::Mids => Receivers::Mids(values(find("mids")?).iter().map(mid).collect::<Option<_>>()?),
            PushKind::Room => Receivers::Room(room_key(&text("type")?, &text("room")?)),
        };
        Some(Push { to, message })
    }

    /// Returns the body of a packet with which a device sends this push.
    pub fn to_json(&self) -> Vec<u8> {
        let mut data = Map::new();
        let kind = match &self.to {
            Receivers::All => PushKind::All,
            Receivers::Keys(keys) => {
                data.insert("keys".into(), keys.clone().into());
                PushKind::Keys
            }
            Receivers::Mids(mids) => {
                data.insert("mids".into(), mids.clone().into());
                PushKind::Mids
            }
            Receivers::Room(key) => {
                let (kind, room) = super::split_room_key(key).unwrap_or(("", key));
                data.insert("type".into(), kind.into());
                data.insert("room".into(), room.into());
                PushKind::Room
            }
        };
        let message = String::from_utf8_lossy(&self.message).into_owned();
        data.insert("msg".into(), message.into());
        serde_json::json!({ "cmd": kind.command(), "data": data }).to_string().into_bytes()
    }
}

/// Returns the elements of an array, or the value alone.
fn values(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        single => std::slice::from_ref(single),
    }
}

/// Returns the text of a string or a number.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn mid(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Returns true if `empty` of PHP is true for the value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0",
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}
