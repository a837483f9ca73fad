// The client of one bidirectional stream with as many messages outstanding as there are callers.

#include "grpc_peer.hpp"

#include <deque>

namespace {

class StreamCaller {
public:
    StreamCaller(const peer::Arguments& arguments, peer::Recorder& recorder)
        : callers_(arguments.callers), recorder_(recorder), channel_(connect(arguments, 0)) {
        message_.set_payload(peer::echo_payload(arguments.bytes));
        if (!channel_->WaitForConnected(deadline())) throw std::runtime_error("no connection within 10 s");
    }

    void run() {
        auto stub = bench::v1::Bench::NewStub(channel_);
        grpc::ClientContext context;
        stream_ = stub->AsyncStream(&context, &queue_, tag(Begun));
        next(Begun);
        recorder_.start();
        stream_->Read(&reply_, tag(Read));
        waiting_ = callers_;
        write();
        while (!sent_.empty() || is_writing_) {
            void* got = nullptr;
            bool is_ok = false;
            queue_.Next(&got, &is_ok);
            if (!is_ok) return fail();
            if (got == tag(Read)) take();
            else is_writing_ = false;
            write();
        }
        // the last read and what the stream ends with are left to the cancellation
        context.TryCancel();
        queue_.Shutdown();
        void* got = nullptr;
        bool is_ok = false;
        while (queue_.Next(&got, &is_ok)) {}
    }

private:
    enum Step : uintptr_t { Begun = 1, Read, Written };

    static void* tag(Step step) { return reinterpret_cast<void*>(step); }

    void next(Step step) {
        void* got = nullptr;
        bool is_ok = false;
        queue_.Next(&got, &is_ok);
        if (!is_ok || got != tag(step)) throw std::runtime_error("the stream does not begin");
    }

    // gRPC takes one write at a time; all but the last that waits may stay in its buffer.
    void write() {
        if (is_writing_ || waiting_ == 0) return;
        uint64_t time = peer::now();
        if (!recorder_.may_begin(time)) {
            waiting_ = 0;
            return;
        }
        --waiting_;
        sent_.push_back(time);
        is_writing_ = true;
        grpc::WriteOptions options;
        if (waiting_ > 0) options.set_buffer_hint();
        stream_->Write(message_, options, tag(Written));
    }

    void take() {
        recorder_.finished(sent_.front(), peer::now(), reply_.payload() == message_.payload());
        sent_.pop_front();
        ++waiting_;
        stream_->Read(&reply_, tag(Read));
    }

    void fail() {
        for (uint64_t from : sent_) recorder_.failed(from, peer::now(), "the stream broke");
        queue_.Shutdown();
    }

    size_t callers_;
    peer::Recorder& recorder_;
    std::shared_ptr<grpc::Channel> channel_;
    grpc::CompletionQueue queue_;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<Echo, Echo>> stream_;
    Echo message_;
    Echo reply_;
    // when the messages that are outstanding were sent; they come back in order
    std::deque<uint64_t> sent_;
    size_t waiting_ = 0;
    bool is_writing_ = false;
};

}  // namespace

int call_stream(const peer::Arguments& arguments) {
    if (arguments.call != "echo") peer::stop("streams are of echo alone");
    return peer::run_client(arguments, 1, [&](size_t, peer::Recorder& recorder) {
        StreamCaller(arguments, recorder).run();
    });
}
