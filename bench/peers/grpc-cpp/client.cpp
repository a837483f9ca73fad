// The client of unary calls: threads with a completion queue and channels of their own.

#include "grpc_peer.hpp"

#include <memory>
#include <optional>

namespace {

using Stub = bench::v1::Bench::Stub;

class EchoCall {
public:
    using Payload = Echo;

    explicit EchoCall(const peer::Arguments& arguments) { request_.set_payload(peer::echo_payload(arguments.bytes)); }

    auto call(Stub& stub, grpc::ClientContext& context, grpc::CompletionQueue& queue) const {
        return stub.AsyncEcho(&context, request_, &queue);
    }
    bool is_right(const Echo& reply) const { return reply.payload() == request_.payload(); }

private:
    Echo request_;
};

class MessageCall {
public:
    using Payload = Message;

    explicit MessageCall(const peer::Arguments&) { peer::fill(request_); }

    auto call(Stub& stub, grpc::ClientContext& context, grpc::CompletionQueue& queue) const {
        return stub.AsyncMessage(&context, request_, &queue);
    }
    bool is_right(const Message& reply) const { return peer::is_answer(reply); }

private:
    Message request_;
};

template <typename Call>
class Worker {
public:
    Worker(const peer::Arguments& arguments, size_t callers, size_t channels, size_t first, peer::Recorder& recorder)
        : arguments_(arguments),
          is_per_call_(arguments.mode == "per-call"),
          call_(arguments),
          recorder_(recorder),
          callers_(callers) {
        for (size_t at = 0; !is_per_call_ && at < channels; ++at) {
            auto channel = connect(arguments, first + at);
            if (!channel->WaitForConnected(deadline())) throw std::runtime_error("no connection within 10 s");
            stubs_.push_back(bench::v1::Bench::NewStub(channel));
        }
        for (size_t at = 0; at < callers; ++at) {
            callers_[at].number = first + at;
            if (!is_per_call_) callers_[at].stub = stubs_[at % stubs_.size()].get();
        }
    }

    void run() {
        recorder_.start();
        for (auto& caller : callers_) begin(caller, peer::now());
        void* tag = nullptr;
        bool is_ok = false;
        while (outstanding_ > 0 && queue_.Next(&tag, &is_ok)) finish(*static_cast<Caller*>(tag));
        queue_.Shutdown();
        while (queue_.Next(&tag, &is_ok)) {}
    }

private:
    struct Caller {
        size_t number = 0;
        uint64_t from = 0;
        Stub* stub = nullptr;
        std::unique_ptr<Stub> own_stub;
        std::optional<grpc::ClientContext> context;
        std::unique_ptr<grpc::ClientAsyncResponseReader<typename Call::Payload>> reader;
        // keeps its memory from one call to the next
        typename Call::Payload reply;
        grpc::Status status;
    };

    void begin(Caller& caller, uint64_t time) {
        if (!recorder_.may_begin(time)) return;
        ++outstanding_;
        caller.from = time;
        caller.reader.reset();
        caller.context.emplace();
        caller.context->set_deadline(deadline());
        if (is_per_call_) {
            // the channel of the last call is closed with its stub
            caller.own_stub = bench::v1::Bench::NewStub(connect(arguments_, caller.number));
            caller.stub = caller.own_stub.get();
            caller.context->set_wait_for_ready(true);
        }
        caller.reader = call_.call(*caller.stub, *caller.context, queue_);
        caller.reader->Finish(&caller.reply, &caller.status, &caller);
    }

    void finish(Caller& caller) {
        --outstanding_;
        bool is_right = caller.status.ok() && call_.is_right(caller.reply);
        uint64_t time = peer::now();
        if (caller.status.ok()) recorder_.finished(caller.from, time, is_right);
        else recorder_.failed(caller.from, time, caller.status.error_message());
        begin(caller, time);
    }

    const peer::Arguments& arguments_;
    bool is_per_call_;
    Call call_;
    peer::Recorder& recorder_;
    grpc::CompletionQueue queue_;
    std::vector<std::unique_ptr<Stub>> stubs_;
    std::vector<Caller> callers_;
    size_t outstanding_ = 0;
};

template <typename Call>
int call_with(const peer::Arguments& arguments) {
    size_t threads = arguments.threads > 0 ? arguments.threads : peer::cores();
    size_t channels = arguments.connections > 0 ? arguments.connections : threads;
    channels = std::min(std::max(channels, arguments.addresses.size()), arguments.callers);
    threads = std::min(threads, channels);
    return peer::run_client(arguments, threads, [&](size_t at, peer::Recorder& recorder) {
        auto callers = peer::share(arguments.callers, threads, at);
        Worker<Call>(arguments, callers, peer::share(channels, threads, at), at, recorder).run();
    });
}

}  // namespace

int call_unary(const peer::Arguments& arguments) {
    return arguments.call == "message" ? call_with<MessageCall>(arguments) : call_with<EchoCall>(arguments);
}
