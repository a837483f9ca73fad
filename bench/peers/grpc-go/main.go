// The benchmark's service and its callers on grpc-go.
package main

import (
	"runtime/debug"

	"google.golang.org/protobuf/proto"
	"switchboard.example/bench/gopeer"
	"switchboard.example/bench/grpc-go/benchpb"
)

//go:generate protoc -I ../gopeer --go_out=benchpb --go_opt=paths=source_relative,Mbench.proto=switchboard.example/bench/grpc-go/benchpb --go-grpc_out=benchpb --go-grpc_opt=paths=source_relative,Mbench.proto=switchboard.example/bench/grpc-go/benchpb bench.proto

// The best of what was tried; peer.json has the numbers.
const (
	gcPercent   = 400
	connections = 1
	workers     = 128
	window      = 16 << 20 // a fixed window needs no pings to measure the link
)

// messageMax has room for the largest echo of the comparison, 10 MB; the default is 4 MiB.
const messageMax = 64 << 20

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
