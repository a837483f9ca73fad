package main

import (
	"fmt"
	"sync"

	"github.com/andeya/erpc/v7"
)

// runMirror calls test.Mirror/Show, which answers with what it gets, on one connection for each framing.
func runMirror(address string) {
	const callers, calls = 4, 250
	peer := erpc.NewPeer(erpc.PeerConfig{})
	for framing, protocol := range framings {
		session, status := peer.Dial(address, protocol)
		if !status.OK() {
			fail("dial %s: %s", address, status)
		}
		var group sync.WaitGroup
		for caller := range int64(callers) {
			group.Go(func() {
				for call := range int64(calls) {
					sent, got := Args{caller, call}, Args{}
					status := session.Call("/mirror/show", &sent, &got).Status()
					if !status.OK() || got != sent {
						fail("%s: %v came for %v: %s", framing, got, sent, status)
					}
				}
			})
		}
		group.Wait()
		session.Close()
	}
	fmt.Printf("%d calls\n", len(framings)*callers*calls)
}
