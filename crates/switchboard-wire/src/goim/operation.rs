//! Numbers of operations. All other numbers are operations of the application, which pushes have.

/// The device is alive; from the device.
pub const HEARTBEAT: i32 = 2;
/// Reply to a heartbeat: the number of connections in the room.
pub const HEARTBEAT_REPLY: i32 = 3;
/// A message from the device.
pub const MESSAGE: i32 = 4;
/// Credentials and settings of the device; its first packet.
pub const AUTH: i32 = 7;
/// Reply to the credentials.
pub const AUTH_REPLY: i32 = 8;
/// A container of pushes for devices in WebSockets; with im-cloud, a push.
pub const RAW: i32 = 9;
/// The device changes its room, or leaves it.
pub const CHANGE_ROOM: i32 = 12;
/// Reply to a change of the room, with the body of the request.
pub const CHANGE_ROOM_REPLY: i32 = 13;
/// The device adds operations that it receives.
pub const SUBSCRIBE: i32 = 14;
/// Reply to added operations, with the body of the request.
pub const SUBSCRIBE_REPLY: i32 = 15;
/// The device removes operations that it receives.
pub const UNSUBSCRIBE: i32 = 16;
/// Reply to removed operations, with the body of the request.
pub const UNSUBSCRIBE_REPLY: i32 = 17;

/// Returns the operation of the reply to a request of a device: that of the request, unless it has its own.
pub fn reply(request: i32) -> i32 {
    match request {
        HEARTBEAT => HEARTBEAT_REPLY,
        AUTH => AUTH_REPLY,
        CHANGE_ROOM => CHANGE_ROOM_REPLY,
        SUBSCRIBE => SUBSCRIBE_REPLY,
        UNSUBSCRIBE => UNSUBSCRIBE_REPLY,
        other => other,
    }
}

/// Reads a list of operations: numbers separated by commas. `None` if one is not an `i32`, or if there are more than
/// `count_max`. An empty list has no operations.
pub fn parse_list(list: &[u8], count_max: usize) -> Option<Vec<i32>> {
    if list.is_empty() {
        return Some(Vec::new());
    }
    let text = std::str::from_utf8(list).ok()?;
    let mut operations = Vec::new();
    for number in text.split(',') {
        if operations.len() >= count_max {
            return None;
        }
        operations.push(number.parse().ok()?);
    }
    Some(operations)
}
