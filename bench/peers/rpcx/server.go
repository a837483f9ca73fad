package main

import (
	"context"
	"net"
	"os"
	"strconv"

	"github.com/smallnest/rpcx/server"
	"switchboard.example/bench/gogopb"
)

func env(name string, d int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return d
}

func serve(listener net.Listener) error {
	var o []server.OptionFn
	if env("ASYNC", 0) > 0 {
		o = append(o, server.WithAsyncWrite())
	}
	if n := env("POOL", 0); n > 0 {
		o = append(o, server.WithPool(n, 100000))
	}
	s := server.NewServer(o...)
	s.DisableHTTPGateway = true
	s.DisableJSONRPC = true
	if env("REFLECT", 0) > 0 {
		if err := s.RegisterName(service, new(Bench), ""); err != nil {
			return err
		}
	} else {
		s.AddHandler(service, "Echo", echoHandler)
		s.AddHandler(service, "Message", messageHandler)
	}
	return s.ServeListener("tcp", listener)
}

type Bench struct{}

func (Bench) Echo(_ context.Context, request, reply *gogopb.EchoMessage) error {
	reply.Payload = request.Payload
	return nil
}

func (Bench) Message(_ context.Context, request, reply *gogopb.BenchmarkMessage) error {
	*reply = *request
	reply.Field1 = "OK"
	reply.Field2 = 100
	return nil
}

func echoHandler(ctx *server.Context) error {
	var message gogopb.EchoMessage
	if err := ctx.Bind(&message); err != nil {
		return err
	}
	return ctx.Write(&message)
}

func messageHandler(ctx *server.Context) error {
	var message gogopb.BenchmarkMessage
	if err := ctx.Bind(&message); err != nil {
		return err
	}
	message.Field1 = "OK"
	message.Field2 = 100
	return ctx.Write(&message)
}
