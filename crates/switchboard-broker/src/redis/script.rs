//! The scripts, their arguments and their results.
//!
//! A result is a list of texts: the epoch in hexadecimal digits, the newest offset, and for a read the offset that it
//! began with, the first offset that is kept, and the offset, time in milliseconds and record of each entry.

use crate::record;
use redis::{RedisResult, Script, aio::MultiplexedConnection};
use std::sync::LazyLock;
use switchboard_core::clock;
use switchboard_message::{
    Gap, GapReason, Position, Topic,
    broker::{Page, ReadFrom, StoredEntry},
};

/// Begins each script: reads the epoch and the newest offset of the topic; begins a log if there is none.
macro_rules! script {
    ($body:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                r"
local meta, entries = KEYS[1], KEYS[2]
local log = redis.call('HMGET', meta, 'epoch', 'head')
local epoch, head = log[1], tonumber(log[2])
local function number(value) return string.format('%.0f', value) end
local function begin(offset)
  epoch, head = ARGV[1], offset
  redis.call('HSET', meta, 'epoch', epoch, 'head', number(head))
end
if not epoch or not head then
  redis.call('DEL', entries)
  begin(0)
  redis.call('PEXPIRE', meta, ARGV[2])
end
",
                $body
            ))
        })
    };
}

/// Arguments: epoch of a new log, period to keep; entries of the history, window of ids, pairs of id and record.
pub(super) static APPEND: LazyLock<Script> = script!(
    r"
local history, window = ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local ms = number(time[1] * 1000 + math.floor(time[2] / 1000))
local last = head
for i = 5, #ARGV, 2 do
  local id, record = ARGV[i], ARGV[i + 1]
  local first = nil
  local key = KEYS[3] .. id
  if id ~= '' and window > 0 then
    local known = redis.call('GET', key)
    if known and string.sub(known, 1, 16) == epoch then first = tonumber(string.sub(known, 18)) end
  end
  if first then
    last = first
  else
    head = head + 1
    last = head
    local offset = number(head)
    redis.call('XADD', entries, 'MAXLEN', history, offset .. '-' .. ms, 'r', record)
    redis.call('HSET', meta, 'head', offset)
    if id ~= '' and window > 0 then redis.call('SET', key, epoch .. ' ' .. offset, 'PX', window) end
    redis.call('PUBLISH', KEYS[4], epoch .. ' ' .. offset .. ' ' .. ms .. ' ' .. record)
  end
end
redis.call('PEXPIRE', meta, ARGV[2])
redis.call('PEXPIRE', entries, ARGV[2])
return {epoch, number(last)}"
);

/// Arguments: epoch of a new log, period to keep; a position that the caller has seen, and the time of its entry, if
/// known. A head below the position is another log, and so is an entry of another time: the server has lost the end of
/// the log, and publications have replaced it.
pub(super) static HEAD: LazyLock<Script> = script!(
    r"
if ARGV[3] == epoch then
  if tonumber(ARGV[4]) > head then
    begin(head)
  elseif ARGV[5] ~= '' then
    local known = redis.call('XRANGE', entries, ARGV[4], ARGV[4], 'COUNT', 1)[1]
    if known and string.match(known[1], '%-(%d+)$') ~= ARGV[5] then begin(head) end
  end
end
return {epoch, number(head)}"
);

/// Arguments: epoch of a new log, period to keep; number of entries, start. A response has about 1 MiB at most, or one
/// entry.
pub(super) static READ: LazyLock<Script> = script!(
    r"
local count, kind = tonumber(ARGV[3]), ARGV[4]
local function offset_of(entry) return tonumber(string.match(entry[1], '^(%d+)')) end
local first = redis.call('XRANGE', entries, '-', '+', 'COUNT', 1)[1]
local floor = first and offset_of(first) or head + 1
local from = 1
if kind == 'after' then
  if ARGV[6] == epoch then from = tonumber(ARGV[5]) + 1 end
elseif kind == 'last' then
  from = math.max(floor, head - tonumber(ARGV[5]) + 1)
else
  local time = redis.call('TIME')
  local since = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[5])
  local low, high = floor, head + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call('XRANGE', entries, number(middle) .. '-0', '+', 'COUNT', 1)[1]
    if found and tonumber(string.match(found[1], '%-(%d+)$')) < since then
      low = middle + 1
    else
      high = middle
    end
  end
  from = low
end
local result, bytes, next, left = {epoch, number(head), number(from), number(floor)}, 0, from, count
while left > 0 and bytes < 1048576 do
  local batch = math.min(left, 16)
  local page = redis.call('XRANGE', entries, number(next) .. '-0', '+', 'COUNT', batch)
  for _, entry in ipairs(page) do
    if bytes < 1048576 then
      local offset = offset_of(entry)
      next = offset + 1
      table.insert(result, number(offset))
      table.insert(result, string.match(entry[1], '%-(%d+)$'))
      table.insert(result, entry[2][2] or '')
      bytes = bytes + #(entry[2][2] or '')
    end
  end
  left = left - batch
  if #page < batch then left = 0 end
end
return result"
);

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    keys: [String; 4],
    arguments: Vec<Vec<u8>>,
}

impl Call {
    /// Creates a call for the topic with this channel, without arguments.
    pub(super) fn new(script: &'static Script, channel: &str) -> Call {
        let keys =
            [format!("{channel}:m"), format!("{channel}:e"), format!("{channel}:i:"), channel.to_owned()];
        Call { script, keys, arguments: Vec::new() }
    }

    /// Creates a call that reads the newest position, with the first arguments of this one.
    pub(super) fn head_of(&self) -> Call {
        let mut arguments: Vec<_> = self.arguments.iter().take(2).cloned().collect();
        arguments.extend([epoch(0).into_bytes(), b"0".to_vec(), Vec::new()]);
        Call { script: &HEAD, keys: self.keys.clone(), arguments }
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Call {
        self.bytes(text.as_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Call {
        self.arguments.push(bytes.to_vec());
        self
    }

    pub(super) async fn invoke(&self, connection: &mut MultiplexedConnection) -> RedisResult<Vec<Vec<u8>>> {
        let mut call = self.script.prepare_invoke();
        self.keys.iter().for_each(|key| _ = call.key(key));
        self.arguments.iter().for_each(|argument| _ = call.arg(&argument[..]));
        call.invoke_async(connection).await
    }
}

/// Returns the epoch of a log that begins.
pub(super) fn random_epoch() -> String {
    epoch(clock::random())
}

/// Writes an epoch, always with the same number of digits.
pub(super) fn epoch(epoch: u64) -> String {
    format!("{epoch:016x}")
}

/// Reads the position at the beginning of a result.
pub(super) fn position(words: &[Vec<u8>]) -> Option<Position> {
    let [epoch, offset, ..] = words else { return None };
    let epoch = u64::from_str_radix(str::from_utf8(epoch).ok()?, 16).ok()?;
    Some(Position { epoch, offset: number(offset)? })
}

pub(super) fn number(word: &[u8]) -> Option<u64> {
    str::from_utf8(word).ok()?.parse().ok()
}

/// An entry that this process has seen: after a crash, a server may have another one at its position.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) position: Position,
    pub(super) time_ms: u64,
}

/// Reads the result of a read, and derives the gap at its start; with the last entry.
pub(super) fn page(topic: &Topic, start: ReadFrom, words: Vec<Vec<u8>>) -> Option<(Page, Option<Seen>)> {
    let head = position(&words)?;
    let (from, floor) = (number(words.get(2)?)?, number(words.get(3)?)?);
    let now = record::now();
    let mut entries = Vec::new();
    let mut words = words.into_iter().skip(4);
    let mut seen = None;
    while let (Some(offset), Some(time), Some(record)) = (words.next(), words.next(), words.next()) {
        let position = Position { offset: number(&offset)?, ..head };
        seen = Some(Seen { position, time_ms: number(&time)? });
        let previous = position.offset.saturating_sub(1);
        entries.push(StoredEntry::new(position, previous, record::decode(record.into(), now)));
    }
    let gap = |range: std::ops::Range<u64>, is_exact: bool, reason| {
        let missing = is_exact.then(|| range.end.saturating_sub(range.start));
        Some(Gap::new(topic.clone(), head.epoch, range, missing, reason))
    };
    let missing = match start {
        ReadFrom::After(known) if known.epoch != head.epoch => gap(1..floor, false, GapReason::Epoch),
        ReadFrom::After(known) if known.offset > head.offset => {
            gap(head.offset + 1..known.offset.saturating_add(1), true, GapReason::Lost)
        }
        ReadFrom::After(_) if from < floor => gap(from..floor, true, GapReason::Expired),
        // All kept entries are newer: those before them may be as well.
        ReadFrom::Since(_) if floor > 1 && from <= floor => gap(1..floor, false, GapReason::Expired),
        _ => None,
    };
    Some((Page::new(head, missing, entries), seen))
}
