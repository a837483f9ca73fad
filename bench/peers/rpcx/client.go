package main

import (
	"bytes"
	"context"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/protocol"
	"switchboard.example/bench/gogopb"
	"switchboard.example/bench/gopeer"
)

func dial(options gopeer.Options) (gopeer.Client, error) {
	library := gopeer.Library[*client.Client]{
		Open:    open,
		Close:   (*client.Client).Close,
		Echo:    echo,
		Message: message,
	}
	return library.Dial(options, connections)
}

func open(address string) (*client.Client, error) {
	options := client.DefaultOption
	options.SerializeType = protocol.ProtoBuffer
	connection := client.NewClient(options)
	return connection, connection.Connect("tcp", address)
}

func echo(payload []byte) func(*client.Client) error {
	request := &gogopb.EchoMessage{Payload: payload}
	return func(connection *client.Client) error {
		ctx, cancel := context.WithTimeout(context.Background(), gopeer.Timeout)
		defer cancel()
		var reply gogopb.EchoMessage
		err := connection.Call(ctx, service, "Echo", request, &reply)
		if err == nil && !bytes.Equal(reply.Payload, payload) {
			err = gopeer.ErrReply
		}
		return err
	}
}

func message() func(*client.Client) error {
	request := gopeer.Fill(&gogopb.BenchmarkMessage{})
	return func(connection *client.Client) error {
		ctx, cancel := context.WithTimeout(context.Background(), gopeer.Timeout)
		defer cancel()
		var reply gogopb.BenchmarkMessage
		err := connection.Call(ctx, service, "Message", request, &reply)
		if err == nil && (reply.Field1 != "OK" || reply.Field2 != 100 || reply.Field9 != gopeer.Text) {
			err = gopeer.ErrReply
		}
		return err
	}
}
