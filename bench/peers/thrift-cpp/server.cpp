// The server: a thread a connection, or threads with an event loop each.

#include "serving.hpp"
#include "thrift_peer.hpp"

#include <thread>
#include <thrift/server/TNonblockingServer.h>
#include <thrift/server/TThreadedServer.h>
#include <thrift/transport/TNonblockingServerSocket.h>
#include <thrift/transport/TServerSocket.h>

namespace {

using namespace apache::thrift;
using std::make_shared;
using std::shared_ptr;

class Handler : public bench::BenchIf {
    void echo(std::string& reply, const std::string& payload) override { reply = payload; }

    void message(bench::BenchmarkMessage& reply, const bench::BenchmarkMessage& request) override {
        reply = request;
        peer::answer(reply);
    }
};

// Frames in a buffer that reads and writes the socket in larger pieces.
class BufferedFrames : public transport::TTransportFactory {
    shared_ptr<transport::TTransport> getTransport(shared_ptr<transport::TTransport> socket) override {
        return make_shared<transport::TFramedTransport>(make_shared<transport::TBufferedTransport>(socket, 16 << 10));
    }
};

class WhenListening : public server::TServerEventHandler {
public:
    WhenListening(const peer::Arguments& arguments, std::function<uint16_t()> port)
        : arguments_(arguments), port_(std::move(port)) {}
    void preServe() override { peer::announce(arguments_, port_()); }

private:
    peer::Arguments arguments_;
    std::function<uint16_t()> port_;
};

template <typename Protocol>
shared_ptr<server::TServer> new_server(const peer::Arguments& arguments,
                                       const shared_ptr<protocol::TProtocolFactory>& protocol) {
    auto processor = make_shared<bench::BenchProcessorT<Protocol>>(make_shared<Handler>());
    if (has(arguments, "nonblocking")) {
        auto socket = make_shared<transport::TNonblockingServerSocket>(arguments.host, 0);
        auto server = make_shared<server::TNonblockingServer>(processor, protocol, socket);
        // without a pool of workers the threads of the loops run the handlers
        server->setNumIOThreads(arguments.threads > 0 ? arguments.threads : peer::cores());
        server->setServerEventHandler(make_shared<WhenListening>(arguments, [=] { return uint16_t(socket->getListenPort()); }));
        return server;
    }
    auto socket = make_shared<transport::TServerSocket>(arguments.host, 0);
    shared_ptr<transport::TTransportFactory> transport = make_shared<BufferedFrames>();
    if (has(arguments, "unframed")) transport = make_shared<transport::TBufferedTransportFactory>();
    auto server = make_shared<server::TThreadedServer>(processor, socket, transport, protocol);
    server->setServerEventHandler(make_shared<WhenListening>(arguments, [=] { return uint16_t(socket->getPort()); }));
    return server;
}

}  // namespace

int serve(const peer::Arguments& arguments) {
    GlobalOutput.setOutputFunction([](const char*) {});
    auto server =
        has(arguments, "binary")
            ? new_server<Binary>(arguments, make_shared<protocol::TBinaryProtocolFactoryT<Buffer>>())
            : new_server<Compact>(arguments, make_shared<protocol::TCompactProtocolFactoryT<Buffer>>());
    std::thread([server] { server->serve(); }).detach();
    peer::wait_for_end_of_input();
    // the server would wait for its connections to end
    std::_Exit(0);
}
