// Command erpc-peer is a client and a server of eRPC as its users write them.
//
//	erpc-peer client HOST:PORT           makes every case in every framing; exit code 1 if one fails
//	erpc-peer mirror HOST:PORT           makes some thousand calls of one method that answers with what it gets
//	erpc-peer server raw|json|proto      serves in this framing until it is ended; says where on its first line
package main

import (
	"fmt"
	"os"

	"github.com/andeya/erpc/v7"
	"github.com/andeya/erpc/v7/proto/jsonproto"
	"github.com/andeya/erpc/v7/proto/pbproto"
	"github.com/andeya/erpc/v7/proto/rawproto"
	"github.com/andeya/erpc/v7/xfer/gzip"
)

const gzipFilter = 'g'

var framings = map[string]erpc.ProtoFunc{
	"raw":   rawproto.NewRawProtoFunc(),
	"json":  jsonproto.NewJSONProtoFunc(),
	"proto": pbproto.NewPbProtoFunc(),
}

func main() {
	erpc.SetLoggerLevel("OFF") // it writes to standard output
	gzip.Reg(gzipFilter, "gzip", 5)
	if len(os.Args) != 3 {
		fail("expected `client HOST:PORT`, `mirror HOST:PORT` or `server FRAMING`")
	}
	switch os.Args[1] {
	case "client":
		runClient(os.Args[2])
	case "mirror":
		runMirror(os.Args[2])
	case "server":
		runServer(os.Args[2])
	default:
		fail("expected client, mirror or server")
	}
}

func fail(text string, values ...any) {
	fmt.Fprintf(os.Stderr, text+"\n", values...)
	os.Exit(1)
}
