# The messages of bench.proto, with its defaults. Fields are numbered in the order in which the .proto has them.
@0xb6e983eb7b7ce64a;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("bench");

struct BenchmarkMessage {
  field1 @0 :Text;
  field9 @1 :Text;
  field18 @2 :Text;
  field80 @3 :Bool;
  field81 @4 :Bool = true;
  field2 @5 :Int32;
  field3 @6 :Int32;
  field280 @7 :Int32;
  field6 @8 :Int32;
  field22 @9 :Int64;
  field4 @10 :Text;
  field5 @11 :List(UInt64);
  field59 @12 :Bool;
  field7 @13 :Text;
  field16 @14 :Int32;
  field130 @15 :Int32;
  field12 @16 :Bool = true;
  field17 @17 :Bool = true;
  field13 @18 :Bool = true;
  field14 @19 :Bool = true;
  field104 @20 :Int32;
  field100 @21 :Int32;
  field101 @22 :Int32;
  field102 @23 :Text;
  field103 @24 :Text;
  field29 @25 :Int32;
  field30 @26 :Bool;
  field60 @27 :Int32 = -1;
  field271 @28 :Int32 = -1;
  field272 @29 :Int32 = -1;
  field150 @30 :Int32;
  field23 @31 :Int32;
  field24 @32 :Bool;
  field25 @33 :Int32;
  field78 @34 :Bool;
  field67 @35 :Int32;
  field68 @36 :Int32;
  field128 @37 :Int32;
  field129 @38 :Text = "xxxxxxxxxxxxxxxxxxxxx";
  field131 @39 :Int32;
}

interface Bench {
  # Answers with the payload of the request.
  echo @0 (payload :Data) -> (payload :Data);

  # Answers with the request after setting field1 to "OK" and field2 to 100.
  message @1 (message :BenchmarkMessage) -> (message :BenchmarkMessage);
}
