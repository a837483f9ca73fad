// The benchmark's service and its callers on Apache Thrift's library for Go.
package main

import (
	"context"

	"github.com/apache/thrift/lib/go/thrift"
	"switchboard.example/bench/gopeer"
	"switchboard.example/bench/thrift-go/thriftbench"
)

//go:generate thrift --gen go:package_prefix=switchboard.example/bench/thrift-go/,skip_remote -out . ../../../crates/switchboard-cli/thrift/bench.thrift
//go:generate gofmt -w thriftbench

var settings = &thrift.TConfiguration{
	ConnectTimeout: gopeer.Timeout,
	SocketTimeout:  gopeer.Timeout,
}

func main() {
	gopeer.Main(gopeer.Rival{Serve: serve, Dial: dial, Codecs: codecs})
}

// protocols and transports are the best of what was tried; peer.json has the numbers.
func protocols() thrift.TProtocolFactory {
	return thrift.NewTCompactProtocolFactoryConf(settings)
}

// transports returns frames, which a buffer below turns into one write each.
func transports() thrift.TTransportFactory {
	return thrift.NewTFramedTransportFactoryConf(thrift.NewTBufferedTransportFactory(4096), settings)
}

func codecs() []gopeer.Codec {
	return []gopeer.Codec{
		codec("thrift binary", thrift.NewTBinaryProtocolFactoryConf(settings)),
		codec("thrift compact", protocols()),
	}
}

// codec writes to and reads from a buffer of its own, as a framed transport does.
func codec(name string, protocols thrift.TProtocolFactory) gopeer.Codec {
	message := gopeer.Fill(&thriftbench.BenchmarkMessage{})
	buffer := thrift.NewTMemoryBuffer()
	protocol := protocols.GetProtocol(buffer)
	return gopeer.Codec{
		Name: name,
		Encode: func() ([]byte, error) {
			buffer.Reset()
			err := message.Write(context.Background(), protocol)
			return buffer.Bytes(), err
		},
		Decode: func(encoded []byte) error {
			buffer.Reset()
			buffer.Write(encoded)
			return thriftbench.NewBenchmarkMessage().Read(context.Background(), protocol)
		},
	}
}
