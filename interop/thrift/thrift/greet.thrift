// The service of proto/greet/v1/greet.proto, written for Thrift: fields have the numbers that they have in
// protobuf.

namespace * greet.thrift

enum Mood {
  UNKNOWN = 0
  FINE = 7
}

struct Person {
  1: string name
  2: i64 age
  3: list<string> titles
  4: map<string, i64> scores
  5: optional string mail
  6: optional i64 phone
  7: optional bool shy
  8: Mood mood
  9: binary key
  10: double weight
  11: list<Person> friends
}

struct GreetRequest {
  1: Person person
}

struct GreetReply {
  1: string text
  2: optional Person person
}

service Greeter {
  GreetReply Greet(1: GreetRequest request)
  GreetReply Watch(1: GreetRequest request)
}
