package gopeer

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
)

// Codec encodes and decodes the message of 581 bytes as the library does it in a call.
type Codec struct {
	Name   string
	Encode func() ([]byte, error)
	Decode func(encoded []byte) error
}

const (
	batches  = 31
	perBatch = 20_000
)

type codecCost struct {
	Name         string  `json:"name"`
	EncodeNs     float64 `json:"encode_ns"`
	DecodeNs     float64 `json:"decode_ns"`
	EncodeAllocs float64 `json:"encode_allocs"`
	DecodeAllocs float64 `json:"decode_allocs"`
	Bytes        int     `json:"bytes"`
}

func printCodecs(codecs []Codec) error {
	costs := make([]codecCost, 0, len(codecs))
	for _, codec := range codecs {
		encoded, err := codec.Encode()
		if err != nil {
			return fmt.Errorf("%s doesn't encode: %w", codec.Name, err)
		}
		encoded = slices.Clone(encoded)
		if err := codec.Decode(encoded); err != nil {
			return fmt.Errorf("%s doesn't decode: %w", codec.Name, err)
		}
		cost := codecCost{Name: codec.Name, Bytes: len(encoded)}
		cost.EncodeNs, cost.EncodeAllocs = costOf(func() { _, _ = codec.Encode() })
		cost.DecodeNs, cost.DecodeAllocs = costOf(func() { _ = codec.Decode(encoded) })
		costs = append(costs, cost)
	}
	return printLine(map[string]any{"codecs": costs})
}

// costOf returns nanoseconds (the median of many batches, each long enough to pay for its own garbage) and allocations
// of one run.
func costOf(run func()) (nanos, allocs float64) {
	times := make([]float64, batches)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range times {
		begin := time.Now()
		for range perBatch {
			run()
		}
		times[i] = float64(time.Since(begin)) / perBatch
	}
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	allocs = float64(after.Mallocs-before.Mallocs) / (batches * perBatch)
	return round(times[batches/2]), round(allocs)
}

func round(value float64) float64 {
	return math.Round(value*10) / 10
}
