// What `switchboard bench` calls as a service of Thrift, and the rivals of bench/peers in Go: the fields of
// proto/bench/v1/bench.proto with the same ids. Fields are neither optional nor have defaults: then every one is sent,
// and Go's structs have values instead of pointers.

namespace * thrift.bench
namespace go thriftbench

struct EchoMessage {
  1: binary payload
}

struct BenchmarkMessage {
  1: required string field1
  9: string field9
  18: string field18
  80: bool field80
  81: bool field81
  2: required i32 field2
  3: required i32 field3
  280: i32 field280
  6: i32 field6
  22: i64 field22
  4: string field4
  5: list<i64> field5
  59: bool field59
  7: string field7
  16: i32 field16
  130: i32 field130
  12: bool field12
  17: bool field17
  13: bool field13
  14: bool field14
  104: i32 field104
  100: i32 field100
  101: i32 field101
  102: string field102
  103: string field103
  29: i32 field29
  30: bool field30
  60: i32 field60
  271: i32 field271
  272: i32 field272
  150: i32 field150
  23: i32 field23
  24: bool field24
  25: i32 field25
  78: bool field78
  67: i32 field67
  68: i32 field68
  128: i32 field128
  129: string field129
  131: i32 field131
}

service Bench {
  // Answers with the payload of the request.
  EchoMessage echo(1: EchoMessage message)
  // Answers with the request after setting field1 to "OK" and field2 to 100.
  BenchmarkMessage message(1: BenchmarkMessage message)
}
