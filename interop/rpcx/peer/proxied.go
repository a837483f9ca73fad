package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/share"
)

// proxied are the cases with a proxy between the client and the server of this program, which forwards the
// bytes of every codec.
func proxied() []setting {
	var all []setting
	add := func(codec protocol.SerializeType, compression protocol.CompressType, cases ...testCase) {
		options := client.DefaultOption
		options.SerializeType, options.CompressType = codec, compression
		for _, one := range cases {
			one.name += fmt.Sprintf(" codec %d, compression %d", codec, compression)
			all = append(all, setting{one, options})
		}
	}
	for _, codec := range codecs {
		add(codec, protocol.None,
			testCase{"mul", mul},
			testCase{"error", failing},
			testCase{"unknown", unknown},
			testCase{"metadata", forwarded},
			testCase{"many at once", many},
			testCase{"one-way", noted},
			testCase{"deadline", ended},
			testCase{"aliases", alias},
		)
		add(codec, protocol.Gzip, testCase{"mul", mul}, testCase{"large", mirror})
	}
	shouts := testCase{"shout", shout("interop.v1.Echo")}
	add(protocol.ProtoBuffer, protocol.None, shouts)
	add(protocol.ProtoBuffer, protocol.Gzip, shouts)
	add(protocol.SerializeNone, protocol.None, testCase{"reverse", reverse})
	add(protocol.Thrift, protocol.None, testCase{"divide", divide})
	return all
}

func failing(c *connection) error {
	err := c.call("Arith", "Div", &Args{A: 1}, &Reply{})
	if err == nil || !strings.Contains(err.Error(), "divide by zero") {
		return fmt.Errorf("got %v, want a division by zero", err)
	}
	return mul(c)
}

func forwarded(c *connection) error {
	answered := map[string]string{}
	sent := map[string]string{share.AuthKey: "Bearer sesame", "x-tenant": "ours"}
	ctx := context.WithValue(context.Background(), share.ReqMetaDataKey, sent)
	ctx = context.WithValue(ctx, share.ResMetaDataKey, answered)
	var said Said
	if err := c.Call(ctx, "Arith", "Describe", &Empty{}, &said); err != nil {
		return err
	}
	return errors.Join(equal(said.Metadata["x-tenant"], "ours"), equal(answered["answered-by"], "go"))
}

// noted sends a call without a response, and polls until it has arrived.
func noted(c *connection) error {
	var before, after int64
	if err := c.call("Arith", "Noted", &Empty{}, &before); err != nil {
		return err
	}
	for range 3 {
		if err := c.call("Arith", "Note", &Empty{}, nil); err != nil {
			return err
		}
	}
	for began := time.Now(); after < before+3; {
		if time.Since(began) > patience {
			return fmt.Errorf("%d of 3 arrived", after-before)
		}
		if err := c.call("Arith", "Noted", &Empty{}, &after); err != nil {
			return err
		}
	}
	return nil
}

// ended is a call whose time is over while the server sleeps.
func ended(c *connection) error {
	err := c.callWith(map[string]string{share.ServerTimeout: "30"}, "Arith", "Sleep", &Pause{Ms: 60_000}, &Empty{})
	if err == nil || !strings.Contains(err.Error(), "deadline") {
		return fmt.Errorf("got %v, want a deadline that has passed", err)
	}
	return nil
}

func divide(c *connection) error {
	var quotient Quotient
	if err := c.call("interop.quotients.Quotients", "Divide", &Factors{A: -84, B: 2}, &quotient); err != nil {
		return err
	}
	return equal(quotient.C, -42)
}
