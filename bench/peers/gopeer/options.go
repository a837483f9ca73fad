package gopeer

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// Timeout is the deadline of each call.
const Timeout = 10 * time.Second

// The modes of a client.
const (
	Unary     = "unary"
	PerCall   = "per-call"
	Streaming = "stream"
)

// Options are the client's arguments.
type Options struct {
	// Call is "echo", "message" or "codecs".
	Call string
	// Addresses are the servers: callers spread evenly over them.
	Addresses []string
	// Callers is how many calls are outstanding.
	Callers int
	// Connections is how many connections to open, 0 for the library's best choice.
	Connections int
	// Mode is one of the constants above.
	Mode string
	// WarmUp passes before anything is counted.
	WarmUp time.Duration
	// Seconds is how long to call; 0 if Requests says how often.
	Seconds time.Duration
	// Requests is how many calls to count, or 0.
	Requests int

	// host is where a server listens.
	host string
	size int
}

// Payload is the payload of an echo.
func (o Options) Payload() []byte {
	payload := make([]byte, o.size)
	for i := range payload {
		payload[i] = byte(i % 251)
	}
	return payload
}

// Spread returns an address for each connection: the requested count, or else best, and then at least one
// for each address.
func (o Options) Spread(best int) []string {
	count := o.Connections
	if count == 0 {
		count = max(best, len(o.Addresses))
	}
	addresses := make([]string, count)
	for i := range addresses {
		addresses[i] = o.Addresses[i%len(o.Addresses)]
	}
	return addresses
}

func parse(command string, arguments []string) (Options, error) {
	var options Options
	var addresses string
	var warmUp, seconds float64
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.StringVar(&options.Call, "call", "echo", "echo, message, or codecs (client only)")
	if command == "server" {
		flags.StringVar(&options.host, "host", "127.0.0.1", "address to listen on")
	}
	if command == "client" {
		flags.StringVar(&addresses, "address", "", "HOST:PORT[,HOST:PORT]")
		flags.StringVar(&options.Mode, "mode", Unary, "unary, per-call or stream")
		flags.IntVar(&options.Callers, "callers", 1, "callers, each with one call outstanding")
		flags.IntVar(&options.size, "bytes", 100, "bytes of an echo's payload")
		flags.IntVar(&options.Connections, "connections", 0, "connections in total; 0: the best for this library")
		flags.IntVar(&options.Requests, "requests", 0, "calls to count, instead of --seconds")
		flags.Float64Var(&warmUp, "warm-up", 0, "seconds before anything is counted")
		flags.Float64Var(&seconds, "seconds", 5, "seconds to count")
	}
	if err := flags.Parse(arguments); err != nil {
		return options, err
	}
	options.Addresses = strings.Split(addresses, ",")
	options.WarmUp = time.Duration(warmUp * float64(time.Second))
	if options.Requests == 0 {
		options.Seconds = time.Duration(seconds * float64(time.Second))
	}
	return options, options.check(command)
}

func (o Options) check(command string) error {
	isClient := command == "client"
	switch {
	case o.Call != "echo" && o.Call != "message" && !(isClient && o.Call == "codecs"):
		return fmt.Errorf("no call %q", o.Call)
	case !isClient || o.Call == "codecs":
		return nil
	case o.Addresses[0] == "":
		return fmt.Errorf("no server: --address HOST:PORT")
	case o.Mode != Unary && o.Mode != PerCall && o.Mode != Streaming:
		return fmt.Errorf("no mode %q", o.Mode)
	case o.Callers < 1 || o.size < 0 || o.Connections < 0 || o.Requests < 0:
		return fmt.Errorf("numbers must not be negative, and at least one caller must call")
	}
	return nil
}
