// The benchmark's service and its callers on erpc, whose older name is teleport.
package main

import (
	"runtime/debug"

	"github.com/andeya/erpc/v7"
	"github.com/andeya/erpc/v7/codec"
	"switchboard.example/bench/gogopb"
	"switchboard.example/bench/gopeer"
)

// The best of what was tried; peer.json has the numbers.
const (
	gcPercent   = 400
	connections = 1
)

func main() {
	debug.SetGCPercent(gcPercent)
	erpc.SetLoggerLevel("OFF") // it writes to standard output
	gopeer.Main(gopeer.Rival{Serve: serve, Dial: dial, Codecs: codecs})
}

func newPeer() erpc.Peer {
	return erpc.NewPeer(erpc.PeerConfig{DefaultBodyCodec: codec.NAME_PROTOBUF})
}

func codecs() []gopeer.Codec {
	message := gopeer.Fill(&gogopb.BenchmarkMessage{})
	protobuf := codec.ProtoCodec{}
	return []gopeer.Codec{{
		Name:   "gogo protobuf",
		Encode: func() ([]byte, error) { return protobuf.Marshal(message) },
		Decode: func(encoded []byte) error { return protobuf.Unmarshal(encoded, &gogopb.BenchmarkMessage{}) },
	}}
}
