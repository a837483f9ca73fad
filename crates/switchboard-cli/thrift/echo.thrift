namespace * test.echo

enum Color {
  RED = 1
  GREEN = 3
  BLUE = 5
}

union Shape {
  1: i32 side
  2: double radius
}

struct Post {
  1: required i64 id
  2: list<string> tags
  3: optional Color color
  4: optional list<Post> next
}

exception Gone {
  1: string why
} (switchboard.code = "not_found")

typedef map<i16, list<Post>> Posts

service Base {
  void nothing()
}

/** Every type once: tests of `switchboard call` answer requests with what they have. */
service Echo extends Base {
  bool flag(1: bool value)
  i8 small(1: i8 value)
  i16 short(1: i16 value)
  i32 number(1: i32 value)
  i64 long(1: i64 value)
  double real(1: double value)
  string text(1: string value)
  binary bytes(1: binary value)
  uuid uuid(1: uuid value)
  Color color(1: Color value)
  Post post(1: Post value)
  Shape shape(1: Shape value)
  Posts by_number(1: Posts value)
  map<Post, string> by_post(1: map<Post, string> value)
  list<i32> list(1: list<i32> value)
  string find(1: string value) throws (1: Gone gone)
}
