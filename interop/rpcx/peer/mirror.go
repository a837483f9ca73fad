package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/smallnest/rpcx/client"
)

// runMirror calls test.Mirror/Show, which answers with what it gets, on one connection for each codec.
func runMirror(address string) {
	const callers, calls = 4, 250
	for name, codec := range codecs {
		options := client.DefaultOption
		options.SerializeType = codec
		network, where, _ := strings.Cut(address, "@")
		c := client.NewClient(options)
		if err := c.Connect(network, where); err != nil {
			fail("%s: connect: %v", name, err)
		}
		var group sync.WaitGroup
		for caller := range int64(callers) {
			group.Go(func() {
				for call := range int64(calls) {
					sent, got := Args{caller, call}, Args{}
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					err := c.Call(ctx, "test.Mirror", "Show", &sent, &got)
					cancel()
					if err != nil || got != sent {
						fail("%s: %v came for %v: %v", name, got, sent, err)
					}
				}
			})
		}
		group.Wait()
		c.Close()
	}
	fmt.Printf("%d calls\n", len(codecs)*callers*calls)
}
