// libzmq's sockets, against which `switchboard bench bus` measures. One I/O thread and one thread that sends or
// receives, on the core of the process. Queues and buffers are the library's defaults: 1000 messages, buffers of the
// system, as Switchboard's.
//
// `libzmq-bus SIDE MODE --endpoint E --bytes N --peers N --warm-up S --seconds S [--stalled]`, see ../README.md.

#include "bus.hpp"

#include <thread>

namespace {

using bus::Arguments;
using bus::Message;
using bus::Socket;
using bus::Tally;

std::string bind(Socket& socket, const std::string& endpoint) {
    bus::check(zmq_bind(socket.get(), endpoint.c_str()), "bind");
    char bound[256];
    size_t size = sizeof bound;
    bus::check(zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, bound, &size), "endpoint");
    std::printf("listening on %s\n", bound);
    std::fflush(stdout);
    return bound;
}

void connect(Socket& socket, const std::string& endpoint) {
    bus::check(zmq_connect(socket.get(), endpoint.c_str()), "connect");
}

// Keys of the server, the same for all programs.
constexpr char SERVER_PUBLIC[] = "P[2YAbZW^YaayEFO6}d3v%{-%w@b7%{1[yM!scg*";
constexpr char SERVER_SECRET[] = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W8b!Ni{Lh6";

void be_curve_server(Socket& socket) {
    socket.set(ZMQ_CURVE_SERVER, 1);
    bus::check(zmq_setsockopt(socket.get(), ZMQ_CURVE_SECRETKEY, SERVER_SECRET, 40), "secret key");
}

void be_curve_client(Socket& socket) {
    char public_key[41], secret_key[41];
    bus::check(zmq_curve_keypair(public_key, secret_key), "keys");
    bus::check(zmq_setsockopt(socket.get(), ZMQ_CURVE_SERVERKEY, SERVER_PUBLIC, 40), "server key");
    bus::check(zmq_setsockopt(socket.get(), ZMQ_CURVE_PUBLICKEY, public_key, 40), "public key");
    bus::check(zmq_setsockopt(socket.get(), ZMQ_CURVE_SECRETKEY, secret_key, 40), "secret key");
}

std::vector<Socket> connected(void* context, int kind, const Arguments& arguments) {
    std::vector<Socket> sockets;
    for (uint32_t at = 0; at < arguments.peers; ++at) {
        auto& socket = sockets.emplace_back(context, kind);
        if (arguments.mode == "curve") be_curve_client(socket);
        if (kind == ZMQ_SUB) bus::check(zmq_setsockopt(socket.get(), ZMQ_SUBSCRIBE, "", 0), "subscribe");
        connect(socket, arguments.endpoint);
    }
    return sockets;
}

void send_all(std::vector<Socket>& sockets, uint32_t bytes) {
    for (uint64_t number = 0;; ++number) {
        for (uint32_t sender = 0; sender < sockets.size(); ++sender) {
            Message(sender, number, bytes).send(sockets[sender]);
        }
    }
}

void receive_all(Socket& socket, Tally& tally) {
    Message message;
    while (!tally.is_over()) {
        message.receive(socket, 0);
        tally.receive(message, message.sender(), false);
    }
}

// Calls `received` with each message of any of the sockets.
template <typename Received>
void receive_any(std::vector<Socket>& sockets, Tally& tally, Received received) {
    std::vector<zmq_pollitem_t> items;
    for (auto& socket : sockets) items.push_back({socket.get(), 0, ZMQ_POLLIN, 0});
    Message message;
    while (!tally.is_over()) {
        bus::check(zmq_poll(items.data(), int(items.size()), 100), "poll");
        for (size_t at = 0; at < items.size() && !tally.is_over(); ++at) {
            if (!(items[at].revents & ZMQ_POLLIN)) continue;
            while (message.receive(sockets[at], ZMQ_DONTWAIT) && !tally.is_over()) received(at, message);
        }
    }
}

// Sends all frames of each message back.
void echo(Socket& socket) {
    zmq_msg_t frame;
    for (;;) {
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, socket.get(), 0) < 0) bus::fail("receive");
        int more = zmq_msg_more(&frame) ? ZMQ_SNDMORE : 0;
        if (zmq_msg_send(&frame, socket.get(), more) < 0) bus::fail("send");
    }
}

void request(void* context, const Arguments& arguments, Tally& tally) {
    auto sockets = connected(context, ZMQ_REQ, arguments);
    Message reply;
    for (uint64_t number = 0; !tally.is_over(); ++number) {
        auto start = bus::now_ns();
        for (uint32_t at = 0; at < sockets.size(); ++at) Message(at, number, arguments.bytes).send(sockets[at]);
        for (uint32_t at = 0; at < sockets.size(); ++at) {
            reply.receive(sockets[at], 0);
            tally.receive_timed(reply, at, bus::now_ns() - start);
        }
    }
}

void deal(void* context, const Arguments& arguments, Tally& tally) {
    constexpr uint64_t OUTSTANDING = 100;
    auto sockets = connected(context, ZMQ_DEALER, arguments);
    std::vector<uint64_t> numbers(sockets.size(), OUTSTANDING);
    for (uint64_t number = 0; number < OUTSTANDING; ++number) {
        for (uint32_t at = 0; at < sockets.size(); ++at) Message(at, number, arguments.bytes).send(sockets[at]);
    }
    receive_any(sockets, tally, [&](size_t at, Message& reply) {
        tally.receive(reply, at, false);
        Message(uint32_t(at), numbers[at]++, arguments.bytes).send(sockets[at]);
    });
}

void publish(void* context, const Arguments& arguments) {
    Socket socket(context, ZMQ_XPUB);
    socket.set(ZMQ_XPUB_NODROP, 1);
    socket.set(ZMQ_XPUB_VERBOSE, 1);
    bind(socket, arguments.endpoint);
    bus::end_with_input();
    Message subscription;
    for (uint32_t at = 0; at < arguments.peers; ++at) subscription.receive(socket, 0);
    for (uint64_t number = 0;; ++number) Message(0, number, arguments.bytes).send(socket);
}

void idle(void* context, const Arguments& arguments) {
    std::vector<Socket> sockets;
    Message reply;
    for (uint32_t at = 0; at < arguments.peers; ++at) {
        auto& socket = sockets.emplace_back(context, ZMQ_DEALER);
        connect(socket, arguments.endpoint);
        Message(at, 0, arguments.bytes).send(socket);
        reply.receive(socket, 0);
        if (at > 0) continue;
        std::puts("begin");
        std::fflush(stdout);
        if (std::getchar() == EOF) return;
    }
    std::printf("{\"messages\":%u}\n", arguments.peers);
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
}

void inproc(void* context, const Arguments& arguments, Tally& tally) {
    Socket pull(context, ZMQ_PULL);
    bus::check(zmq_bind(pull.get(), "inproc://bench"), "bind");
    std::thread([&] {
        std::vector<Socket> push;
        push.emplace_back(context, ZMQ_PUSH);
        connect(push[0], "inproc://bench");
        send_all(push, arguments.bytes);
    }).detach();
    receive_all(pull, tally);
    tally.print();
    std::_Exit(0);
}

void run(const Arguments& arguments) {
    void* context = zmq_ctx_new();
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, int(arguments.peers) + 1024);
    Tally tally(arguments);
    auto side = arguments.side + " " + arguments.mode;
    if (side == "bind push-pull" || side == "bind curve") {
        Socket pull(context, ZMQ_PULL);
        if (arguments.mode == "curve") be_curve_server(pull);
        bind(pull, arguments.endpoint);
        receive_all(pull, tally);
    } else if (side == "connect push-pull" || side == "connect curve") {
        bus::end_with_input();
        auto sockets = connected(context, ZMQ_PUSH, arguments);
        send_all(sockets, arguments.bytes);
    } else if (side == "bind stalled") {
        std::vector<Socket> push;
        bind(push.emplace_back(context, ZMQ_PUSH), arguments.endpoint);
        bus::end_with_input();
        send_all(push, arguments.bytes);
    } else if (side == "connect stalled") {
        auto sockets = connected(context, ZMQ_PULL, arguments);
        auto stalled = std::move(sockets.back());
        if (arguments.stalled) sockets.pop_back();
        else sockets.back() = std::move(stalled);
        receive_any(sockets, tally, [&](size_t at, Message& message) { tally.receive(message, at, true); });
    } else if (side == "alone inproc") {
        inproc(context, arguments, tally);
    } else if (side == "bind req-rep" || side == "bind router" || side == "bind idle") {
        Socket socket(context, arguments.mode == "req-rep" ? ZMQ_REP : ZMQ_ROUTER);
        bind(socket, arguments.endpoint);
        bus::end_with_input();
        echo(socket);
    } else if (side == "connect req-rep") {
        request(context, arguments, tally);
    } else if (side == "connect router") {
        deal(context, arguments, tally);
    } else if (side == "bind pub-sub") {
        publish(context, arguments);
    } else if (side == "connect pub-sub") {
        auto sockets = connected(context, ZMQ_SUB, arguments);
        receive_any(sockets, tally, [&](size_t at, Message& message) { tally.receive(message, at, false); });
    } else if (side == "connect idle") {
        idle(context, arguments);
        std::_Exit(0);
    } else {
        std::fprintf(stderr, "libzmq has no %s\n", side.c_str());
        std::exit(1);
    }
    tally.print();
    // Sockets of the context are not closed one by one: the sender does not end before this process.
    std::_Exit(0);
}

}  // namespace

int main(int count, char** values) { run(Arguments::parse(count, values)); }
