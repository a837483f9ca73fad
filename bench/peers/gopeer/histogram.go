package gopeer

import (
	"math"
	"math/bits"
	"time"
)

// Each power of two is cut into 128 buckets, whose middles are at most 0.4 % from what they stand for. A histogram
// has 20 KiB, so each caller has its own and a thousand callers don't grow the heap by what they measure.
const (
	bucketBits = 7
	perOctave  = 1 << bucketBits
	octaves    = 40 - bucketBits // up to 2^40 ns, 18 minutes
)

// histogram counts latencies.
type histogram struct {
	counts   [perOctave * (octaves + 1)]uint32
	count    uint64
	sum      time.Duration
	min, max time.Duration
}

func newHistogram() *histogram {
	return &histogram{min: math.MaxInt64}
}

func (h *histogram) record(latency time.Duration) {
	h.counts[bucketOf(latency)]++
	h.count++
	h.sum += latency
	h.min = min(h.min, latency)
	h.max = max(h.max, latency)
}

func (h *histogram) merge(other *histogram) {
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.count += other.count
	h.sum += other.sum
	h.min = min(h.min, other.min)
	h.max = max(h.max, other.max)
}

// quantile returns the latency in microseconds that the given share of calls did not exceed.
func (h *histogram) quantile(share float64) float64 {
	rank := uint64(math.Ceil(share * float64(h.count)))
	seen := uint64(0)
	for i, count := range h.counts {
		seen += uint64(count)
		if count > 0 && seen >= rank {
			return micros(min(max(middleOf(i), h.min), h.max))
		}
	}
	return 0
}

func (h *histogram) mean() float64 {
	if h.count == 0 {
		return 0
	}
	return micros(h.sum) / float64(h.count)
}

func bucketOf(latency time.Duration) int {
	value := uint64(min(max(latency, 0), 1<<40-1))
	if value < perOctave {
		return int(value)
	}
	shift := bits.Len64(value) - bucketBits - 1
	return shift<<bucketBits + int(value>>shift)
}

func middleOf(bucket int) time.Duration {
	if bucket < 2*perOctave {
		return time.Duration(bucket)
	}
	shift := bucket>>bucketBits - 1
	low := uint64(bucket-shift<<bucketBits) << shift
	return time.Duration(low + 1<<shift/2)
}

func micros(d time.Duration) float64 {
	return float64(d) / float64(time.Microsecond)
}
