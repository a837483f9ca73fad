// Package gopeer is what the Go rivals share: arguments, the closed loop, the histogram and the line of results.
//
// A rival's own program holds only what its library's users write: a server, a client, and the library's settings.
package gopeer

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
)

// Rival is what one library's program gives; a nil function means that the library can't do it.
type Rival struct {
	// Serve serves calls to "echo" and "message" on the listener until the process ends.
	Serve func(listener net.Listener) error
	// Dial opens the connections of the modes Unary and PerCall.
	Dial func(options Options) (Client, error)
	// OpenStream opens the one stream of the mode Stream.
	OpenStream func(options Options) (Stream, error)
	// Codecs are the library's codecs, for `client --call codecs`.
	Codecs func() []Codec
}

// Client makes calls.
type Client interface {
	// Caller returns the function with which caller number i, a goroutine of its own, makes one call and checks its
	// reply.
	Caller(i int) func() error
	// Close closes the connections.
	Close()
}

// Stream is a bidirectional stream that answers each message with itself, in order.
type Stream interface {
	// Send sends one message; Receive is called at the same time.
	Send() error
	// Receive takes one message and checks it.
	Receive() error
	// Close ends the stream, after which Receive fails.
	Close()
}

// Main runs `server` or `client` as the command line says, and ends the process.
func Main(rival Rival) {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("no command: `server` or `client`"))
	}
	options, err := parse(os.Args[1], os.Args[2:])
	if err == nil {
		switch os.Args[1] {
		case "server":
			err = serve(rival, options)
		case "client":
			err = call(rival, options)
		default:
			err = fmt.Errorf("no command %q: `server` or `client`", os.Args[1])
		}
	}
	if err != nil {
		fail(err)
	}
	os.Exit(0)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// serve announces the address on standard output and ends the process at the end of standard input.
func serve(rival Rival, options Options) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(options.host, "0"))
	if err != nil {
		return err
	}
	fmt.Printf("listening on %s\n", listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		os.Exit(0)
	}()
	return rival.Serve(listener)
}

func call(rival Rival, options Options) error {
	switch {
	case options.Call == "codecs":
		return printCodecs(rival.Codecs())
	case options.Mode == Streaming && rival.OpenStream == nil:
		return fmt.Errorf("this library has no stream of messages")
	case options.Mode == Streaming:
		stream, err := rival.OpenStream(options)
		if err != nil {
			return err
		}
		return runStream(stream, options).print()
	default:
		client, err := rival.Dial(options)
		if err != nil {
			return err
		}
		defer client.Close()
		return runCallers(client, options).print()
	}
}
