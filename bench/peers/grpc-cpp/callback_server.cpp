// The server on the callback API: gRPC's threads run the handlers.

#include "grpc_peer.hpp"
#include "serving.hpp"

#include <deque>
#include <mutex>

namespace {

// Writes back what it reads, reading on while it writes.
class EchoStream : public grpc::ServerBidiReactor<Echo, Echo> {
public:
    EchoStream() { StartRead(&incoming_); }

    void OnReadDone(bool is_read) override {
        std::unique_lock lock(mutex_);
        if (!is_read) {
            is_over_ = true;
            if (outgoing_.empty()) finish(lock);
            return;
        }
        outgoing_.push_back(std::move(incoming_));
        bool is_idle = outgoing_.size() == 1;
        if (is_idle) StartWrite(&outgoing_.front());
        lock.unlock();
        StartRead(&incoming_);
    }

    void OnWriteDone(bool) override {
        std::unique_lock lock(mutex_);
        outgoing_.pop_front();
        if (!outgoing_.empty()) StartWrite(&outgoing_.front());
        else if (is_over_) finish(lock);
    }

    void OnDone() override { delete this; }

private:
    // Finish may delete this.
    void finish(std::unique_lock<std::mutex>& lock) {
        lock.unlock();
        Finish(grpc::Status::OK);
    }

    std::mutex mutex_;
    Echo incoming_;
    std::deque<Echo> outgoing_;
    bool is_over_ = false;
};

class Service : public bench::v1::Bench::CallbackService {
    grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context, const ::Echo* request,
                                   ::Echo* reply) override {
        reply->set_payload(request->payload());
        return answered(context);
    }

    grpc::ServerUnaryReactor* Message(grpc::CallbackServerContext* context, const ::Message* request,
                                      ::Message* reply) override {
        *reply = *request;
        peer::answer(*reply);
        return answered(context);
    }

    grpc::ServerBidiReactor<::Echo, ::Echo>* Stream(grpc::CallbackServerContext*) override { return new EchoStream; }

    static grpc::ServerUnaryReactor* answered(grpc::CallbackServerContext* context) {
        auto* reactor = context->DefaultReactor();
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }
};

}  // namespace

int serve_callbacks(const peer::Arguments& arguments) {
    Service service;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(arguments.host + ":0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(-1);
    auto server = builder.BuildAndStart();
    if (!server) peer::stop("the server does not start");
    peer::announce(arguments, uint16_t(port));
    peer::wait_for_end_of_input();
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    return 0;
}
