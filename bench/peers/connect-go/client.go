package main

import (
	"bytes"
	"context"
	"net/http"

	"connectrpc.com/connect"
	"switchboard.example/bench/connect-go/benchpb"
	"switchboard.example/bench/gopeer"
)

// channel is an HTTP client that keeps to one connection, with the generated client on it.
type channel struct {
	benchpb.BenchClient
	transport *http.Transport
}

func dial(options gopeer.Options) (gopeer.Client, error) {
	library := gopeer.Library[channel]{
		Open:    open,
		Close:   channel.close,
		Echo:    echo,
		Message: message,
	}
	return library.Dial(options, connections)
}

func open(address string) (channel, error) {
	transport := &http.Transport{
		Protocols: cleartext(),
		HTTP2:     &http.HTTP2Config{StrictMaxConcurrentRequests: true}, // or else callers that begin together dial more
	}
	client := benchpb.NewBenchClient(
		&http.Client{Transport: transport},
		"http://"+address,
		connect.WithAcceptCompression("gzip", nil, nil), // or else the server compresses each reply
	)
	return channel{client, transport}, nil
}

func (c channel) close() error {
	c.transport.CloseIdleConnections()
	return nil
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
