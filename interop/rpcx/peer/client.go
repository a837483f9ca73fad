package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/share"
)

const patience = 20 * time.Second

// A case is one thing that a client does with a connection of its own.
type testCase struct {
	name string
	run  func(*connection) error
}

type connection struct {
	*client.Client
	address string
	options client.Option
}

var codecs = map[string]protocol.SerializeType{
	"json":    protocol.JSON,
	"msgpack": protocol.MsgPack,
}

func runCases(cases []setting, addresses []string) {
	failures, count := 0, 0
	for _, address := range addresses {
		for _, one := range cases {
			count++
			if err := one.against(address); err != nil {
				failures++
				fmt.Printf("FAILED %s %s: %v\n", address, one.name, err)
			}
		}
	}
	fmt.Printf("%d of %d cases\n", count-failures, count)
	if failures > 0 {
		fail("%d cases failed", failures)
	}
}

// setting is a case with the options that its connection has.
type setting struct {
	testCase
	options client.Option
}

func (s setting) against(address string) error {
	address, isTLS := strings.CutPrefix(address, "tls+")
	if isTLS {
		s.options.TLSConfig = trusting()
	}
	network, where, _ := strings.Cut(address, "@")
	c := client.NewClient(s.options)
	if err := c.Connect(network, where); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	return s.run(&connection{c, address, s.options})
}

func cases() []setting {
	var all []setting
	add := func(codec string, options client.Option, cases ...testCase) {
		for _, one := range cases {
			one.name += " " + codec
			all = append(all, setting{one, options})
		}
	}
	for name, codec := range codecs {
		options := client.DefaultOption
		options.SerializeType = codec
		add(name, options,
			testCase{"mul", mul},
			testCase{"error", divideByZero},
			testCase{"unknown", unknown},
			testCase{"metadata", metadata},
			testCase{"many at once", many},
			testCase{"one-way", oneway},
			testCase{"deadline", deadline},
			testCase{"aliases", alias},
			testCase{"protobuf service", mapped},
			testCase{"pushed", pushed},
			testCase{"files", files},
			testCase{"streams", streams},
		)
		options.CompressType = protocol.Gzip
		add(name+" gzip", options, testCase{"mul", mul}, testCase{"large", mirror})
		options.CompressType = protocol.None
		options.Heartbeat = true
		options.HeartbeatInterval = 20 * time.Millisecond
		options.MaxWaitForHeartbeat = patience
		add(name, options, testCase{"heartbeats", heartbeats})
	}
	options := client.DefaultOption
	options.SerializeType = protocol.ProtoBuffer
	add("proto", options,
		testCase{"shout", shout("interop.v1.Echo")},
		testCase{"short name", shout("Echo")},
		testCase{"wrong codec", wrongCodec},
	)
	options.CompressType = protocol.Gzip
	add("proto gzip", options, testCase{"shout", shout("interop.v1.Echo")})
	options = client.DefaultOption
	options.SerializeType = protocol.SerializeNone
	add("raw", options, testCase{"shout", shoutRaw}, testCase{"reverse", reverse})
	options.CompressType = protocol.Gzip
	add("raw gzip", options, testCase{"reverse", reverse})
	options = client.DefaultOption
	options.SerializeType = protocol.Thrift
	add("thrift", options, testCase{"quotients", quotients})
	return all
}

func (c *connection) call(path, method string, args, reply any) error {
	return c.callWith(nil, path, method, args, reply)
}

func (c *connection) callWith(metadata map[string]string, path, method string, args, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if metadata != nil {
		ctx = context.WithValue(ctx, share.ReqMetaDataKey, metadata)
	}
	return c.Call(ctx, path, method, args, reply)
}

func mul(c *connection) error {
	var reply Reply
	if err := c.call("Arith", "Mul", &Args{A: 10, B: -2_000_000_000}, &reply); err != nil {
		return err
	}
	return equal(reply.C, -20_000_000_000)
}

func divideByZero(c *connection) error {
	err := c.call("Arith", "Div", &Args{A: 1}, &Reply{})
	if err == nil {
		return errors.New("no error")
	}
	if err := equal(err.Error(), "invalid_argument: divide by zero"); err != nil {
		return err
	}
	// The connection goes on.
	return mul(c)
}

func unknown(c *connection) error {
	for _, one := range [][3]string{
		{"Missing", "Mul", "rpcx: can't find service Missing"},
		{"Arith", "Nothing", "rpcx: can't find method Nothing"},
	} {
		err := c.call(one[0], one[1], &Args{}, &Reply{})
		if err == nil || err.Error() != one[2] {
			return fmt.Errorf("got %v, want %s", err, one[2])
		}
	}
	return nil
}

func metadata(c *connection) error {
	sent := map[string]string{share.AuthKey: "bearer sesame", "X-Tenant": "ours", "city": "Köln"}
	answered := map[string]string{}
	ctx := context.WithValue(context.Background(), share.ReqMetaDataKey, sent)
	ctx = context.WithValue(ctx, share.ResMetaDataKey, answered)
	var said Said
	if err := c.Call(ctx, "Arith", "Describe", &Empty{}, &said); err != nil {
		return err
	}
	want := map[string]string{"authorization": "bearer sesame", "x-tenant": "ours", "city-bin": "Köln"}
	if err := equal(said.Metadata, want); err != nil {
		return err
	}
	return equal(answered["answered-by"], "switchboard")
}

func many(c *connection) error {
	var group sync.WaitGroup
	failures := make(chan error, 500)
	for n := range int64(500) {
		group.Go(func() {
			var reply Reply
			err := c.call("Arith", "Mul", &Args{A: n, B: 3}, &reply)
			if err == nil {
				err = equal(reply.C, 3*n)
			}
			if err != nil {
				failures <- err
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

// oneway sends a call without a response; frames of a connection are handled in order.
func oneway(c *connection) error {
	var before, after int64
	if err := c.call("Arith", "Noted", &Empty{}, &before); err != nil {
		return err
	}
	for range 3 {
		// A call without a place for its reply is one-way. Errors are not answered either.
		if err := c.call("Arith", "Note", &Empty{}, nil); err != nil {
			return err
		}
		if err := c.call("Arith", "Nothing", &Empty{}, nil); err != nil {
			return err
		}
	}
	if err := c.call("Arith", "Noted", &Empty{}, &after); err != nil {
		return err
	}
	if after < before+3 {
		return fmt.Errorf("%d of 3 arrived", after-before)
	}
	return nil
}

// deadline sends what XClient does: the time that is left, after which the server ends the call.
func deadline(c *connection) error {
	err := c.callWith(map[string]string{share.ServerTimeout: "30"}, "Arith", "Sleep", &Pause{Ms: 60_000}, &Empty{})
	if err == nil || !strings.HasPrefix(err.Error(), "deadline_exceeded: ") {
		return fmt.Errorf("got %v, want deadline_exceeded", err)
	}
	err = c.callWith(map[string]string{share.ServerTimeout: "0"}, "Arith", "Mul", &Args{}, &Reply{})
	if err == nil || !strings.HasPrefix(err.Error(), "deadline_exceeded: ") {
		return fmt.Errorf("got %v for no time at all, want deadline_exceeded", err)
	}
	return nil
}

func alias(c *connection) error {
	var reply Reply
	if err := c.call("legacy.Maths", "Times", &Args{A: 6, B: 7}, &reply); err != nil {
		return err
	}
	return equal(reply.C, 42)
}

func shout(path string) func(*connection) error {
	return func(c *connection) error {
		note := Note{Text: strings.Repeat("quiet ", 400), Number: 1 << 40, Data: []byte{0, 1, 255}}
		var reply Note
		if err := c.call(path, "Shout", &note, &reply); err != nil {
			return err
		}
		note.Text = strings.ToUpper(note.Text)
		return equal(reply, note)
	}
}

func mapped(c *connection) error {
	var reply Mapped
	if err := c.call("Echo", "Shout", &Mapped{"quiet", "1099511627776", "AAH/"}, &reply); err != nil {
		return err
	}
	return equal(reply, Mapped{"QUIET", "1099511627776", "AAH/"})
}

// shoutRaw sends a message that the caller has encoded.
func shoutRaw(c *connection) error {
	request, _ := (&Note{Text: "quiet"}).Marshal()
	var answer []byte
	if err := c.call("interop.v1.Echo", "Shout", request, &answer); err != nil {
		return err
	}
	var reply Note
	if err := reply.Unmarshal(answer); err != nil {
		return err
	}
	if err := equal(reply.Text, "QUIET"); err != nil {
		return err
	}
	err := c.call("Arith", "Mul", request, &answer)
	if err == nil || !strings.Contains(err.Error(), "it has 2 fields, and raw bytes are one") {
		return fmt.Errorf("got %v for raw bytes to a method with two arguments", err)
	}
	return nil
}

// reverse sends bytes to a method that takes some and answers some.
func reverse(c *connection) error {
	for _, size := range []int{0, 3, 100_000} {
		request := append(bytes.Repeat([]byte{1}, size), 2)
		var answer []byte
		if err := c.call("Arith", "Reverse", request, &answer); err != nil {
			return err
		}
		if err := equal(answer, append([]byte{2}, bytes.Repeat([]byte{1}, size)...)); err != nil {
			return err
		}
	}
	return nil
}

// quotients calls methods with a struct each way, and with what Thrift makes of other arguments and results.
func quotients(c *connection) error {
	for _, path := range []string{"Quotients", "interop.quotients.Quotients"} {
		var quotient Quotient
		if err := c.call(path, "Divide", &Factors{A: -84, B: 2}, &quotient); err != nil {
			return err
		}
		var sum Sum
		if err := c.call(path, "Add", &Factors{A: 1 << 40, B: 2}, &sum); err != nil {
			return err
		}
		if err := errors.Join(equal(quotient.C, -42), equal(sum.Success, 1<<40+2)); err != nil {
			return err
		}
	}
	err := c.call("Quotients", "Divide", &Factors{A: 1}, &Quotient{})
	if err == nil || err.Error() != "invalid_argument: divide by zero" {
		return fmt.Errorf("got %v, want the text of the exception", err)
	}
	err = c.call("Arith", "Mul", &Factors{}, &Quotient{})
	if err == nil || !strings.HasPrefix(err.Error(), "unimplemented: ") {
		return fmt.Errorf("got %v for Thrift to a service without, want unimplemented", err)
	}
	return nil
}

func wrongCodec(c *connection) error {
	err := c.call("Arith", "Mul", &Note{}, &Note{})
	if err == nil || !strings.Contains(err.Error(), "unimplemented: ") {
		return fmt.Errorf("got %v, want unimplemented", err)
	}
	return nil
}

func mirror(c *connection) error {
	blob := Blob{Text: strings.Repeat("large ", 1000)}
	if c.options.SerializeType == protocol.MsgPack {
		blob.Data = bytes.Repeat([]byte{1, 2, 3, 200}, 50_000)
	}
	var reply Blob
	if err := c.call("Arith", "Mirror", &blob, &reply); err != nil {
		return err
	}
	return equal(reply, blob)
}

// heartbeats are compared with what was sent by the client, which ends the connection if one is not answered.
func heartbeats(c *connection) error {
	if err := c.call("Arith", "Sleep", &Pause{Ms: 200}, &Empty{}); err != nil {
		return err
	}
	var reply int64
	if err := c.call("", "", time.Now().UnixNano(), &reply); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if c.IsShutdown() || c.IsClosing() {
		return errors.New("the connection was closed")
	}
	return mul(c)
}

// pushed subscribes, and reads what the server sends on its own, at once and after the reply.
func pushed(c *connection) error {
	messages := make(chan *protocol.Message, 10)
	c.RegisterServerMessageChan(messages)
	if err := c.call("Arith", "Subscribe", &Subscription{Count: 5}, &Empty{}); err != nil {
		return err
	}
	for n := range 5 {
		select {
		case message := <-messages:
			want := fmt.Sprintf("News/Flash number=%d: breaking %d", n, n)
			number := message.Metadata["number"]
			got := fmt.Sprintf("%s/%s number=%s: %s", message.ServicePath, message.ServiceMethod, number, message.Payload)
			if err := equal(got, want); err != nil {
				return err
			}
		case <-time.After(patience):
			return fmt.Errorf("%d of 5 messages came", n)
		}
	}
	return mul(c)
}

func equal(got, want any) error {
	if number, ok := want.(int); ok {
		want = int64(number)
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
