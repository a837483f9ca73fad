// The client: threads with a connection each.
//
// A Thrift connection answers in order, and generated clients offer sending and receiving apart, so that callers can
// share connections: each has calls of several callers outstanding. As both sides block, only so much is outstanding
// as the buffers of the sockets hold; the other callers wait for their turn.

#include "closed_loop.hpp"
#include "thrift_peer.hpp"

#include <deque>
#include <stdexcept>
#include <thrift/transport/TSocket.h>

namespace {

using namespace apache::thrift;
using std::make_shared;

// More connections only cost more switches between threads.
constexpr size_t CONNECTIONS = 2;
constexpr size_t PER_CALL_THREADS = 32;
constexpr size_t OUTSTANDING_BYTES = 128 << 10;

class EchoCall {
public:
    explicit EchoCall(const peer::Arguments& arguments) : payload_(peer::echo_payload(arguments.bytes)) {}

    size_t bytes() const { return payload_.size() + 32; }
    template <typename Client>
    void send(Client& client) const { client.send_echo(payload_); }
    template <typename Client>
    bool receive(Client& client) {
        client.recv_echo(reply_);
        return reply_ == payload_;
    }

private:
    std::string payload_;
    std::string reply_;
};

class MessageCall {
public:
    explicit MessageCall(const peer::Arguments&) { peer::fill(request_); }

    size_t bytes() const { return 1024; }
    template <typename Client>
    void send(Client& client) const { client.send_message(request_); }
    template <typename Client>
    bool receive(Client& client) {
        client.recv_message(reply_);
        return peer::is_answer(reply_);
    }

private:
    bench::BenchmarkMessage request_;
    bench::BenchmarkMessage reply_;
};

template <typename Call, typename Protocol>
class Worker {
public:
    Worker(const peer::Arguments& arguments, size_t callers, size_t number, peer::Recorder& recorder)
        : arguments_(arguments),
          address_(arguments.addresses[number % arguments.addresses.size()]),
          is_per_call_(arguments.mode == "per-call"),
          call_(arguments),
          recorder_(recorder),
          callers_(callers),
          depth_(is_per_call_ ? 1 : std::max<size_t>(1, OUTSTANDING_BYTES / call_.bytes())) {}

    void run() {
        open();
        recorder_.start();
        for (size_t at = 0; at < callers_; ++at) begin(peer::now());
        while (!sent_.empty() || !waiting_.empty()) {
            try {
                while (sent_.size() < depth_ && !waiting_.empty()) {
                    if (is_per_call_) open();
                    sent_.push_back(waiting_.front());
                    waiting_.pop_front();
                    call_.send(*client_);
                }
                bool is_right = call_.receive(*client_);
                uint64_t time = peer::now();
                recorder_.finished(sent_.front(), time, is_right);
                sent_.pop_front();
                begin(time);
            } catch (const TException& error) {
                fail(error.what());
            }
        }
        socket_->close();
    }

private:
    using Client = bench::BenchClientT<Protocol>;

    void open() {
        if (socket_) socket_->close();
        socket_ = make_shared<transport::TSocket>(address_.host, address_.port);
        int milliseconds = int(std::chrono::milliseconds(peer::DEADLINE).count());
        socket_->setConnTimeout(milliseconds);
        socket_->setRecvTimeout(milliseconds);
        socket_->setSendTimeout(milliseconds);
        socket_->open();
        auto buffered = make_shared<transport::TBufferedTransport>(socket_, 16 << 10);
        std::shared_ptr<Buffer> buffer = buffered;
        if (!has(arguments_, "unframed")) buffer = make_shared<transport::TFramedTransport>(buffered);
        client_ = std::make_unique<Client>(make_shared<Protocol>(buffer));
    }

    void begin(uint64_t time) {
        if (recorder_.may_begin(time)) waiting_.push_back(time);
    }

    // All that was outstanding is lost with its connection.
    void fail(const std::string& why) {
        uint64_t time = peer::now();
        auto lost = std::move(sent_);
        sent_.clear();
        for (uint64_t from : lost) {
            recorder_.failed(from, time, why);
            begin(time);
        }
        if (!is_per_call_) open();
    }

    const peer::Arguments& arguments_;
    const peer::Address& address_;
    bool is_per_call_;
    Call call_;
    peer::Recorder& recorder_;
    size_t callers_;
    // how many calls may be outstanding
    size_t depth_;
    std::shared_ptr<transport::TSocket> socket_;
    std::unique_ptr<Client> client_;
    // since when callers wait for their reply, or for their turn
    std::deque<uint64_t> sent_;
    std::deque<uint64_t> waiting_;
};

template <typename Call, typename Protocol>
int call_with(const peer::Arguments& arguments) {
    size_t connections = arguments.mode == "per-call" ? PER_CALL_THREADS : CONNECTIONS;
    if (arguments.connections > 0) connections = arguments.connections;
    connections = std::min(std::max(connections, arguments.addresses.size()), arguments.callers);
    return peer::run_client(arguments, connections, [&](size_t at, peer::Recorder& recorder) {
        Worker<Call, Protocol>(arguments, peer::share(arguments.callers, connections, at), at, recorder).run();
    });
}

template <typename Call>
int call_with(const peer::Arguments& arguments) {
    return has(arguments, "binary") ? call_with<Call, Binary>(arguments) : call_with<Call, Compact>(arguments);
}

}  // namespace

int call(const peer::Arguments& arguments) {
    if (arguments.mode != "unary" && arguments.mode != "per-call") peer::stop("no such mode: " + arguments.mode);
    return arguments.call == "message" ? call_with<MessageCall>(arguments) : call_with<EchoCall>(arguments);
}
