namespace * thrift.demo

exception Nameless {
  1: string message
} (switchboard.code = "invalid_argument")

/** What the demo says to callers from Thrift. */
service ThriftGreeter {
  string greet(1: string name) throws (1: Nameless nameless)
}
