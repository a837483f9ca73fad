// The message of the benchmark in Protobuf.
#pragma once

#include "bench/v1/bench.pb.h"
#include "payload.hpp"

namespace peer {

// Every field is set; encodes to 581 bytes.
inline void fill(bench::v1::BenchmarkMessage& message) {
    message.set_field1(TEXT);
    message.set_field9(TEXT);
    message.set_field18(TEXT);
    message.set_field80(true);
    message.set_field81(true);
    message.set_field2(NUMBER);
    message.set_field3(NUMBER);
    message.set_field280(NUMBER);
    message.set_field6(NUMBER);
    message.set_field22(NUMBER);
    message.set_field4(TEXT);
    message.add_field5(NUMBER);
    message.set_field59(true);
    message.set_field7(TEXT);
    message.set_field16(NUMBER);
    message.set_field130(NUMBER);
    message.set_field12(true);
    message.set_field17(true);
    message.set_field13(true);
    message.set_field14(true);
    message.set_field104(NUMBER);
    message.set_field100(NUMBER);
    message.set_field101(NUMBER);
    message.set_field102(TEXT);
    message.set_field103(TEXT);
    message.set_field29(NUMBER);
    message.set_field30(true);
    message.set_field60(NUMBER);
    message.set_field271(NUMBER);
    message.set_field272(NUMBER);
    message.set_field150(NUMBER);
    message.set_field23(NUMBER);
    message.set_field24(true);
    message.set_field25(NUMBER);
    message.set_field78(true);
    message.set_field67(NUMBER);
    message.set_field68(NUMBER);
    message.set_field128(NUMBER);
    message.set_field129(SHORT_TEXT);
    message.set_field131(NUMBER);
}

// Turns a request into its reply.
inline void answer(bench::v1::BenchmarkMessage& message) {
    message.set_field1(REPLY_TEXT);
    message.set_field2(REPLY_NUMBER);
}

inline bool is_answer(const bench::v1::BenchmarkMessage& message) {
    return message.field1() == REPLY_TEXT && message.field2() == REPLY_NUMBER && message.field9() == TEXT;
}

}  // namespace peer
