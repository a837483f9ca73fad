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
	channel channel
	message *benchpb.EchoMessage
}

func openStream(options gopeer.Options) (gopeer.Stream, error) {
	if options.Call != "echo" {
		return nil, fmt.Errorf("the stream only echoes")
	}
	channel, err := open(options.Addresses[0])
	if err != nil {
		return nil, err
	}
	opened, err := channel.Stream(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	return stream{opened, channel, &benchpb.EchoMessage{Payload: options.Payload()}}, nil
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
	_ = s.channel.connection.Close()
}
