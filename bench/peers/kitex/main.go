// The benchmark's service and its callers on Kitex: Thrift, with Kitex's own header and multiplexing.
package main

import (
	"runtime/debug"

	"github.com/cloudwego/kitex/pkg/klog"
	"switchboard.example/bench/gopeer"
	"switchboard.example/bench/kitex/kitex_gen/thriftbench"
)

//go:generate kitex -module switchboard.example/bench/kitex ../../../crates/switchboard-cli/thrift/bench.thrift

// The best of what was tried; peer.json has the numbers.
const (
	gcPercent   = 400
	connections = 2
)

func main() {
	debug.SetGCPercent(gcPercent)
	klog.SetLevel(klog.LevelError)
	gopeer.Main(gopeer.Rival{Serve: serve, Dial: dial, Codecs: codecs})
}

func codecs() []gopeer.Codec {
	message := gopeer.Fill(thriftbench.NewBenchmarkMessage())
	return []gopeer.Codec{{
		Name: "kitex fast codec (thrift binary)",
		Encode: func() ([]byte, error) {
			buffer := make([]byte, message.BLength())
			return buffer[:message.FastWriteNocopy(buffer, nil)], nil
		},
		Decode: func(encoded []byte) error {
			_, err := thriftbench.NewBenchmarkMessage().FastRead(encoded)
			return err
		},
	}}
}
