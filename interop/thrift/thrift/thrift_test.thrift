/*
 * The service that the cross tests of Apache Thrift call, with the names and numbers that those tests use.
 */
namespace rs thrift.test
namespace py thrift_test

include "shared.thrift"

/** Numbers with names. */
enum Numberz {
  ONE = 1,
  TWO,
  THREE,
  FIVE = 5,
  SIX,
  EIGHT = 8
}

const Numberz myNumberz = Numberz.ONE
const i32 LIMIT = 0x10
const string GREETING = "he said \"hi\""
const map<string, list<i32>> TABLE = { "a": [1, 2], "b": [] }

typedef i64 UserId
typedef map<string, shared.Bonk> MapType

struct Bools {
  1: bool im_true,
  2: bool im_false
}

struct Xtruct {
  1: string string_thing,
  4: i8 byte_thing,
  9: i32 i32_thing,
  11: i64 i64_thing
}

struct Xtruct2 {
  1: i8 byte_thing,
  2: Xtruct struct_thing,
  3: i32 i32_thing
}

struct Insanity {
  1: map<Numberz, UserId> userMap,
  2: list<Xtruct> xtructs
} (python.immutable = "")

struct CrazyNesting {
  1: string string_field,
  2: optional set<Insanity> set_field,
  3: required list<map<set<i32> (python.immutable = ""), map<i32, set<list<map<Insanity, string>>>>>> list_field,
  4: binary binary_field,
  5: uuid uuid_field
}

union SomeUnion {
  1: map<Numberz, UserId> map_thing,
  2: string string_thing,
  3: i32 i32_thing,
  4: Xtruct xtruct_thing,
  5: list<SomeUnion> several
}

exception Xception {
  1: i32 errorCode,
  2: string message
}

exception Xception2 {
  1: i32 errorCode,
  2: Xtruct struct_thing
} (switchboard.code = "not_found")

struct EmptyStruct {}

/** A list that ends with itself. */
struct Tree {
  1: i16 item,
  2: optional Tree left,
  3: Tree & right,
  4: list<Tree> children
}

struct Defaults {
  1: i32 number = LIMIT,
  2: optional string text = GREETING,
  3: map<string, list<i32>> table = TABLE,
  4: set<double> doubles = [1, 2.5],
  5: Numberz numberz = Numberz.FIVE,
  6: Xtruct xtruct = { "string_thing": "x", "i32_thing": 7 },
  7: bool flag = true,
  8: SomeUnion none,
  9: double ratio
}

service ThriftTest extends shared.Base {
  void testVoid(),
  string testString(1: string thing),
  bool testBool(1: bool thing),
  i8 testByte(1: i8 thing),
  i32 testI32(1: i32 thing),
  i64 testI64(1: i64 thing),
  double testDouble(1: double thing),
  binary testBinary(1: binary thing),
  uuid testUuid(1: uuid thing),
  Xtruct testStruct(1: Xtruct thing),
  Xtruct2 testNest(1: Xtruct2 thing),
  map<i32, i32> testMap(1: map<i32, i32> thing),
  map<string, string> testStringMap(1: map<string, string> thing),
  set<i32> testSet(1: set<i32> thing),
  list<i32> testList(1: list<i32> thing),
  Numberz testEnum(1: Numberz thing),
  UserId testTypedef(1: UserId thing),
  map<i32, map<i32, i32>> testMapMap(1: i32 hello),
  map<UserId, map<Numberz, Insanity>> testInsanity(1: Insanity argument),
  Xtruct testMulti(1: i8 arg0, 2: i32 arg1, 3: i64 arg2, 4: map<i16, string> arg3, 5: Numberz arg4, 6: UserId arg5),
  /** Throws what its argument says: "Xception", "TException", else nothing. */
  void testException(1: string arg) throws (1: Xception err1),
  Xtruct testMultiException(1: string arg0, 2: string arg1) throws (1: Xception err1, 2: Xception2 err2),
  oneway void testOneway(1: i32 secondsToSleep),
  CrazyNesting testNesting(1: CrazyNesting thing),
  SomeUnion testUnion(1: SomeUnion thing),
  Tree testTree(1: Tree thing),
  Defaults testDefaults(1: Defaults thing = {}),
  /** How often the one-way method was called. */
  i32 countOneway() (switchboard.read_only)
}

/** A second service on the same port. */
service SecondService {
  string secondtestString(1: string thing),
  string testString(1: string thing)
}
