package main

import (
	"context"
	"net"

	"github.com/cloudwego/kitex/server"
	"switchboard.example/bench/kitex/kitex_gen/thriftbench"
	"switchboard.example/bench/kitex/kitex_gen/thriftbench/bench"
)

type service struct{}

func serve(listener net.Listener) error {
	return bench.NewServer(&service{}, server.WithListener(listener), server.WithMuxTransport()).Run()
}

func (*service) Echo(_ context.Context, message *thriftbench.EchoMessage) (*thriftbench.EchoMessage, error) {
	return message, nil
}

func (*service) Message(_ context.Context, message *thriftbench.BenchmarkMessage) (*thriftbench.BenchmarkMessage, error) {
	message.Field1 = "OK"
	message.Field2 = 100
	return message, nil
}
