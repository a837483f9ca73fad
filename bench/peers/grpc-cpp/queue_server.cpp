// The server on completion queues: a queue and a thread a core, each with calls of its own.

#include "grpc_peer.hpp"
#include "serving.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <thread>

namespace {

using Service = bench::v1::Bench::AsyncService;
using Queue = grpc::ServerCompletionQueue;

// What the tag of an event points to.
class Event {
public:
    virtual ~Event() = default;
    virtual void happened(bool is_ok) = 0;
};

// A call with one request and one reply, which changes the request into the reply. Used again when it is over.
template <typename Payload, auto REQUEST, auto ANSWER>
class Unary final : public Event {
public:
    // Spares are shared by the calls of one queue.
    struct Pool {
        Service& service;
        Queue& queue;
        std::vector<std::unique_ptr<Unary>> all;
        std::vector<Unary*> spare;

        void listen() {
            if (spare.empty()) {
                all.push_back(std::make_unique<Unary>(*this));
                spare.push_back(all.back().get());
            }
            auto* call = spare.back();
            spare.pop_back();
            call->listen();
        }
    };

    explicit Unary(Pool& pool) : pool_(pool) {}

    void happened(bool is_ok) override {
        if (is_answered_) {
            is_answered_ = false;
            pool_.spare.push_back(this);
        } else if (is_ok) {
            pool_.listen();
            ANSWER(payload_);
            is_answered_ = true;
            writer_->Finish(payload_, grpc::Status::OK, this);
        }
    }

private:
    void listen() {
        writer_.reset();
        context_.emplace();
        writer_.emplace(&*context_);
        (pool_.service.*REQUEST)(&*context_, &payload_, &*writer_, &pool_.queue, &pool_.queue, this);
    }

    Pool& pool_;
    // keeps its memory from one call to the next
    Payload payload_;
    std::optional<grpc::ServerContext> context_;
    std::optional<grpc::ServerAsyncResponseWriter<Payload>> writer_;
    bool is_answered_ = false;
};

// Writes back what it reads, reading on while it writes.
class EchoStream {
public:
    EchoStream(Service& service, Queue& queue) : service_(service), queue_(queue) {
        service.RequestStream(&context_, &stream_, &queue, &queue, &begun_);
    }

private:
    struct Step final : Event {
        using Handler = void (EchoStream::*)(bool);
        Step(EchoStream* stream, Handler handler) : stream(stream), handler(handler) {}
        void happened(bool is_ok) override { (stream->*handler)(is_ok); }
        EchoStream* stream;
        Handler handler;
    };

    void begin(bool is_ok) {
        if (!is_ok) {
            delete this;
            return;
        }
        new EchoStream(service_, queue_);
        stream_.Read(&incoming_, &read_);
    }

    void read(bool is_ok) {
        if (!is_ok) {
            is_over_ = true;
            if (outgoing_.empty()) stream_.Finish(grpc::Status::OK, &finished_);
            return;
        }
        outgoing_.push_back(std::move(incoming_));
        if (outgoing_.size() == 1) stream_.Write(outgoing_.front(), &written_);
        stream_.Read(&incoming_, &read_);
    }

    void write(bool) {
        outgoing_.pop_front();
        if (!outgoing_.empty()) stream_.Write(outgoing_.front(), &written_);
        else if (is_over_) stream_.Finish(grpc::Status::OK, &finished_);
    }

    void finish(bool) { delete this; }

    Service& service_;
    Queue& queue_;
    grpc::ServerContext context_;
    grpc::ServerAsyncReaderWriter<Echo, Echo> stream_{&context_};
    Echo incoming_;
    std::deque<Echo> outgoing_;
    bool is_over_ = false;
    Step begun_{this, &EchoStream::begin};
    Step read_{this, &EchoStream::read};
    Step written_{this, &EchoStream::write};
    Step finished_{this, &EchoStream::finish};
};

using EchoCall = Unary<Echo, &Service::RequestEcho, [](Echo&) {}>;
using MessageCall = Unary<Message, &Service::RequestMessage, [](Message& message) { peer::answer(message); }>;

// How many calls a queue waits for at once.
constexpr size_t LISTENING = 64;

void poll(Service& service, Queue& queue) {
    EchoCall::Pool echoes{service, queue, {}, {}};
    MessageCall::Pool messages{service, queue, {}, {}};
    for (size_t at = 0; at < LISTENING; ++at) {
        echoes.listen();
        messages.listen();
    }
    new EchoStream(service, queue);
    void* tag = nullptr;
    bool is_ok = false;
    while (queue.Next(&tag, &is_ok)) static_cast<Event*>(tag)->happened(is_ok);
}

}  // namespace

int serve_queues(const peer::Arguments& arguments) {
    size_t threads = arguments.threads > 0 ? arguments.threads : peer::cores();
    Service service;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(arguments.host + ":0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(-1);
    std::vector<std::unique_ptr<Queue>> queues;
    for (size_t at = 0; at < threads; ++at) queues.push_back(builder.AddCompletionQueue());
    auto server = builder.BuildAndStart();
    if (!server) peer::stop("the server does not start");
    std::vector<std::thread> workers;
    for (auto& queue : queues) workers.emplace_back([&] { poll(service, *queue); });
    peer::announce(arguments, uint16_t(port));
    peer::wait_for_end_of_input();
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    for (auto& queue : queues) queue->Shutdown();
    for (auto& worker : workers) worker.join();
    return 0;
}
