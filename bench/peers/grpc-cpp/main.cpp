// gRPC C++, against which `bench-compare` measures.
//
// `grpc-cpp server|client` and the options of every rival. `--variant callback` has the server use the callback API;
// otherwise it uses completion queues, as the client always does.

#include "grpc_peer.hpp"

int main(int count, char** values) {
    auto arguments = peer::Arguments::parse(count, values);
    try {
        if (arguments.command == "server") {
            return arguments.variant == "callback" ? serve_callbacks(arguments) : serve_queues(arguments);
        }
        if (arguments.call == "codecs") return print_codecs();
        if (arguments.mode == "stream") return call_stream(arguments);
        if (arguments.mode != "unary" && arguments.mode != "per-call") peer::stop("no such mode: " + arguments.mode);
        return call_unary(arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
