// Cap'n Proto RPC in C++, against which `bench-compare` measures.
//
// `capnproto server|client` and the options of every rival.

#include "capnp_peer.hpp"

#include <cstdio>
#include <kj/exception.h>

int main(int count, char** values) {
    auto arguments = peer::Arguments::parse(count, values);
    try {
        if (arguments.command == "server") return serve(arguments);
        if (arguments.call == "codecs") return print_codecs();
        return call(arguments);
    } catch (const kj::Exception& error) {
        std::fprintf(stderr, "%s\n", error.getDescription().cStr());
        return 1;
    }
}
