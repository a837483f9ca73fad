package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"switchboard.example/bench/connect-go/benchpb"
)

type service struct{}

func serve(listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle(benchpb.NewBenchHandler(service{}))
	server := &http.Server{Handler: mux, Protocols: cleartext(), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}}
	return server.Serve(listener)
}

// cleartext is HTTP/2 without TLS.
func cleartext() *http.Protocols {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &protocols
}

func (service) Echo(_ context.Context, message *benchpb.EchoMessage) (*benchpb.EchoMessage, error) {
	return message, nil
}

func (service) Message(_ context.Context, message *benchpb.BenchmarkMessage) (*benchpb.BenchmarkMessage, error) {
	message.Field1 = proto.String("OK")
	message.Field2 = proto.Int32(100)
	return message, nil
}

func (service) Stream(_ context.Context, stream *connect.BidiStream[benchpb.EchoMessage, benchpb.EchoMessage]) error {
	for {
		message, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(message); err != nil {
			return err
		}
	}
}
