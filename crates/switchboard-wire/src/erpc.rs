//! Server and client of eRPC 6 and 7 (andeya/erpc, formerly teleport), in its three socket protocols.
//!
//! ```text
//! u32 length | u8 number of transfer filters, their ids | from here on through the filters (all numbers big endian):
//!
//! raw:   u8 and sequence in base 36 | u8 kind | u8 and name of the method | u16 and status | u16 and metadata
//!        | u8 codec | body                                        the length counts its own four bytes
//! json:  {"seq":1,"mtype":1,"serviceMethod":"/page/test","status":"code=0","meta":"","bodyCodec":106,"body":"…"}
//! proto: 1 seq, 2 mtype, 3 serviceMethod, 4 status, 5 meta, 6 bodyCodec, 7 body
//!                                                   the length of both counts what follows it
//! ```
//!
//! A [`Server`] detects the [`Framing`] from the first frame. There is no handshake, and calls of a connection complete
//! in any order. Status and metadata are query strings: names and values with `%` escapes.
//!
//! | kind | a server | a client |
//! | --- | --- | --- |
//! | 1 CALL | a call | rejected with 404: a client has no methods |
//! | 2 REPLY | dropped | the reply of a call |
//! | 3 PUSH | a one-way call | a push, if there is a listener |
//! | 4 AUTH_CALL | its body is the credential of all calls of the connection; the response is AUTH_REPLY | dropped |
//! | 5 AUTH_REPLY | dropped | dropped |
//!
//! A server pushes as well, without filters: path `a/b` of a push is the name `/a/b`.
//!
//! The server responds to a CALL or PUSH to `/heartbeat` itself if there is no such method.
//!
//! | codec | here |
//! | --- | --- |
//! | `j` | `Codec::Json`; a call without a body has an empty object |
//! | `p` | `Codec::Proto` |
//! | 0, none | a message of a protobuf service, already encoded; of any other service an empty body |
//! | `f`, `s`, `t`, `x` | refused with 400 |
//!
//! The one filter is gzip under the id `g`: the part of a frame behind the list of filters is one gzip stream, and the
//! reply to a filtered call is filtered.
//!
//! | metadata | here |
//! | --- | --- |
//! | `x-timeout-ms` | the deadline, in milliseconds that are left: an extension of Switchboard, erpc has none |
//! | `?name=value` behind the name of the method | the same as metadata |
//! | any other name | the same in lower case, with `-bin` at its end if its value is not plain ASCII |
//! | names of other characters than `0-9 a-z _ . -` | left out |
//!
//! A [`Status`](crate::Status) is sent as follows:
//!
//! | code | `code` | `msg` |
//! | --- | --- | --- |
//! | `invalid_argument` | 400 | the text |
//! | `unauthenticated` | 401 | the text |
//! | `unimplemented` | 404 | the text |
//! | `deadline_exceeded` | 408 | the text |
//! | `internal`, `unknown` | 500 | the text |
//! | `unavailable` | 502 | the text |
//! | any other | 1000 and its number | its name and the text: `not_found: no such post` |
//!
//! A handler can choose another number with the metadata `erpc-code` of its status, and a `cause` with `erpc-cause`.
//! The exact code is sent beside it as metadata `grpc-status`, a retry delay as `grpc-retry-pushback-ms` (0 if an
//! immediate retry is safe), details as `grpc-status-details-bin`. Numbers of servers that do not send the code are
//! read by the same table. In addition 405 is `unimplemented` and 100 to 105 are `unavailable`. Every other number
//! belongs to the application and is `unknown` with the metadata `erpc-code` and `erpc-cause`.

mod client;
mod error;
mod frames;
mod framing;
mod json;
mod message;
mod metadata;
mod names;
mod options;
mod protobuf;
mod query;
mod raw;
mod server;
mod spec;
#[cfg(test)]
mod tests;

pub use client::{Client, Settings};
pub use framing::Framing;
pub use names::Names;
pub use server::Server;
pub use spec::ERPC;

/// Id of the supported transfer filter.
pub const GZIP: u8 = b'g';
/// Longest name of a method in the raw framing, in bytes.
pub const NAME_BYTES_MAX: usize = u8::MAX as usize;
/// Longest status and longest metadata in the raw framing, in bytes with their escapes.
pub const QUERY_BYTES_MAX: usize = u16::MAX as usize;
/// Largest size of a frame without its body, in bytes.
pub const HEAD_BYTES_MAX: usize = 132 << 10;
