// The client: event loops, one a core, each with connections of its own and with all calls of its callers outstanding.

#include "capnp_peer.hpp"
#include "closed_loop.hpp"

#include <capnp/rpc-twoparty.h>
#include <cstring>
#include <kj/async-io.h>

namespace {

class EchoCall {
public:
    explicit EchoCall(const peer::Arguments& arguments) : payload_(peer::echo_payload(arguments.bytes)) {}

    auto send(bench::Bench::Client& client) const {
        auto request = client.echoRequest(capnp::MessageSize{payload_.size() / sizeof(capnp::word) + 8, 0});
        request.setPayload({reinterpret_cast<const kj::byte*>(payload_.data()), payload_.size()});
        return request.send();
    }

    template <typename Reply>
    bool is_right(const Reply& reply) const {
        auto payload = reply.getPayload();
        return payload.size() == payload_.size() && std::memcmp(payload.begin(), payload_.data(), payload.size()) == 0;
    }

private:
    std::string payload_;
};

class MessageCall {
public:
    explicit MessageCall(const peer::Arguments&) {}

    auto send(bench::Bench::Client& client) const {
        auto request = client.messageRequest(capnp::MessageSize{160, 0});
        peer::fill(request.initMessage());
        return request.send();
    }

    template <typename Reply>
    bool is_right(const Reply& reply) const { return peer::is_answer(reply.getMessage()); }
};

struct Connection {
    explicit Connection(kj::Own<kj::AsyncIoStream>&& opened)
        : stream(kj::mv(opened)), network(*stream), bench(network.bootstrap().castAs<bench::Bench>()) {}

    kj::Own<kj::AsyncIoStream> stream;
    capnp::TwoPartyClient network;
    bench::Bench::Client bench;
};

template <typename Call>
class Worker {
public:
    Worker(const peer::Arguments& arguments, size_t callers, size_t connections, size_t first,
           peer::Recorder& recorder)
        : is_per_call_(arguments.mode == "per-call"),
          callers_(callers),
          call_(arguments),
          recorder_(recorder),
          io_(kj::setupAsyncIo()) {
        for (auto& address : arguments.addresses) {
            auto& network = io_.provider->getNetwork();
            addresses_.push_back(network.parseAddress(address.host, address.port).wait(io_.waitScope));
        }
        for (size_t at = 0; !is_per_call_ && at < connections; ++at) {
            connections_.push_back(open(first + at).wait(io_.waitScope));
        }
    }

    void run() {
        recorder_.start();
        auto callers = kj::heapArrayBuilder<kj::Promise<void>>(callers_);
        for (size_t at = 0; at < callers_; ++at) callers.add(next(at, peer::now()));
        kj::joinPromises(callers.finish()).wait(io_.waitScope);
    }

private:
    kj::Promise<kj::Own<Connection>> open(size_t number) {
        return addresses_[number % addresses_.size()]->connect().then(
            [](kj::Own<kj::AsyncIoStream>&& stream) { return kj::heap<Connection>(kj::mv(stream)); });
    }

    // One call, and then the caller's others.
    kj::Promise<void> next(size_t caller, uint64_t time) {
        if (!recorder_.may_begin(time)) return kj::READY_NOW;
        return one(caller, time).then(
            [this, caller](uint64_t now) { return next(caller, now); },
            [this, caller, time](kj::Exception&& error) {
                uint64_t now = peer::now();
                recorder_.failed(time, now, error.getDescription().cStr());
                return next(caller, now);
            });
    }

    // Resolves to the time when the call ended.
    kj::Promise<uint64_t> one(size_t caller, uint64_t time) {
        if (!is_per_call_) return on(*connections_[caller % connections_.size()], time);
        return open(caller).then([this, time](kj::Own<Connection>&& connection) {
            auto call = on(*connection, time);
            return call.attach(kj::mv(connection));
        });
    }

    kj::Promise<uint64_t> on(Connection& connection, uint64_t time) {
        return call_.send(connection.bench).then([this, time](auto&& reply) {
            bool is_right = call_.is_right(reply);
            uint64_t now = peer::now();
            recorder_.finished(time, now, is_right);
            return now;
        });
    }

    bool is_per_call_;
    size_t callers_;
    Call call_;
    peer::Recorder& recorder_;
    kj::AsyncIoContext io_;
    std::vector<kj::Own<kj::NetworkAddress>> addresses_;
    std::vector<kj::Own<Connection>> connections_;
};

template <typename Call>
int call_with(const peer::Arguments& arguments) {
    size_t threads = arguments.threads > 0 ? arguments.threads : peer::cores();
    size_t connections = arguments.connections > 0 ? arguments.connections : threads;
    connections = std::min(std::max(connections, arguments.addresses.size()), arguments.callers);
    threads = std::min(threads, connections);
    return peer::run_client(arguments, threads, [&](size_t at, peer::Recorder& recorder) {
        auto callers = peer::share(arguments.callers, threads, at);
        Worker<Call>(arguments, callers, peer::share(connections, threads, at), at, recorder).run();
    });
}

}  // namespace

int call(const peer::Arguments& arguments) {
    if (arguments.mode != "unary" && arguments.mode != "per-call") peer::stop("no such mode: " + arguments.mode);
    return arguments.call == "message" ? call_with<MessageCall>(arguments) : call_with<EchoCall>(arguments);
}
