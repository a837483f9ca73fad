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

func main() {
	if n := env("GC", 0); n != 0 {
		debug.SetGCPercent(n)
	}
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
