package main

import (
	"bytes"
	"context"
	"fmt"

	"connectrpc.com/connect"
	"switchboard.example/bench/connect-go/benchpb"
	"switchboard.example/bench/gopeer"
)

type stream struct {
	*connect.BidiStreamForClientSimple[benchpb.EchoMessage, benchpb.EchoMessage]
	cancel  context.CancelFunc
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
	ctx, cancel := context.WithCancel(context.Background())
	opened, err := channel.Stream(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	return stream{opened, cancel, &benchpb.EchoMessage{Payload: options.Payload()}}, nil
}

func (s stream) Send() error {
	return s.BidiStreamForClientSimple.Send(s.message)
}

func (s stream) Receive() error {
	reply, err := s.BidiStreamForClientSimple.Receive()
	if err == nil && !bytes.Equal(reply.Payload, s.message.Payload) {
		err = gopeer.ErrReply
	}
	return err
}

func (s stream) Close() {
	s.cancel()
}
