package main

import (
	"bytes"
	"context"
	"sync"

	"github.com/apache/thrift/lib/go/thrift"
	"switchboard.example/bench/gopeer"
	"switchboard.example/bench/thrift-go/thriftbench"
)

// connection carries one call at a time: the lock lets callers take turns if there are fewer connections than callers.
type connection struct {
	lock      sync.Mutex
	bench     *thriftbench.BenchClient
	transport thrift.TTransport
}

// dial opens a connection for each caller, as a pool of clients would end up having.
func dial(options gopeer.Options) (gopeer.Client, error) {
	library := gopeer.Library[*connection]{
		Open:    open,
		Close:   func(c *connection) error { return c.transport.Close() },
		Echo:    echo,
		Message: message,
	}
	return library.Dial(options, options.Callers)
}

func open(address string) (*connection, error) {
	transport, err := transports().GetTransport(thrift.NewTSocketConf(address, settings))
	if err != nil {
		return nil, err
	}
	protocol := protocols().GetProtocol(transport)
	c := &connection{
		bench:     thriftbench.NewBenchClient(thrift.NewTStandardClient(protocol, protocol)),
		transport: transport,
	}
	return c, transport.Open()
}

func echo(payload []byte) func(*connection) error {
	request := &thriftbench.EchoMessage{Payload: payload}
	return func(c *connection) error {
		c.lock.Lock()
		defer c.lock.Unlock()
		reply, err := c.bench.Echo(context.Background(), request)
		if err == nil && !bytes.Equal(reply.Payload, payload) {
			err = gopeer.ErrReply
		}
		return err
	}
}

func message() func(*connection) error {
	request := gopeer.Fill(&thriftbench.BenchmarkMessage{})
	return func(c *connection) error {
		c.lock.Lock()
		defer c.lock.Unlock()
		reply, err := c.bench.Message(context.Background(), request)
		if err == nil && (reply.Field1 != "OK" || reply.Field2 != 100 || reply.Field9 != gopeer.Text) {
			err = gopeer.ErrReply
		}
		return err
	}
}
