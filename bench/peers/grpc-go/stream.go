package main

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/grpc"
	"switchboard.example/bench/gopeer"
	"switchboard.example/bench/grpc-go/benchpb"
)

type stream struct {
	grpc.BidiStreamingClient[benchpb.EchoMessage, benchpb.EchoMessage]
	connection *grpc.ClientConn
	message    *benchpb.EchoMessage
}

func openStream(options gopeer.Options) (gopeer.Stream, error) {
	if options.Call != "echo" {
		return nil, fmt.Errorf("the stream only echoes")
	}
	connection, err := connect(options.Addresses[0])
	if err != nil {
		return nil, err
	}
	opened, err := benchpb.NewBenchClient(connection).Stream(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	return stream{opened, connection, &benchpb.EchoMessage{Payload: options.Payload()}}, nil
}

func (s stream) Send() error {
	return s.BidiStreamingClient.Send(s.message)
}

func (s stream) Receive() error {
	reply, err := s.Recv()
	if err == nil && !bytes.Equal(reply.Payload, s.message.Payload) {
		err = gopeer.ErrReply
	}
	return err
}

func (s stream) Close() {
	s.connection.Close()
}
