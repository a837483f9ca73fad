// What encoding and decoding the message costs. To be included by one source file of a program: it defines operator new.
#pragma once

#include "closed_loop.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

namespace peer {
// Number of calls of operator new on this thread.
inline thread_local uint64_t allocations = 0;
}  // namespace peer

// All other forms of new come down to this one.
void* operator new(size_t size) {
    ++peer::allocations;
    if (void* memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace peer {

struct Cost {
    double nanoseconds;
    double allocations;
};

// The median of 201 batches of 1000.
template <typename Body>
Cost cost_of(Body&& body) {
    constexpr size_t BATCHES = 201, BATCH = 1000;
    for (size_t at = 0; at < 20 * BATCH; ++at) body();
    std::vector<double> times;
    uint64_t allocated = 0;
    for (size_t batch = 0; batch < BATCHES; ++batch) {
        uint64_t before = allocations;
        uint64_t from = now();
        for (size_t at = 0; at < BATCH; ++at) body();
        times.push_back(double(now() - from) / BATCH);
        allocated += allocations - before;
    }
    std::nth_element(times.begin(), times.begin() + BATCHES / 2, times.end());
    return {times[BATCHES / 2], double(allocated) / double(BATCHES * BATCH)};
}

// The line of `--call codecs`.
class CodecLine {
public:
    void add(const std::string& name, Cost encode, Cost decode, size_t bytes) {
        char text[256];
        std::snprintf(text, sizeof text,
                      "%s{\"name\":\"%s\",\"encode_ns\":%.1f,\"decode_ns\":%.1f,\"encode_allocs\":%.2f,"
                      "\"decode_allocs\":%.2f,\"bytes\":%zu}",
                      line_.empty() ? "" : ",", name.c_str(), encode.nanoseconds, decode.nanoseconds,
                      encode.allocations, decode.allocations, bytes);
        line_ += text;
    }

    void print() const {
        std::printf("{\"codecs\":[%s]}\n", line_.c_str());
        std::fflush(stdout);
    }

private:
    std::string line_;
};

// Keeps the compiler from removing values that are not read.
template <typename Value>
inline void keep(Value& value) {
    asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace peer
