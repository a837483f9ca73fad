//! Messages of every type, from Thrift to protobuf and back.

use super::*;
use std::{collections::BTreeMap, sync::LazyLock};
use switchboard_wire::{
    Code,
    thrift::{DEPTH_MAX, Value, value::put_field},
};

const SOURCE: &str = r#"
syntax = "proto3";
package test;

service Mirror {
  rpc Show(All) returns (All);
  rpc Rise(All) returns (High);
  rpc Gather(Crowd) returns (Nothing);
}

message Crowd { repeated All all = 1; }
message Nothing {}

enum Color { RED = 0; BLUE = 7; }

message Small { int32 a = 1; }

message All {
  int32 a = 1;
  sint32 b = 2;
  sfixed32 c = 3;
  uint32 d = 4;
  fixed32 e = 5;
  int64 f = 6;
  sint64 g = 7;
  sfixed64 h = 8;
  uint64 i = 9;
  fixed64 j = 10;
  bool k = 11;
  double l = 12;
  float m = 13;
  string n = 14;
  bytes o = 15;
  Color p = 16;
  Small q = 17;
  optional int32 r = 18;
  repeated sint32 s = 19;
  repeated string t = 20;
  repeated Small u = 21;
  map<uint32, Small> v = 22;
  map<string, double> w = 23;
  oneof x {
    string y = 24;
    All z = 25;
  }
}

message High {
  string low = 1;
  string high = 32768;
}
"#;

struct Source;

impl protox::file::FileResolver for Source {
    fn open_file(&self, name: &str) -> std::result::Result<protox::file::File, protox::Error> {
        protox::file::File::from_source(name, SOURCE)
    }
}

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    let mut compiler = protox::Compiler::with_file_resolver(Source);
    compiler.open_file("test.proto").unwrap();
    let descriptor = &compiler.encode_file_descriptor_set();
    Messages::read(descriptor).unwrap()
});

/// Returns the struct of arguments with a request of these fields.
fn arguments(fields: &[u8]) -> Bytes {
    [&b"\x0c\0\x01"[..], fields, &[0, 0]].concat().into()
}

fn field<T: Value>(id: i16, value: &T) -> Vec<u8> {
    let mut written = Vec::new();
    put_field(&mut written, id, value);
    written
}

/// Converts a request to protobuf.
fn read(method: &str, codec: Codec, bytes: &Bytes) -> Result<Bytes> {
    MESSAGES.method("test.Mirror", method)?.request(codec, Codec::Proto, bytes)
}

/// Converts a reply to Thrift.
fn write(method: &str, codec: Codec, bytes: &[u8]) -> Result<Bytes> {
    MESSAGES.method("test.Mirror", method)?.reply(Codec::Proto, codec, &Bytes::copy_from_slice(bytes))
}

/// Returns the reply of a service that returns its request.
fn shown(fields: &[u8]) -> Result<Vec<u8>> {
    let request = read("Show", Codec::Thrift, &arguments(fields))?;
    write("Show", Codec::Thrift, &request).map(|reply| reply.to_vec())
}

/// Returns fields of every type, in the order of their numbers.
fn every_type() -> Vec<u8> {
    // Small { a: 3 }
    let small = b"\x08\0\x01\0\0\0\x03\0";
    [
        field(1, &i32::MIN),
        field(2, &-2i32),
        field(3, &-3i32),
        field(4, &i64::from(u32::MAX)),
        field(5, &5i64),
        field(6, &i64::MIN),
        field(7, &-7i64),
        field(8, &-8i64),
        // The largest unsigned 64-bit number.
        field(9, &-1i64),
        field(10, &10i64),
        field(11, &true),
        field(12, &0.1f64),
        field(13, &-0.5f64),
        field(14, &"\u{e9}".to_owned()),
        field(15, &Bytes::from_static(&[0, 255])),
        field(16, &7i32),
        [&b"\x0c\0\x11"[..], small].concat(),
        field(18, &0i32),
        field(19, &vec![-1i32, 0, 300]),
        field(20, &vec![String::new(), "x".to_owned()]),
        [&b"\x0f\0\x15\x0c\0\0\0\x02"[..], small, small].concat(),
        [&b"\x0d\0\x16\x0a\x0c\0\0\0\x01\0\0\0\0\0\0\0\x09"[..], small].concat(),
        field(23, &BTreeMap::from([("a".to_owned(), 0.5f64), ("b".to_owned(), 1.5)])),
        field(24, &"chosen".to_owned()),
    ]
    .concat()
}

#[test]
fn every_type_goes_there_and_back() {
    let mut same = arguments(&every_type()).to_vec();
    same[2] = 0;
    assert_eq!(shown(&every_type()).unwrap(), same);

    let bare = [every_type(), vec![0]].concat().into();
    let request = read("Show", Codec::ThriftStruct, &bare).unwrap();
    assert_eq!(write("Show", Codec::ThriftStruct, &request).unwrap(), bare);
}

#[test]
fn missing_fields_without_presence_have_their_default() {
    let empty = shown(&[]).unwrap();
    assert_eq!(empty, shown(&field(1, &0i32)).unwrap());
    for (id, is_there) in
        [(1, true), (16, true), (17, false), (18, false), (19, true), (22, true), (24, false)]
    {
        let head = |kind: u8| empty.windows(3).any(|bytes| bytes == [kind, 0, id]);
        assert_eq!([2, 4, 8, 10, 11, 12, 13, 15].into_iter().any(head), is_there, "{id}");
    }
    // No arguments at all, as for a function without any.
    assert_eq!(read("Show", Codec::Thrift, &Bytes::from_static(&[0])).unwrap(), "");
}

#[test]
fn numbers_fit_by_their_value_and_unknown_fields_are_skipped() {
    for (sent, id, expected) in [
        (field(1, &-5i8), 1, field(1, &-5i32)),
        (field(1, &7i64), 1, field(1, &7i32)),
        (field(4, &7i32), 4, field(4, &7i64)),
        (field(9, &7i16), 9, field(9, &7i64)),
        ([field(99, &7i32), field(1, &8i32)].concat(), 1, field(1, &8i32)),
        ([field(-1, &7i32), field(1, &8i32)].concat(), 1, field(1, &8i32)),
        // A set, which protobuf does not have.
        (b"\x0e\0\x13\x08\0\0\0\x01\0\0\0\x04".to_vec(), 19, field(19, &vec![4i32])),
        // The last member of a oneof that was set.
        ([b"\x0c\0\x19\0".to_vec(), field(24, &"b".to_owned())].concat(), 24, field(24, &"b".to_owned())),
    ] {
        let shown = shown(&sent).unwrap();
        assert!(shown.windows(expected.len()).any(|bytes| bytes == expected), "{id}: {shown:?}");
    }
}

#[test]
fn errors_name_the_field() {
    let deep = [b"\x0c\0\x19".repeat(DEPTH_MAX), vec![0; DEPTH_MAX]].concat();
    for (fields, expected) in [
        (field(1, &(1i64 << 32)), "field a does not fit 4294967296"),
        (field(4, &-1i32), "field d does not fit -1"),
        (field(1, &"x".to_owned()), "a is a whole number and not of type 11"),
        (field(11, &1i32), "k is a bool and not of type 8"),
        (field(12, &1i32), "l is a double and not of type 8"),
        (field(14, &1i32), "n is a string or binary and not of type 8"),
        (field(17, &1i32), "q is a struct and not of type 8"),
        (field(19, &1i32), "s is a list and not of type 8"),
        (field(19, &vec![1.5f64]), "s is a whole number and not of type 4"),
        (field(22, &1i32), "v is a map and not of type 8"),
        (deep, "nested deeper than 64"),
        (b"\x08\0\x01\0".to_vec(), "end in the middle"),
    ] {
        let status = shown(&fields).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let message = status.message();
        assert!(
            message.starts_with("the thrift message is no test.All: ") && message.contains(expected),
            "{status}"
        );
    }
    let status = read("Show", Codec::Thrift, &Bytes::from(field(1, &5i32))).unwrap_err();
    assert!(status.message().contains("the request is a struct and not of type 8"), "{status}");
    assert_eq!(read("Hide", Codec::Thrift, &Bytes::new()).unwrap_err().code(), Code::Unimplemented);
}

#[test]
fn replies_that_thrift_cannot_carry_say_why() {
    // High { low: "x" }, and then a field whose number Thrift does not have.
    assert!(write("Rise", Codec::Thrift, b"\x0a\x01x").is_ok());
    let status = write("Rise", Codec::Thrift, b"\x82\x80\x10\x01x").unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("field high of test.High has the number 32768"), "{status}");

    let mut deep = Vec::new();
    for _ in 0..DEPTH_MAX {
        // All { z: … }
        let len = deep.len();
        let mut outer = vec![0xca, 0x01];
        buffa::encoding::encode_varint(len as u64, &mut outer);
        outer.extend_from_slice(&deep);
        deep = outer;
    }
    let status = write("Show", Codec::Thrift, &deep).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(write("Show", Codec::Thrift, &[0xff]).unwrap_err().code(), Code::Internal);
}

#[test]
fn calls_to_a_thrift_server_use_protobuf_messages() {
    let arguments = arguments(&every_type());
    let mut result = arguments.to_vec();
    result[2] = 0;
    let result = Bytes::from(result);
    let show = MESSAGES.method("test.Mirror", "Show").unwrap();
    let message = read("Show", Codec::Thrift, &arguments).unwrap();
    assert_eq!(show.request(Codec::Proto, Codec::Thrift, &message).unwrap(), arguments);
    assert_eq!(show.reply(Codec::Thrift, Codec::Proto, &result).unwrap(), message);
    let bare = [every_type(), vec![0]].concat();
    assert_eq!(show.request(Codec::Thrift, Codec::ThriftStruct, &arguments).unwrap(), bare);
    assert_eq!(show.reply(Codec::ThriftStruct, Codec::Thrift, &bare.into()).unwrap(), result);
    let other = show.request(Codec::Json, Codec::Thrift, &message).unwrap_err();
    assert_eq!(other.code(), Code::Unimplemented, "{other}");
}

#[test]
fn results_without_a_message_are_errors() {
    let converted_reply = |method: &str, result: &[u8]| {
        let messages = MESSAGES.method("test.Mirror", method).unwrap();
        messages.reply(Codec::Thrift, Codec::Proto, &Bytes::copy_from_slice(result))
    };
    assert_eq!(converted_reply("Gather", &[0]).unwrap(), "", "the result of a void function");
    for (result, code, text) in [
        (&b"\x0c\0\x02\x08\0\x01\0\0\0\x05\0\0"[..], Code::FailedPrecondition, "field 2 of its result"),
        (b"\0", Code::Internal, "neither a value nor an exception"),
        (b"\x08\0\x02\0\0\0\x05\0", Code::Internal, "neither a value nor an exception"),
        (b"\x08\0\0\0\0\0\x05\0", Code::Internal, "the reply is a struct and not of type 8"),
        (b"\x0c\0\0\x0b\0\x01\0\0\0\0\0\0", Code::Internal, "a is a whole number and not of type 11"),
        (b"\x0c\0\0", Code::Internal, "end in the middle"),
    ] {
        let status = converted_reply("Show", result).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
}

#[test]
fn requests_that_grow_too_much_are_refused() {
    let gather = MESSAGES.method("test.Mirror", "Gather").unwrap();
    // Each is two bytes, and some twenty fields of Thrift.
    let messages = |count| Bytes::from(b"\x0a\0".repeat(count));
    assert!(gather.request(Codec::Proto, Codec::Thrift, &messages(1000)).is_ok());
    let status = gather.request(Codec::Proto, Codec::Thrift, &messages(20_000)).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("more than 1048576 bytes, which is the limit"), "{status}");
    assert!(gather.request(Codec::Proto, Codec::Thrift, &Bytes::from_static(&[0xff])).is_err());
}

#[test]
fn structs_that_grow_too_much_are_refused() {
    // Numbers of one byte in structs of five: ten bytes in protobuf, in messages of fourteen.
    let small = |count: u32| {
        let mut list = vec![15, 0, 21, 12];
        list.extend(count.to_be_bytes());
        (0..count).for_each(|_| list.extend([3, 0, 1, 0xFF, 0]));
        list.push(0);
        Bytes::from(list)
    };
    let show = MESSAGES.method("test.Mirror", "Show").unwrap();
    let written = show.request(Codec::ThriftStruct, Codec::Proto, &small(1000)).unwrap();
    assert!((14_000..15_000).contains(&written.len()), "{}", written.len());
    let status = show.request(Codec::ThriftStruct, Codec::Proto, &small(700_000)).unwrap_err();
    assert!(status.message().contains("more than 4375011 bytes"), "{status}");
}

#[test]
fn broken_bytes_are_read_or_refused() {
    let good = arguments(&every_type());
    for at in 0..good.len() {
        assert!(read("Show", Codec::Thrift, &good.slice(..at)).is_err(), "{at}");
        for value in [0, 1, 0x7f, 0xff] {
            let mut bad = good.to_vec();
            bad[at] = value;
            if let Ok(request) = read("Show", Codec::Thrift, &bad.into()) {
                // Invalid text is detected by the handler.
                let _ = write("Show", Codec::Thrift, &request);
            }
        }
    }
}
