//! Keys, values and scripts: our own, and those of rpcx's plug-in for Redis.

use crate::layout::{Layout, Style};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use switchboard::{Code, Result, Status, discover::Instance};

/// The keys of instances, and the scripts that read and write them.
pub(super) struct Keys {
    layout: Box<dyn Layout>,
    style: Style,
}

/// A value as rpcx's plug-in stores it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Pair {
    /// Without the `/` before the base path that the Redis key has.
    key: String,
    /// In base64.
    value: String,
    #[serde(default)]
    last_index: u64,
}

impl Keys {
    pub(super) fn new(style: Style, prefix: &str) -> Keys {
        Keys { layout: style.layout(prefix, "/"), style }
    }

    pub(super) fn folder(&self, service: &str) -> String {
        self.layout.folder(service)
    }

    pub(super) fn name(&self, instance: &Instance) -> Result<String> {
        self.layout.name(instance)
    }

    pub(super) fn encode(&self, instance: &Instance) -> Result<Vec<u8>> {
        let value = self.layout.encode(instance)?;
        if self.style == Style::Own {
            return Ok(value);
        }
        let key = self.layout.key(instance)?;
        let key = key.strip_prefix('/').unwrap_or(&key).to_owned();
        let pair = Pair { key, value: STANDARD.encode(value), last_index: 0 };
        serde_json::to_vec(&pair).map_err(|error| Status::internal(format!("a pair as json: {error}")))
    }

    /// Decodes an instance of the folder; `None` for one of another service.
    pub(super) fn decode(
        &self,
        service: &str,
        name: &str,
        value: &[u8],
        bytes_max: usize,
    ) -> Option<Result<Instance>> {
        if !self.layout.is_name(name) {
            return None;
        }
        if self.style == Style::Own {
            return Some(self.layout.decode(service, name, value, bytes_max));
        }
        let wrong = |why: &dyn std::fmt::Display| {
            Status::new(Code::InvalidArgument, format!("the value of {name:?} is not an rpcx value: {why}"))
        };
        Some(if value.len() > bytes_max.saturating_mul(2) {
            Err(wrong(&format!("{} bytes exceed the limit", value.len())))
        } else {
            serde_json::from_slice(value)
                .map_err(|error| wrong(&error))
                .and_then(|pair: Pair| STANDARD.decode(pair.value).map_err(|error| wrong(&error)))
                .and_then(|value| self.layout.decode(service, name, &value, bytes_max))
        })
    }

    /// Returns the pattern of the keys in the folder, for `SCAN` and channels.
    pub(super) fn pattern(&self, service: &str) -> String {
        let mut pattern = String::new();
        for letter in self.folder(service).chars() {
            if r"*?[]\".contains(letter) {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern + "*"
    }

    /// Returns the channel on which Redis announces changes by other programs, if it is configured.
    pub(super) fn events(&self, service: &str) -> Option<String> {
        (self.style != Style::Own).then(|| format!("__keyspace@*__:{}", self.pattern(service)))
    }

    /// Returns the time after which the list is read again without a message.
    pub(super) fn read_every(&self) -> Duration {
        Duration::from_secs(if self.style == Style::Own { 10 } else { 2 })
    }

    pub(super) fn list(&self) -> &'static str {
        if self.style == Style::Own { LIST } else { SCAN }
    }

    pub(super) fn register(&self) -> &'static str {
        if self.style == Style::Own { HOLD } else { SET }
    }
}

/// Returns the instances, with the time until the first of them expires; removes names whose keys have expired. Returns
/// only the number if there are more than allowed.
const LIST: &str = r"
local count = redis.call('SCARD', KEYS[1])
if count > tonumber(ARGV[1]) then return {tostring(count)} end
local first, found = -1, {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    local value = redis.call('GET', KEYS[1] .. name)
    if value then
        local left = redis.call('PTTL', KEYS[1] .. name)
        if left >= 0 and (first < 0 or left < first) then first = left end
        found[#found + 1] = name
        found[#found + 1] = value
    else
        redis.call('SREM', KEYS[1], name)
    end
end
table.insert(found, 1, tostring(first))
return found
";

/// KEYS: the folder, ARGV: name, value, milliseconds, owner. Notifies readers unless the value was the same before.
///
/// The owner is in a separate key: other programs read the values, and two registrations may have the same value.
const HOLD: &str = r"
local key = KEYS[1] .. ARGV[1]
local before = redis.call('GET', key)
redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
redis.call('SET', 'switchboard:owner:' .. key, ARGV[4], 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
if before ~= ARGV[2] then redis.call('PUBLISH', KEYS[1], '') end
return 1
";

/// KEYS: the folder, ARGV: name, value, milliseconds, owner. Returns whether the key still existed with the same owner.
pub(super) const RENEW: &str = r"
local key = KEYS[1] .. ARGV[1]
local owner = 'switchboard:owner:' .. key
if redis.call('GET', key) ~= ARGV[2] or redis.call('GET', owner) ~= ARGV[4] then return 0 end
redis.call('PEXPIRE', owner, ARGV[3])
return redis.call('PEXPIRE', key, ARGV[3])
";

/// KEYS: the folder, ARGV: name, value, milliseconds, owner. Returns whether a newer registration owns the key.
pub(super) const SUPERSEDED: &str = r"
local key = KEYS[1] .. ARGV[1]
local owner = redis.call('GET', 'switchboard:owner:' .. key)
if owner and owner ~= ARGV[4] and redis.call('EXISTS', key) == 1 then return 1 end
return 0
";

/// KEYS: the folder, ARGV: name, value, milliseconds, owner. A value that another program has written meanwhile stays.
pub(super) const RELEASE: &str = r"
local key = KEYS[1] .. ARGV[1]
local owner = 'switchboard:owner:' .. key
if redis.call('GET', owner) ~= ARGV[4] then return 0 end
redis.call('DEL', owner)
if redis.call('GET', key) ~= ARGV[2] then return 0 end
redis.call('DEL', key)
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('PUBLISH', KEYS[1], '')
return 1
";

/// The equivalent of `LIST` without a set of names. ARGV: the limit, the pattern of the keys.
const SCAN: &str = r"
local first, found, cursor = -1, {}, '0'
local seen = {}
repeat
    local page = redis.call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', 1000)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
        local value = not seen[key] and redis.call('GET', key)
        seen[key] = true
        if value then
            local left = redis.call('PTTL', key)
            if left >= 0 and (first < 0 or left < first) then first = left end
            found[#found + 1] = string.sub(key, #KEYS[1] + 1)
            found[#found + 1] = value
        end
    end
    if #found > 2 * tonumber(ARGV[1]) then return {tostring(#found / 2)} end
until cursor == '0'
table.insert(found, 1, tostring(first))
return found
";

/// The equivalent of `HOLD` without a set of names.
const SET: &str = r"
local key = KEYS[1] .. ARGV[1]
local before = redis.call('GET', key)
redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
redis.call('SET', 'switchboard:owner:' .. key, ARGV[4], 'PX', ARGV[3])
if before ~= ARGV[2] then redis.call('PUBLISH', KEYS[1], '') end
return 1
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_plug_in() {
        let keys = Keys::new(Style::Rpcx, "rpcx_test");
        let instance = Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx").group("g");
        assert_eq!(keys.folder("Arith"), "/rpcx_test/Arith/");
        assert_eq!(keys.name(&instance).unwrap(), "tcp@10.0.0.7:8972");
        let value = r#"{"Key":"rpcx_test/Arith/tcp@10.0.0.7:8972","Value":"Z3JvdXA9Zw==","LastIndex":0}"#;
        assert_eq!(keys.encode(&instance).unwrap(), value.as_bytes());
        let read = |name, value: &str| keys.decode("Arith", name, value.as_bytes(), 100);
        assert_eq!(read("tcp@10.0.0.7:8972", value).unwrap().unwrap(), instance);
        assert!(read("x/tcp@10.0.0.7:8972", value).is_none());
        for wrong in ["{", r#"{"Key":"k","Value":"?"}"#, &"x".repeat(300)] {
            assert!(read("tcp@10.0.0.7:8972", wrong).unwrap().is_err());
        }
        assert_eq!(keys.pattern("a*b"), r"/rpcx_test/a\*b/*");
        // A base path with a slash has two slashes in Redis.
        assert_eq!(Keys::new(Style::Rpcx, "/rpcx").folder("Arith"), "//rpcx/Arith/");
    }
}
