// What the parts of the program share.
#pragma once

#include "arguments.hpp"
#include "bench.capnp.h"
#include "payload.hpp"

int serve(const peer::Arguments& arguments);
int call(const peer::Arguments& arguments);
int print_codecs();

namespace peer {

inline capnp::Text::Reader text(const std::string& text) { return {text.c_str(), text.size()}; }

// Every field is set.
inline void fill(bench::BenchmarkMessage::Builder message) {
    message.setField1(text(TEXT));
    message.setField9(text(TEXT));
    message.setField18(text(TEXT));
    message.setField80(true);
    message.setField81(true);
    message.setField2(NUMBER);
    message.setField3(NUMBER);
    message.setField280(NUMBER);
    message.setField6(NUMBER);
    message.setField22(NUMBER);
    message.setField4(text(TEXT));
    message.initField5(1).set(0, NUMBER);
    message.setField59(true);
    message.setField7(text(TEXT));
    message.setField16(NUMBER);
    message.setField130(NUMBER);
    message.setField12(true);
    message.setField17(true);
    message.setField13(true);
    message.setField14(true);
    message.setField104(NUMBER);
    message.setField100(NUMBER);
    message.setField101(NUMBER);
    message.setField102(text(TEXT));
    message.setField103(text(TEXT));
    message.setField29(NUMBER);
    message.setField30(true);
    message.setField60(NUMBER);
    message.setField271(NUMBER);
    message.setField272(NUMBER);
    message.setField150(NUMBER);
    message.setField23(NUMBER);
    message.setField24(true);
    message.setField25(NUMBER);
    message.setField78(true);
    message.setField67(NUMBER);
    message.setField68(NUMBER);
    message.setField128(NUMBER);
    message.setField129(text(SHORT_TEXT));
    message.setField131(NUMBER);
}

// Reads every field, as what a server or client does with a message.
inline uint64_t read_all(bench::BenchmarkMessage::Reader message) {
    uint64_t sum = message.getField5()[0];
    sum +=
           message.getField1().size() + message.getField9().size() + message.getField18().size() +
           message.getField4().size() + message.getField7().size() + message.getField102().size() +
           message.getField103().size() + message.getField129().size();
    sum += uint64_t(
           message.getField2() + message.getField3() + message.getField280() + message.getField6() +
           message.getField22() + message.getField16() + message.getField130() + message.getField104() +
           message.getField100() + message.getField101() + message.getField29() + message.getField60() +
           message.getField271() + message.getField272() + message.getField150() + message.getField23() +
           message.getField25() + message.getField67() + message.getField68() + message.getField128() +
           message.getField131());
    sum += uint64_t(
           message.getField80() + message.getField81() + message.getField59() + message.getField12() +
           message.getField17() + message.getField13() + message.getField14() + message.getField30() +
           message.getField24() + message.getField78());
    return sum;
}

inline bool is_answer(bench::BenchmarkMessage::Reader message) {
    return message.getField1() == text(REPLY_TEXT) && message.getField2() == REPLY_NUMBER &&
           message.getField9() == text(TEXT);
}

}  // namespace peer
