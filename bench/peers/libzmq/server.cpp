// The server: one thread with one socket, which answers in the order in which requests come.
//
// More threads would need a proxy between them and the socket, which costs each message two more queues.

#include "pattern.hpp"
#include "proto_message.hpp"
#include "serving.hpp"

#include <google/protobuf/arena.h>
#include <thread>

namespace {

class Server {
public:
    Server(zmq::context_t& context, const peer::Arguments& arguments)
        : pattern_(pattern(arguments)),
          is_message_(arguments.call == "message"),
          socket_(context, pattern_ == Pattern::DealerRouter ? ZMQ_ROUTER : ZMQ_REP) {
        set_limits(socket_);
        socket_.set(zmq::sockopt::backlog, 4096);
        socket_.bind("tcp://" + arguments.host + ":*");
    }

    uint16_t port() const {
        return peer::parse_addresses(socket_.get(zmq::sockopt::last_endpoint).substr(strlen("tcp://")))[0].port;
    }

    // Until the context is shut down.
    void run() {
        try {
            for (;;) answer_one();
        } catch (const zmq::error_t& error) {
            if (error.num() != ETERM) std::fprintf(stderr, "the server ended: %s\n", error.what());
        }
        socket_.close();
    }

private:
    // Frames go back as they came; the routing id of ROUTER is the first of them.
    void answer_one() {
        zmq::message_t frame;
        if (pattern_ == Pattern::DealerRouter) {
            (void)socket_.recv(frame);
            send(frame, true);
        }
        bool has_more = true;
        while (has_more) {
            (void)socket_.recv(frame);
            has_more = frame.more();
            if (is_message_) frame = answered(frame);
            send(frame, has_more);
        }
    }

    void send(zmq::message_t& frame, bool has_more) {
        try {
            socket_.send(frame, has_more ? zmq::send_flags::sndmore : zmq::send_flags::none);
        } catch (const zmq::error_t& error) {
            // the client has disconnected
            if (error.num() != EHOSTUNREACH) throw;
        }
    }

    // The reply to a request in Protobuf; the message keeps its memory from one request to the next.
    zmq::message_t answered(const zmq::message_t& request) {
        size_t before = std::min(id_bytes(pattern_), request.size());
        auto* bytes = static_cast<const uint8_t*>(request.data());
        if (!message_.ParseFromArray(bytes + before, int(request.size() - before))) return {};
        peer::answer(message_);
        zmq::message_t reply(before + message_.ByteSizeLong());
        auto* out = static_cast<uint8_t*>(reply.data());
        std::memcpy(out, bytes, before);
        message_.SerializeWithCachedSizesToArray(out + before);
        return reply;
    }

    Pattern pattern_;
    bool is_message_;
    zmq::socket_t socket_;
    bench::v1::BenchmarkMessage message_;
};

}  // namespace

int serve(const peer::Arguments& arguments) {
    zmq::context_t context(int(arguments.io_threads > 0 ? arguments.io_threads : 1));
    Server server(context, arguments);
    peer::announce(arguments, server.port());
    std::thread worker([&] { server.run(); });
    peer::wait_for_end_of_input();
    context.shutdown();
    worker.join();
    return 0;
}
