// What both sides of the cases with rpcx speak in Thrift.
namespace rs interop.quotients

struct Factors {
  1: i64 a,
  2: i64 b,
}

struct Quotient {
  1: i64 c,
}

exception DivideByZero {
  1: string why,
} (switchboard.code = "invalid_argument")

service Quotients {
  // One struct each way: rpcx has them on their own.
  Quotient Divide(1: Factors factors) throws (1: DivideByZero zero),
  // Anything else is in the structs that Thrift makes of arguments and results.
  i64 Add(1: i64 a, 2: i64 b),
}
