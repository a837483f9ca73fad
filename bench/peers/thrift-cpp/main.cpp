// Apache Thrift in C++, against which `bench-compare` measures.
//
// `thrift-cpp server|client` and the options of every rival; `--variant` of both sides must agree.

#include "thrift_peer.hpp"

#include <cstdio>
#include <exception>

int main(int count, char** values) {
    auto arguments = peer::Arguments::parse(count, values);
    try {
        if (arguments.command == "server") return serve(arguments);
        if (arguments.call == "codecs") return print_codecs();
        return call(arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
