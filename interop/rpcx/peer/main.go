// Command rpcx-peer is a client and a server of rpcx as its users write them.
//
//	rpcx-peer client NETWORK@ADDRESS...   makes every case against a server; exit code 1 if one fails
//	rpcx-peer proxied NETWORK@ADDRESS...  makes those that hold of such a server behind a proxy
//	rpcx-peer mirror NETWORK@ADDRESS      makes some thousand calls of one method that answers with what it gets
//	rpcx-peer server NETWORK@ADDRESS...   serves until it is ended; says where on its first line
//	rpcx-peer certificate FOLDER          writes cert.pem and key.pem, for 127.0.0.1
//
// A network that begins with "tls+" is inside TLS, with the certificate in the folder that RPCX_PEER_TLS names.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 3 {
		fail("expected client, proxied, mirror, server or certificate, and what it is for")
	}
	switch os.Args[1] {
	case "client":
		runCases(cases(), os.Args[2:])
	case "proxied":
		runCases(proxied(), os.Args[2:])
	case "mirror":
		runMirror(os.Args[2])
	case "server":
		runServer(os.Args[2:])
	case "certificate":
		writeCertificate(os.Args[2])
	default:
		fail("expected client, proxied, mirror, server or certificate")
	}
}

func fail(text string, values ...any) {
	fmt.Fprintf(os.Stderr, text+"\n", values...)
	os.Exit(1)
}
