package main

import (
	"context"
	"net"

	"github.com/cloudwego/kitex/server"
	"switchboard.example/bench/kitex/kitex_gen/kitexbench"
	"switchboard.example/bench/kitex/kitex_gen/kitexbench/bench"
)

type service struct{}

func serve(listener net.Listener) error {
	return bench.NewServer(&service{}, server.WithListener(listener), server.WithMuxTransport()).Run()
}

func (*service) Echo(_ context.Context, message *kitexbench.EchoMessage) (*kitexbench.EchoMessage, error) {
	return message, nil
}

func (*service) Message(_ context.Context, message *kitexbench.BenchmarkMessage) (*kitexbench.BenchmarkMessage, error) {
	message.Field1 = "OK"
	message.Field2 = 100
	return message, nil
}
