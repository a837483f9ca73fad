// What Protobuf costs: with a new message each time, with an arena that is reset, with a message that is used again.
#pragma once

#include "codecs.hpp"
#include "proto_message.hpp"

#include <google/protobuf/arena.h>
#include <vector>

namespace peer {

inline void add_proto_codecs(CodecLine& line) {
    using Message = bench::v1::BenchmarkMessage;
    Message message;
    fill(message);
    const std::string encoded = message.SerializeAsString();
    auto parse = [&](Message& into) {
        if (!into.ParseFromArray(encoded.data(), int(encoded.size()))) stop("the message does not decode");
        keep(into);
    };

    std::vector<uint8_t> buffer(encoded.size());
    auto into_buffer = cost_of([&] {
        message.ByteSizeLong();
        message.SerializeWithCachedSizesToArray(buffer.data());
        keep(buffer);
    });
    auto into_string = cost_of([&] {
        std::string text = message.SerializeAsString();
        keep(text);
    });
    auto fresh = cost_of([&] {
        Message decoded;
        parse(decoded);
    });
    std::vector<char> block(16 << 10);
    google::protobuf::ArenaOptions options;
    options.initial_block = block.data();
    options.initial_block_size = block.size();
    google::protobuf::Arena arena(options);
    auto in_arena = cost_of([&] {
        parse(*google::protobuf::Arena::CreateMessage<Message>(&arena));
        arena.Reset();
    });
    Message reused;
    auto again = cost_of([&] { parse(reused); });

    line.add("protobuf C++", into_string, fresh, encoded.size());
    line.add("protobuf C++, arena", into_buffer, in_arena, encoded.size());
    line.add("protobuf C++, message used again", into_buffer, again, encoded.size());
}

}  // namespace peer
