// Command rpcx-peer is a client and a server of rpcx as its users write them.
//
//	rpcx-peer client NETWORK@ADDRESS...   makes every case against a server; exit code 1 if one fails
//	rpcx-peer server NETWORK@ADDRESS...   serves until it is ended; says where on its first line
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail("expected client or server")
	}
	switch os.Args[1] {
	case "client":
		runClient(os.Args[2:])
	case "server":
		runServer(os.Args[2:])
	default:
		fail("expected client or server")
	}
}

func fail(text string, values ...any) {
	fmt.Fprintf(os.Stderr, text+"\n", values...)
	os.Exit(1)
}
