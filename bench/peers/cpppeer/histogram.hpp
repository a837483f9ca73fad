// Latencies in log-linear buckets: 256 a power of two, so that a percentile is at most 0.2 % off.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace peer {

class Histogram {
public:
    void record(uint64_t nanoseconds) {
        ++buckets_[bucket(nanoseconds)];
        ++count_;
        sum_ += nanoseconds;
        min_ = std::min(min_, nanoseconds);
        max_ = std::max(max_, nanoseconds);
    }

    void add(const Histogram& other) {
        for (size_t at = 0; at < buckets_.size(); ++at) buckets_[at] += other.buckets_[at];
        count_ += other.count_;
        sum_ += other.sum_;
        min_ = std::min(min_, other.min_);
        max_ = std::max(max_, other.max_);
    }

    uint64_t count() const { return count_; }
    double mean() const { return count_ == 0 ? 0 : double(sum_) / double(count_); }
    double min() const { return count_ == 0 ? 0 : double(min_); }
    double max() const { return double(max_); }

    // The middle of the bucket below whose end lies `part` of all values.
    double quantile(double part) const {
        auto rank = uint64_t(part * double(count_));
        uint64_t seen = 0;
        for (size_t at = 0; at < buckets_.size(); ++at) {
            seen += buckets_[at];
            if (seen > rank) return std::clamp(middle(at), min(), max());
        }
        return max();
    }

private:
    static constexpr unsigned BITS = 8;
    static constexpr uint64_t LINEAR = 1 << BITS;
    // 2^40 ns are 18 minutes
    static constexpr unsigned POWERS = 40 - BITS;

    // Values below 512 have a bucket each; above, the bucket is the power of two and the 8 bits below its highest.
    static size_t bucket(uint64_t value) {
        value = std::min(value, (uint64_t(1) << 40) - 1);
        if (value < LINEAR) return size_t(value);
        unsigned shift = unsigned(std::bit_width(value)) - 1 - BITS;
        return size_t((shift + 1) * LINEAR + ((value >> shift) - LINEAR));
    }

    static double middle(size_t bucket) {
        if (bucket < LINEAR) return double(bucket);
        uint64_t shift = bucket / LINEAR - 1;
        uint64_t low = (bucket % LINEAR + LINEAR) << shift;
        return double(low) + double((uint64_t(1) << shift) - 1) / 2;
    }

    std::vector<uint64_t> buckets_ = std::vector<uint64_t>((POWERS + 1) * LINEAR);
    uint64_t count_ = 0;
    uint64_t sum_ = 0;
    uint64_t min_ = UINT64_MAX;
    uint64_t max_ = 0;
};

}  // namespace peer
