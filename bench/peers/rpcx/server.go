package main

import (
	"net"

	"github.com/smallnest/rpcx/server"
	"switchboard.example/bench/gogopb"
)

func serve(listener net.Listener) error {
	s := server.NewServer(server.WithPool(workers, queued))
	s.DisableHTTPGateway = true // nor sniff each connection for it
	s.DisableJSONRPC = true
	s.AddHandler(service, "Echo", echoHandler)
	s.AddHandler(service, "Message", messageHandler)
	return s.ServeListener("tcp", listener)
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
