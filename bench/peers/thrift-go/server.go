package main

import (
	"context"
	"net"

	"github.com/apache/thrift/lib/go/thrift"
	"switchboard.example/bench/thrift-go/thriftbench"
)

type service struct{}

func serve(listener net.Listener) error {
	thrift.ServerConnectivityCheckInterval = 0 // or else each call starts a goroutine that looks whether its client is gone
	server := thrift.NewTSimpleServer4(
		thriftbench.NewBenchProcessor(service{}), listening{listener}, transports(), protocols())
	return server.Serve()
}

func (service) Echo(_ context.Context, message *thriftbench.EchoMessage) (*thriftbench.EchoMessage, error) {
	return message, nil
}

func (service) Message(_ context.Context, message *thriftbench.BenchmarkMessage) (*thriftbench.BenchmarkMessage, error) {
	message.Field1 = "OK"
	message.Field2 = 100
	return message, nil
}

// listening is a socket that listens already, as Thrift wants it.
type listening struct {
	net.Listener
}

func (l listening) Listen() error {
	return nil
}

func (l listening) Accept() (thrift.TTransport, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return thrift.NewTSocketFromConnConf(connection, nil), nil
}

func (l listening) Interrupt() error {
	return l.Close()
}
