package main

import (
	"bytes"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"switchboard.example/bench/gopeer"
	"switchboard.example/bench/grpc-go/benchpb"
)

// client makes calls on connections that callers share, or on a new one for each call if there are none.
type client struct {
	options     gopeer.Options
	connections []*grpc.ClientConn
}

func connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(
		"passthrough:"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
	)
}

func dial(options gopeer.Options) (gopeer.Client, error) {
	c := &client{options: options}
	if options.Mode == gopeer.PerCall {
		return c, nil
	}
	for _, address := range options.Spread(connections) {
		connection, err := connect(address)
		if err != nil {
			return nil, err
		}
		connection.Connect()
		c.connections = append(c.connections, connection)
	}
	return c, nil
}

func (c *client) Close() {
	for _, connection := range c.connections {
		connection.Close()
	}
}

func (c *client) Caller(i int) func() error {
	call := c.echo()
	if c.options.Call == "message" {
		call = message()
	}
	if c.options.Mode == gopeer.PerCall {
		address := c.options.Addresses[i%len(c.options.Addresses)]
		return func() error {
			connection, err := connect(address)
			if err != nil {
				return err
			}
			defer connection.Close()
			return call(benchpb.NewBenchClient(connection))
		}
	}
	bench := benchpb.NewBenchClient(c.connections[i%len(c.connections)])
	return func() error { return call(bench) }
}

func (c *client) echo() func(benchpb.BenchClient) error {
	request := &benchpb.EchoMessage{Payload: c.options.Payload()}
	return func(bench benchpb.BenchClient) error {
		ctx, cancel := context.WithTimeout(context.Background(), gopeer.Timeout)
		defer cancel()
		reply, err := bench.Echo(ctx, request)
		if err == nil && !bytes.Equal(reply.Payload, request.Payload) {
			err = gopeer.ErrReply
		}
		return err
	}
}

func message() func(benchpb.BenchClient) error {
	request := gopeer.Fill(&benchpb.BenchmarkMessage{})
	return func(bench benchpb.BenchClient) error {
		ctx, cancel := context.WithTimeout(context.Background(), gopeer.Timeout)
		defer cancel()
		reply, err := bench.Message(ctx, request)
		if err == nil && (reply.GetField1() != "OK" || reply.GetField2() != 100 || reply.GetField129() != request.GetField129()) {
			err = gopeer.ErrReply
		}
		return err
	}
}
