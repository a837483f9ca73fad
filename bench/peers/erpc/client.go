package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/andeya/erpc/v7"
	"github.com/andeya/erpc/v7/codec"
	"switchboard.example/bench/gogopb"
	"switchboard.example/bench/gopeer"
)

func dial(options gopeer.Options) (gopeer.Client, error) {
	peer := erpc.NewPeer(erpc.PeerConfig{DefaultBodyCodec: codec.NAME_PROTOBUF, LocalIP: source()})
	library := gopeer.Library[erpc.Session]{
		Open: func(address string) (erpc.Session, error) {
			session, status := peer.Dial(address)
			return session, failure(status)
		},
		Close:   erpc.Session.Close,
		Echo:    echo,
		Message: message,
	}
	return library.Dial(options, connections)
}

// source is an address of the loopback interface that no other process calls from. erpc binds before it
// connects, and then the system reserves the port for a minute for other binds to the same address: with a
// connection for each call it used up the ports of 127.0.0.1, and neither it nor any server after it could
// bind.
func source() string {
	id := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 200+id>>16&31, id>>8&255, id&255)
}

func failure(status *erpc.Status) error {
	if status.OK() {
		return nil
	}
	return errors.New(status.String())
}

// call gives each call a deadline, of which erpc heeds the sending only: it waits for the reply without end.
func call(session erpc.Session, method string, request, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), gopeer.Timeout)
	defer cancel()
	return failure(session.Call(method, request, reply, erpc.WithContext(ctx)).Status())
}

func echo(payload []byte) func(erpc.Session) error {
	request := &gogopb.EchoMessage{Payload: payload}
	return func(session erpc.Session) error {
		var reply gogopb.EchoMessage
		err := call(session, "/bench/echo", request, &reply)
		if err == nil && !bytes.Equal(reply.Payload, payload) {
			err = gopeer.ErrReply
		}
		return err
	}
}

func message() func(erpc.Session) error {
	request := gopeer.Fill(&gogopb.BenchmarkMessage{})
	return func(session erpc.Session) error {
		var reply gogopb.BenchmarkMessage
		err := call(session, "/bench/message", request, &reply)
		if err == nil && (reply.Field1 != "OK" || reply.Field2 != 100 || reply.Field9 != gopeer.Text) {
			err = gopeer.ErrReply
		}
		return err
	}
}
