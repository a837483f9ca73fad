package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/andeya/erpc/v7"
)

// Arith is what the cases call, as /arith/mul and so on.
type Arith struct {
	erpc.CallCtx
}

// Mul multiplies.
func (a *Arith) Mul(args *Args) (*Product, *erpc.Status) {
	return &Product{args.A * args.B}, nil
}

// Div fails for B = 0.
func (a *Arith) Div(args *Args) (*Product, *erpc.Status) {
	if args.B == 0 {
		return nil, erpc.NewStatus(1001, "divide by zero", "b & c = 0%")
	}
	return &Product{args.A / args.B}, nil
}

// Fail answers with an error of erpc itself.
func (a *Arith) Fail(*struct{}) (*Product, *erpc.Status) {
	return nil, erpc.NewStatusByCodeText(erpc.CodeBadMessage, "it is wrong", false)
}

// Describe answers with the metadata of the call, and sends some of its own.
func (a *Arith) Describe(*struct{}) (*Said, *erpc.Status) {
	said := Said{map[string]string{}}
	a.VisitMeta(func(name, value []byte) { said.Metadata[string(name)] = string(value) })
	a.SetMeta("Answered-By", "go & co")
	return &said, nil
}

// SleepFor waits.
func (a *Arith) SleepFor(pause *Pause) (*struct{}, *erpc.Status) {
	time.Sleep(time.Duration(pause.Ms) * time.Millisecond)
	return nil, nil
}

// Mirror answers with what it got.
func (a *Arith) Mirror(text *Text) (*Text, *erpc.Status) {
	return text, nil
}

// Back calls its caller, which accepts pushes but no calls; it responds with the code of the refusal.
func (a *Arith) Back(*struct{}) (*Number, *erpc.Status) {
	session := a.Session()
	for n := range 3 {
		number := erpc.WithSetMeta("number", strconv.Itoa(n))
		if status := session.Push("/news/flash", &Text{"news"}, number); !status.OK() {
			return nil, status
		}
	}
	var reply Text
	status := session.Call("/client/ask", &Text{"?"}, &reply).Status()
	return &Number{int64(status.Code())}, nil
}

// Echo speaks protobuf.
type Echo struct {
	erpc.CallCtx
}

// Shout answers in upper case.
func (e *Echo) Shout(note *Note) (*Note, *erpc.Status) {
	note.Text = strings.ToUpper(note.Text)
	return note, nil
}

var notes atomic.Int64

type notesPush struct {
	erpc.PushCtx
}

func (n *notesPush) Add(number *Number) *erpc.Status {
	notes.Add(number.Number)
	return nil
}

type notesCall struct {
	erpc.CallCtx
}

func (n *notesCall) Count(*struct{}) (*Number, *erpc.Status) {
	return &Number{notes.Load()}, nil
}

func runServer(framing string) {
	protocol, known := framings[framing]
	if !known {
		fail("%q is no framing", framing)
	}
	peer := erpc.NewPeer(erpc.PeerConfig{})
	peer.RouteCall(new(Arith))
	peer.RouteCall(new(Echo))
	peer.SubRoute("v1").RouteCall(new(Arith))
	// Calls and pushes may have the same names in different routes.
	peer.SubRoute("notes").RoutePushFunc((*notesPush).Add)
	peer.SubRoute("notes").RouteCallFunc((*notesCall).Count)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Printf("listening on %s\n", listener.Addr())
	for {
		connection, err := listener.Accept()
		check(err)
		if _, status := peer.ServeConn(connection, protocol); !status.OK() {
			fail("%s", status)
		}
	}
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}
