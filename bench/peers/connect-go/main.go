// The benchmark's service and its callers on connect-go: its own protocol, on HTTP/2 without TLS.
package main

import (
	"runtime/debug"

	"google.golang.org/protobuf/proto"
	"switchboard.example/bench/connect-go/benchpb"
	"switchboard.example/bench/gopeer"
)

//go:generate protoc -I ../gopeer --go_out=benchpb --go_opt=paths=source_relative,Mbench.proto=switchboard.example/bench/connect-go/benchpb --connect-go_out=benchpb --connect-go_opt=paths=source_relative,Mbench.proto=switchboard.example/bench/connect-go/benchpb,package_suffix,simple=true bench.proto

// The best of what was tried; peer.json has the numbers.
const (
	gcPercent   = 400
	connections = 1
	streams     = 10_000 // on one connection; by default callers beyond 250 wait
)

func main() {
	debug.SetGCPercent(gcPercent)
	gopeer.Main(gopeer.Rival{Serve: serve, Dial: dial, OpenStream: openStream, Codecs: codecs})
}

func codecs() []gopeer.Codec {
	message := gopeer.Fill(&benchpb.BenchmarkMessage{})
	return []gopeer.Codec{{
		Name:   "golang protobuf",
		Encode: func() ([]byte, error) { return proto.Marshal(message) },
		Decode: func(encoded []byte) error { return proto.Unmarshal(encoded, &benchpb.BenchmarkMessage{}) },
	}}
}
