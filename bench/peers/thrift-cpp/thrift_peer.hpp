// What the parts of the program share.
#pragma once

#include "Bench.h"
#include "arguments.hpp"
#include "payload.hpp"

#include <string_view>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/protocol/TCompactProtocol.h>
#include <thrift/transport/TBufferTransports.h>

// All buffers that are used have this base, whose reads and writes are inlined.
using Buffer = apache::thrift::transport::TBufferBase;
using Binary = apache::thrift::protocol::TBinaryProtocolT<Buffer>;
using Compact = apache::thrift::protocol::TCompactProtocolT<Buffer>;

// `--variant` is a list of what differs from the best choice, as in "nonblocking-binary".
inline bool has(const peer::Arguments& arguments, std::string_view word) {
    return arguments.variant.find(word) != std::string::npos;
}

int serve(const peer::Arguments& arguments);
int call(const peer::Arguments& arguments);
int print_codecs();

namespace peer {

// Every field is set.
inline void fill(bench::BenchmarkMessage& message) {
    message.__set_field1(TEXT);
    message.__set_field9(TEXT);
    message.__set_field18(TEXT);
    message.__set_field80(true);
    message.__set_field81(true);
    message.__set_field2(NUMBER);
    message.__set_field3(NUMBER);
    message.__set_field280(NUMBER);
    message.__set_field6(NUMBER);
    message.__set_field22(NUMBER);
    message.__set_field4(TEXT);
    message.__set_field5({NUMBER});
    message.__set_field59(true);
    message.__set_field7(TEXT);
    message.__set_field16(NUMBER);
    message.__set_field130(NUMBER);
    message.__set_field12(true);
    message.__set_field17(true);
    message.__set_field13(true);
    message.__set_field14(true);
    message.__set_field104(NUMBER);
    message.__set_field100(NUMBER);
    message.__set_field101(NUMBER);
    message.__set_field102(TEXT);
    message.__set_field103(TEXT);
    message.__set_field29(NUMBER);
    message.__set_field30(true);
    message.__set_field60(NUMBER);
    message.__set_field271(NUMBER);
    message.__set_field272(NUMBER);
    message.__set_field150(NUMBER);
    message.__set_field23(NUMBER);
    message.__set_field24(true);
    message.__set_field25(NUMBER);
    message.__set_field78(true);
    message.__set_field67(NUMBER);
    message.__set_field68(NUMBER);
    message.__set_field128(NUMBER);
    message.__set_field129(SHORT_TEXT);
    message.__set_field131(NUMBER);
}

// Turns a request into its reply.
inline void answer(bench::BenchmarkMessage& message) {
    message.field1 = REPLY_TEXT;
    message.field2 = REPLY_NUMBER;
}

inline bool is_answer(const bench::BenchmarkMessage& message) {
    return message.field1 == REPLY_TEXT && message.field2 == REPLY_NUMBER && message.field9 == TEXT;
}

}  // namespace peer
