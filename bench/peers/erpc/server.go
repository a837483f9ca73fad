package main

import (
	"net"

	"github.com/andeya/erpc/v7"
	"switchboard.example/bench/gogopb"
)

// Bench is the service; its calls are /bench/echo and /bench/message.
type Bench struct {
	erpc.CallCtx
}

func serve(listener net.Listener) error {
	peer := newPeer()
	peer.RouteCall(new(Bench))
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		if _, status := peer.ServeConn(connection); !status.OK() {
			return status.Cause()
		}
	}
}

func (*Bench) Echo(message *gogopb.EchoMessage) (*gogopb.EchoMessage, *erpc.Status) {
	return message, nil
}

func (*Bench) Message(message *gogopb.BenchmarkMessage) (*gogopb.BenchmarkMessage, *erpc.Status) {
	message.Field1 = "OK"
	message.Field2 = 100
	return message, nil
}
