// The benchmark's service and its callers on rpcx.
package main

import (
	"runtime/debug"

	"github.com/smallnest/rpcx/codec"
	"github.com/smallnest/rpcx/log"
	"switchboard.example/bench/gogopb"
	"switchboard.example/bench/gopeer"
)

const service = "bench.v1.Bench"

// The best of what was tried; peer.json has the numbers.
const (
	gcPercent   = 400
	connections = 1
	workers     = 128
	queued      = 100_000 // calls that wait for a worker
)

func main() {
	debug.SetGCPercent(gcPercent)
	log.SetDummyLogger() // it writes to standard output
	gopeer.Main(gopeer.Rival{Serve: serve, Dial: dial, Codecs: codecs})
}

func codecs() []gopeer.Codec {
	message := gopeer.Fill(&gogopb.BenchmarkMessage{})
	protobuf := codec.PBCodec{}
	return []gopeer.Codec{{
		Name:   "gogo protobuf",
		Encode: func() ([]byte, error) { return protobuf.Encode(message) },
		Decode: func(encoded []byte) error { return protobuf.Decode(encoded, &gogopb.BenchmarkMessage{}) },
	}}
}
