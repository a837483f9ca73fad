// What every client shares: when a run begins and ends, and what came of its calls.
//
// A client's thread connects, waits for the others in `Recorder::start`, and then keeps its callers' calls
// outstanding while `may_begin` says so. Nothing is shared between the threads until they end.
#pragma once

#include "arguments.hpp"
#include "histogram.hpp"

#include <barrier>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace peer {

constexpr std::chrono::seconds DEADLINE{10};

// Nanoseconds of the steady clock.
inline uint64_t now() {
    auto since = std::chrono::steady_clock::now().time_since_epoch();
    return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// The time that all threads agree on once all are connected.
class Start {
public:
    Start(const Arguments& arguments, size_t threads)
        : warm_up_(arguments.warm_up),
          seconds_(arguments.requests == 0 ? arguments.seconds : 1e6),
          barrier_(ptrdiff_t(threads), Set{this}) {}

    void wait() { barrier_.arrive_and_wait(); }
    uint64_t begin() const { return begin_; }
    uint64_t end() const { return end_; }

private:
    struct Set {
        Start* start;
        void operator()() noexcept {
            start->begin_ = now() + uint64_t(start->warm_up_ * 1e9);
            start->end_ = start->begin_ + uint64_t(start->seconds_ * 1e9);
        }
    };

    double warm_up_;
    double seconds_;
    uint64_t begin_ = 0;
    uint64_t end_ = 0;
    std::barrier<Set> barrier_;
};

// The calls of one thread.
class Recorder {
public:
    // At most `quota` calls after the warm-up; 0 when time ends the run.
    Recorder(Start& start, uint64_t quota, bool is_limited) : start_(start), quota_(is_limited ? quota : UINT64_MAX) {}

    // Waits until all threads are connected.
    void start() { start_.wait(); }

    // Whether a call may begin at `time`, which then must.
    bool may_begin(uint64_t time) {
        if (time < start_.begin()) return true;
        if (time >= start_.end() || begun_ >= quota_) return false;
        ++begun_;
        return true;
    }

    void succeeded(uint64_t from, uint64_t to) {
        ++total_;
        if (from < start_.begin()) return;
        latencies_.record(to - from);
        last_ = to;
    }

    void failed(uint64_t from, uint64_t to, const std::string& why) {
        ++total_;
        if (first_error_.empty()) first_error_ = why;
        ++errors_;
        if (from >= start_.begin()) last_ = to;
    }

    void finished(uint64_t from, uint64_t to, bool is_right) {
        if (is_right) succeeded(from, to);
        else failed(from, to, "the reply does not match the request");
    }

    void add(const Recorder& other) {
        latencies_.add(other.latencies_);
        total_ += other.total_;
        errors_ += other.errors_;
        last_ = std::max(last_, other.last_);
        if (first_error_.empty()) first_error_ = other.first_error_;
    }

    // The result line.
    void print() const {
        std::string error = "null";
        if (errors_ > 0) {
            error = "\"";
            for (char letter : first_error_) {
                if (letter == '"' || letter == '\\') error += '\\';
                error += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
            }
            error += '"';
        }
        double elapsed = last_ > start_.begin() ? double(last_ - start_.begin()) / 1e9 : 0;
        auto micros = [&](double part) { return latencies_.quantile(part) / 1e3; };
        std::printf("{\"requests\":%lu,\"total_requests\":%lu,\"elapsed_s\":%.6f,\"errors\":%lu,\"first_error\":%s,"
                    "\"mean_us\":%.3f,\"min_us\":%.3f,\"p50_us\":%.3f,\"p90_us\":%.3f,\"p99_us\":%.3f,"
                    "\"p999_us\":%.3f,\"max_us\":%.3f}\n",
                    latencies_.count(), total_, elapsed, errors_, error.c_str(), latencies_.mean() / 1e3,
                    latencies_.min() / 1e3, micros(0.5), micros(0.9), micros(0.99), micros(0.999),
                    latencies_.max() / 1e3);
        std::fflush(stdout);
    }

private:
    Start& start_;
    uint64_t quota_;
    uint64_t begun_ = 0;
    uint64_t total_ = 0;
    uint64_t errors_ = 0;
    uint64_t last_ = 0;
    std::string first_error_;
    Histogram latencies_;
};

// Runs `body(thread, recorder)` on so many threads and prints what came of it. What a body throws ends the program.
inline int run_client(const Arguments& arguments, size_t threads,
                      const std::function<void(size_t, Recorder&)>& body) {
    Start start(arguments, threads);
    std::vector<Recorder> recorders;
    for (size_t at = 0; at < threads; ++at) {
        recorders.emplace_back(start, share(arguments.requests, threads, at), arguments.requests > 0);
    }
    std::vector<std::thread> workers;
    for (size_t at = 0; at < threads; ++at) {
        workers.emplace_back([&, at] {
            try {
                body(at, recorders[at]);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "the client could not run: %s\n", error.what());
                std::_Exit(1);
            }
        });
    }
    for (auto& worker : workers) worker.join();
    for (size_t at = 1; at < threads; ++at) recorders[0].add(recorders[at]);
    recorders[0].print();
    return 0;
}

}  // namespace peer
