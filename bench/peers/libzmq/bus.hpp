// Command line, messages and counts of a side of a workload of `switchboard bench bus`.
#pragma once

#include "histogram.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.h>

namespace bus {

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "libzmq: %s: %s\n", what, zmq_strerror(zmq_errno()));
    std::_Exit(1);
}

inline void check(int result, const char* what) {
    if (result < 0) fail(what);
}

inline uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}

// Ends this process when its standard input does.
inline void end_with_input() {
    std::thread([] {
        while (std::getchar() != EOF) {
        }
        std::_Exit(0);
    }).detach();
}

struct Arguments {
    std::string side, mode, endpoint = "tcp://127.0.0.1:*";
    uint32_t bytes = 64, peers = 1;
    double warm_up = 1, seconds = 1;
    bool stalled = false;

    static Arguments parse(int count, char** values) {
        Arguments arguments;
        if (count < 3) {
            std::fprintf(stderr, "usage: libzmq-bus SIDE MODE [OPTIONS]\n");
            std::exit(2);
        }
        arguments.side = values[1];
        arguments.mode = values[2];
        for (int at = 3; at < count; ++at) {
            std::string_view name = values[at];
            if (name == "--stalled") {
                arguments.stalled = true;
                continue;
            }
            const char* value = ++at < count ? values[at] : "";
            if (name == "--endpoint") arguments.endpoint = value;
            else if (name == "--bytes") arguments.bytes = uint32_t(std::atoll(value));
            else if (name == "--peers") arguments.peers = uint32_t(std::atoll(value));
            else if (name == "--warm-up") arguments.warm_up = std::atof(value);
            else if (name == "--seconds") arguments.seconds = std::atof(value);
        }
        return arguments;
    }
};

class Socket {
public:
    Socket(void* context, int kind) : socket_(zmq_socket(context, kind)) {
        if (!socket_) fail("socket");
        set(ZMQ_LINGER, 0);
    }
    Socket(Socket&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(socket_, other.socket_);
        return *this;
    }
    void* get() const { return socket_; }
    void set(int option, int value) { check(zmq_setsockopt(socket_, option, &value, sizeof value), "option"); }

private:
    void* socket_;
};

constexpr size_t STAMP_BYTES = 20;

// Number of the sender, number of the message, time of every 64th one.
class Message {
public:
    Message() { zmq_msg_init(&message_); }
    Message(uint32_t sender, uint64_t number, uint32_t bytes) {
        check(zmq_msg_init_size(&message_, bytes), "message");
        auto* data = static_cast<char*>(zmq_msg_data(&message_));
        uint64_t time = number % 64 == 0 ? now_ns() : 0;
        std::memset(data, 0, bytes);
        std::memcpy(data, &sender, 4);
        std::memcpy(data + 4, &number, 8);
        std::memcpy(data + 12, &time, 8);
    }
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;
    ~Message() { zmq_msg_close(&message_); }

    void send(Socket& socket) {
        if (zmq_msg_send(&message_, socket.get(), 0) < 0) fail("send");
    }
    // Returns false if there is no message.
    bool receive(Socket& socket, int flags) {
        if (zmq_msg_recv(&message_, socket.get(), flags) >= 0) return true;
        if (zmq_errno() != EAGAIN) fail("receive");
        return false;
    }
    bool has_stamp() { return zmq_msg_size(&message_) >= STAMP_BYTES; }
    uint32_t sender() { return has_stamp() ? read<uint32_t>(0) : 0; }
    uint64_t number() { return read<uint64_t>(4); }
    uint64_t time_ns() { return read<uint64_t>(12); }

private:
    template <typename Number>
    Number read(size_t at) {
        Number number;
        std::memcpy(&number, static_cast<char*>(zmq_msg_data(&message_)) + at, sizeof number);
        return number;
    }
    zmq_msg_t message_;
};

// Counts of the receivers of a process; measures from the warm-up after the first message.
class Tally {
public:
    explicit Tally(const Arguments& arguments)
        : warm_up_ns_(uint64_t(arguments.warm_up * 1e9)), seconds_ns_(uint64_t(arguments.seconds * 1e9)),
          next_(arguments.peers, UNKNOWN) {}

    bool is_over() const { return phase_ == Phase::Over; }

    void receive(Message& message, size_t peer, bool may_skip) {
        if (!message.has_stamp()) {
            ++lost_;
            return;
        }
        count(message.number(), peer, may_skip);
        if (auto time = message.time_ns()) delays_.record(now_ns() - time);
        // The clock is read for one message of 16.
        if (++messages_ % 16 == 0 || messages_ == 1) advance();
    }

    void receive_timed(Message& message, size_t peer, uint64_t delay_ns) {
        if (message.has_stamp()) count(message.number(), peer, false);
        else ++lost_;
        delays_.record(delay_ns);
        ++messages_;
        advance();
    }

    void print() {
        auto delay = [&](double quantile) { return delays_.quantile(quantile) / 1000; };
        std::printf("{\"messages\":%llu,\"elapsed_s\":%f,\"lost\":%llu,\"duplicates\":%llu,\"p50_us\":%f,\"p99_us\":%f,"
                    "\"p999_us\":%f}\n",
                    static_cast<unsigned long long>(messages_ - before_), double(end_ns_ - start_ns_) / 1e9,
                    static_cast<unsigned long long>(lost_), static_cast<unsigned long long>(duplicates_), delay(0.5),
                    delay(0.99), delay(0.999));
        std::fflush(stdout);
    }

private:
    enum class Phase { Waiting, WarmUp, Measuring, Over };
    static constexpr uint64_t UNKNOWN = UINT64_MAX;

    void count(uint64_t number, size_t peer, bool may_skip) {
        auto& next = next_[peer < next_.size() ? peer : 0];
        if (next != UNKNOWN && number < next) {
            ++duplicates_;
            return;
        }
        if (next != UNKNOWN && !may_skip) lost_ += number - next;
        next = number + 1;
    }

    void advance() {
        auto now = now_ns();
        if (phase_ == Phase::Waiting) {
            phase_ = Phase::WarmUp;
            start_ns_ = now;
        } else if (phase_ == Phase::WarmUp && now - start_ns_ >= warm_up_ns_) {
            phase_ = Phase::Measuring;
            start_ns_ = now;
            before_ = messages_;
            delays_ = {};
            std::puts("begin");
            std::fflush(stdout);
        } else if (phase_ == Phase::Measuring && now - start_ns_ >= seconds_ns_) {
            phase_ = Phase::Over;
            end_ns_ = now;
        }
    }

    uint64_t warm_up_ns_, seconds_ns_;
    std::vector<uint64_t> next_;
    uint64_t messages_ = 0, before_ = 0, lost_ = 0, duplicates_ = 0, start_ns_ = 0, end_ns_ = 0;
    Phase phase_ = Phase::Waiting;
    peer::Histogram delays_;
};

}  // namespace bus
