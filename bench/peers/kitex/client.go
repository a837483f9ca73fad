package main

import (
	"bytes"
	"context"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/transport"
	"switchboard.example/bench/gopeer"
	"switchboard.example/bench/kitex/kitex_gen/thriftbench"
	"switchboard.example/bench/kitex/kitex_gen/thriftbench/bench"
)

// dial makes a client for each connection, which the first call opens, or for each address if each call opens its own.
func dial(options gopeer.Options) (gopeer.Client, error) {
	pool := client.WithMuxConnection(1)
	if options.Mode == gopeer.PerCall {
		pool = client.WithShortConnection()
		options.Mode, options.Connections = gopeer.Unary, len(options.Addresses)
	}
	library := gopeer.Library[bench.Client]{
		Open: func(address string) (bench.Client, error) {
			return bench.NewClient(
				"bench",
				client.WithHostPorts(address),
				client.WithTransportProtocol(transport.TTHeaderFramed),
				client.WithRPCTimeout(gopeer.Timeout),
				pool,
			)
		},
		Close:   func(bench.Client) error { return nil }, // it has no such method
		Echo:    echo,
		Message: message,
	}
	return library.Dial(options, connections)
}

func echo(payload []byte) func(bench.Client) error {
	request := &thriftbench.EchoMessage{Payload: payload}
	return func(c bench.Client) error {
		reply, err := c.Echo(context.Background(), request)
		if err == nil && !bytes.Equal(reply.Payload, payload) {
			err = gopeer.ErrReply
		}
		return err
	}
}

func message() func(bench.Client) error {
	request := gopeer.Fill(thriftbench.NewBenchmarkMessage())
	return func(c bench.Client) error {
		reply, err := c.Message(context.Background(), request)
		if err == nil && (reply.Field1 != "OK" || reply.Field2 != 100 || reply.Field9 != gopeer.Text) {
			err = gopeer.ErrReply
		}
		return err
	}
}
