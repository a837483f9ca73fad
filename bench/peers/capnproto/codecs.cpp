// What building a message costs, and reading every field of it where it lies.

#include "capnp_peer.hpp"
#include "codecs.hpp"

#include <capnp/serialize.h>

int print_codecs() {
    capnp::MallocMessageBuilder builder;
    peer::fill(builder.initRoot<bench::BenchmarkMessage>());
    auto encoded = capnp::messageToFlatArray(builder);

    // as a pool of buffers would have it; a builder gives its first segment back zeroed
    capnp::word scratch[256] = {};
    auto encode = peer::cost_of([&] {
        capnp::MallocMessageBuilder message(kj::arrayPtr(scratch, 256));
        peer::fill(message.initRoot<bench::BenchmarkMessage>());
        auto segments = message.getSegmentsForOutput();
        peer::keep(segments);
    });
    auto decode = peer::cost_of([&] {
        capnp::FlatArrayMessageReader reader(encoded);
        auto sum = peer::read_all(reader.getRoot<bench::BenchmarkMessage>());
        peer::keep(sum);
    });
    peer::CodecLine line;
    line.add("Cap'n Proto C++, every field read", encode, decode, encoded.asBytes().size());
    line.print();
    return 0;
}
