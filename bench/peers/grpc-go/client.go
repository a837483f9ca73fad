package main

import (
	"bytes"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"switchboard.example/bench/gopeer"
	"switchboard.example/bench/grpc-go/benchpb"
)

// channel is a connection with the generated client on it.
type channel struct {
	benchpb.BenchClient
	connection *grpc.ClientConn
}

func dial(options gopeer.Options) (gopeer.Client, error) {
	library := gopeer.Library[channel]{
		Open:    open,
		Close:   func(c channel) error { return c.connection.Close() },
		Echo:    echo,
		Message: message,
	}
	return library.Dial(options, connections)
}

func open(address string) (channel, error) {
	connection, err := grpc.NewClient(
		"passthrough:"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax)),
	)
	if err != nil {
		return channel{}, err
	}
	connection.Connect()
	return channel{benchpb.NewBenchClient(connection), connection}, nil
}

func echo(payload []byte) func(channel) error {
	request := &benchpb.EchoMessage{Payload: payload}
	return func(c channel) error {
		ctx, cancel := context.WithTimeout(context.Background(), gopeer.Timeout)
		defer cancel()
		reply, err := c.Echo(ctx, request)
		if err == nil && !bytes.Equal(reply.Payload, payload) {
			err = gopeer.ErrReply
		}
		return err
	}
}

func message() func(channel) error {
	request := gopeer.Fill(&benchpb.BenchmarkMessage{})
	return func(c channel) error {
		ctx, cancel := context.WithTimeout(context.Background(), gopeer.Timeout)
		defer cancel()
		reply, err := c.Message(ctx, request)
		if err == nil && (reply.GetField1() != "OK" || reply.GetField2() != 100 || reply.GetField9() != gopeer.Text) {
			err = gopeer.ErrReply
		}
		return err
	}
}
