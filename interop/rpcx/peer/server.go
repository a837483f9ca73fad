package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/smallnest/rpcx/log"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/server"
	"github.com/smallnest/rpcx/serverplugin"
	"github.com/smallnest/rpcx/share"
)

// Arith is what the cases call.
type Arith struct {
	notes  atomic.Int64
	server *server.Server
}

// Mul multiplies.
func (a *Arith) Mul(ctx context.Context, args *Args, reply *Reply) error {
	reply.C = args.A * args.B
	return nil
}

// Div fails for B = 0.
func (a *Arith) Div(ctx context.Context, args *Args, reply *Reply) error {
	if args.B == 0 {
		return errors.New("divide by zero")
	}
	reply.C = args.A / args.B
	return nil
}

// Note counts.
func (a *Arith) Note(ctx context.Context, args *Empty, reply *Empty) error {
	a.notes.Add(1)
	return nil
}

// Noted says how often.
func (a *Arith) Noted(ctx context.Context, args *Empty, reply *int64) error {
	*reply = a.notes.Load()
	return nil
}

// Describe answers with the metadata of the call, and sends some of its own.
func (a *Arith) Describe(ctx context.Context, args *Empty, reply *Said) error {
	metadata, _ := ctx.Value(share.ReqMetaDataKey).(map[string]string)
	reply.Metadata = metadata
	answer, _ := ctx.Value(share.ResMetaDataKey).(map[string]string)
	answer["answered-by"] = "go"
	return nil
}

// Sleep waits, or as long as it may.
func (a *Arith) Sleep(ctx context.Context, args *Pause, reply *Empty) error {
	select {
	case <-time.After(time.Duration(args.Ms) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Subscribe sends server pushes.
func (a *Arith) Subscribe(ctx context.Context, args *Subscription, reply *Empty) error {
	connection, _ := ctx.Value(server.RemoteConnContextKey).(net.Conn)
	send := func(n int64) error {
		metadata := map[string]string{"number": fmt.Sprint(n)}
		return a.server.SendMessage(connection, "News", "Flash", metadata, fmt.Appendf(nil, "breaking %d", n))
	}
	if err := send(0); err != nil {
		return err
	}
	go func() {
		for n := int64(1); n < args.Count; n++ {
			check(send(n))
		}
	}()
	return nil
}

// Mirror answers with what it got.
func (a *Arith) Mirror(ctx context.Context, args *Blob, reply *Blob) error {
	*reply = *args
	return nil
}

// Reverse takes bytes and answers bytes.
func (a *Arith) Reverse(ctx context.Context, args *[]byte, reply *[]byte) error {
	*reply = slices.Clone(*args)
	slices.Reverse(*reply)
	return nil
}

// Echo speaks protobuf.
type Echo struct{}

// Shout answers in upper case.
func (Echo) Shout(ctx context.Context, args *Note, reply *Note) error {
	*reply = *args
	reply.Text = strings.ToUpper(args.Text)
	return nil
}

func runServer(addresses []string) {
	// It writes to the pipe from which the address is read, and the reader closes after that.
	log.SetDummyLogger()
	ended := make(chan error)
	var where []string
	for _, address := range addresses {
		address, isTLS := strings.CutPrefix(address, "tls+")
		network, at, _ := strings.Cut(address, "@")
		if strings.HasPrefix(network, "ws") {
			at = serveWebSockets(network, isTLS, ended)
			where = append(where, fmt.Sprintf("%s@%s", network, at))
			continue
		}
		// The network http of rpcx begins with a request, and goes on over TCP.
		listener, err := net.Listen(strings.Replace(network, "http", "tcp", 1), at)
		check(err)
		where = append(where, fmt.Sprintf("%s@%s", network, listener.Addr()))
		if isTLS {
			listener = inside(listener)
		}
		go func() { ended <- newServer().ServeListener(network, listener) }()
	}
	fmt.Printf("listening on %s\n", strings.Join(where, " "))
	check(<-ended)
}

// serveWebSockets serves at an address of its own: only a server that makes its listener itself knows these networks.
func serveWebSockets(network string, isTLS bool, ended chan<- error) string {
	var options []server.OptionFn
	if isTLS {
		options = append(options, server.WithTLSConfig(identity()))
	}
	where := freeAddress()
	go func() { ended <- newServer(options...).Serve(network, where) }()
	await(where)
	return where
}

// twice is a function that belongs to nothing.
func twice(ctx context.Context, args *Args, reply *Reply) error {
	reply.C = 2 * args.A
	return nil
}

func newServer(options ...server.OptionFn) *server.Server {
	s := server.NewServer(options...)
	aliases := serverplugin.NewAliasPlugin()
	aliases.Alias("legacy.Maths", "Times", "Arith", "Mul")
	s.Plugins.Add(aliases)
	check(s.RegisterFunctionName("Functions", "Twice", twice, ""))
	check(s.RegisterName("Arith", &Arith{server: s}, ""))
	check(s.RegisterName("interop.v1.Echo", Echo{}, ""))
	check(s.RegisterName("interop.quotients.Quotients", Quotients{}, ""))
	serveSide(s)
	s.AuthFunc = func(ctx context.Context, request *protocol.Message, token string) error {
		if request.ServiceMethod == "Describe" && token != "Bearer sesame" {
			return errors.New("invalid token")
		}
		return nil
	}
	return s
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}
