// The server: event loops, one a core, which get the connections in turn.

#include "capnp_peer.hpp"
#include "serving.hpp"

#include <arpa/inet.h>
#include <capnp/rpc-twoparty.h>
#include <future>
#include <kj/async-io.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace {

class Service final : public bench::Bench::Server {
    kj::Promise<void> echo(EchoContext context) override {
        auto payload = context.getParams().getPayload();
        context.getResults(capnp::MessageSize{payload.size() / sizeof(capnp::word) + 8, 0}).setPayload(payload);
        return kj::READY_NOW;
    }

    kj::Promise<void> message(MessageContext context) override {
        auto request = context.getParams().getMessage();
        auto results = context.getResults(capnp::MessageSize{request.totalSize().wordCount + 8, 0});
        results.setMessage(request);
        auto reply = results.getMessage();
        reply.setField1(peer::text(peer::REPLY_TEXT));
        reply.setField2(peer::REPLY_NUMBER);
        return kj::READY_NOW;
    }
};

// A thread with an event loop.
class Loop {
public:
    Loop() {
        std::promise<void> ready;
        auto started = ready.get_future();
        std::thread([this, &ready] {
            auto io = kj::setupAsyncIo();
            capnp::TwoPartyServer server(kj::heap<Service>());
            io_ = &io;
            server_ = &server;
            executor_ = kj::getCurrentThreadExecutor().addRef();
            ready.set_value();
            kj::NEVER_DONE.wait(io.waitScope);
        }).detach();
        started.wait();
    }

    void accept(int descriptor) {
        executor_->executeSync([this, descriptor] {
            auto flags = kj::LowLevelAsyncIoProvider::TAKE_OWNERSHIP | kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC;
            server_->accept(io_->lowLevelProvider->wrapSocketFd(descriptor, flags));
        });
    }

private:
    kj::AsyncIoContext* io_ = nullptr;
    capnp::TwoPartyServer* server_ = nullptr;
    kj::Own<const kj::Executor> executor_;
};

void accept_all(int listener, size_t threads) {
    std::vector<std::unique_ptr<Loop>> loops;
    for (size_t at = 0; at < threads; ++at) loops.push_back(std::make_unique<Loop>());
    for (size_t at = 0;; ++at) {
        int descriptor = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (descriptor < 0) continue;
        int yes = 1;
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        loops[at % threads]->accept(descriptor);
    }
}

}  // namespace

int serve(const peer::Arguments& arguments) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (inet_pton(AF_INET, arguments.host.c_str(), &address.sin_addr) != 1) peer::stop("no address: " + arguments.host);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener, generic, size) != 0 || listen(listener, 4096) != 0 || getsockname(listener, generic, &size) != 0) {
        peer::stop("the server cannot listen");
    }
    size_t threads = arguments.threads > 0 ? arguments.threads : peer::cores();
    std::thread([=] { accept_all(listener, threads); }).detach();
    peer::announce(arguments, ntohs(address.sin_port));
    peer::wait_for_end_of_input();
    // the loops have no end
    std::_Exit(0);
}
