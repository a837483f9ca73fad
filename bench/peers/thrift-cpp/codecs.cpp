// What Thrift's two protocols cost, in memory.

#include "codecs.hpp"
#include "thrift_peer.hpp"

namespace {

using apache::thrift::transport::TMemoryBuffer;

template <typename Protocol>
void add(peer::CodecLine& line, const std::string& name) {
    bench::BenchmarkMessage message;
    peer::fill(message);
    auto memory = std::make_shared<TMemoryBuffer>();
    Protocol protocol(memory);
    message.write(&protocol);
    std::string encoded = memory->getBufferAsString();

    auto encode = peer::cost_of([&] {
        memory->resetBuffer();
        message.write(&protocol);
        peer::keep(*memory);
    });
    auto input = std::make_shared<TMemoryBuffer>();
    Protocol reader(input);
    auto observe = [&](bench::BenchmarkMessage& decoded) {
        input->resetBuffer(reinterpret_cast<uint8_t*>(encoded.data()), uint32_t(encoded.size()));
        decoded.read(&reader);
        peer::keep(decoded);
    };
    auto fresh = peer::cost_of([&] {
        bench::BenchmarkMessage decoded;
        observe(decoded);
    });
    line.add(name, encode, fresh, encoded.size());
}

}  // namespace

int print_codecs() {
    peer::CodecLine line;
    add<Binary>(line, "Thrift binary C++");
    add<Compact>(line, "Thrift compact C++");
    line.print();
    return 0;
}
