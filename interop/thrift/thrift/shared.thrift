/* What two services have in common. */
namespace * thrift.shared

/** Whom it concerns. */
struct Bonk {
  1: string message,
  2: i32 type
}

service Base {
  /** Says that it is there. */
  string ping(1: string text)
}
