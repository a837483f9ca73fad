package main

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/andeya/erpc/v7"
	"github.com/andeya/erpc/v7/codec"
	"github.com/andeya/erpc/v7/plugin/auth"
)

// A case is one thing that a client does; those of a setting share a connection.
type testCase struct {
	name string
	run  func(caller) error
}

// caller makes calls in one setting: a framing, and with the filter or without.
type caller struct {
	erpc.Session
	settings []erpc.MessageSetting
}

const token = "sesame"

const patience = 20 * time.Second

// bearer says who it is before anything else.
var bearer = auth.NewBearerPlugin(func(_ auth.Session, send auth.SendOnce) *erpc.Status {
	var reply string
	return send(token, &reply)
}, erpc.WithBodyCodec(codec.ID_PLAIN))

func runClient(address string) {
	failures, count := 0, 0
	anonymous, known := erpc.NewPeer(erpc.PeerConfig{}), erpc.NewPeer(erpc.PeerConfig{}, bearer)
	anonymous.RoutePush(new(news))
	run := func(name string, peer erpc.Peer, framing string, cases []testCase, settings ...erpc.MessageSetting) {
		session, status := peer.Dial(address, framings[framing])
		if !status.OK() {
			fail("dial %s: %s", address, status)
		}
		defer session.Close()
		for _, one := range cases {
			count++
			if err := one.run(caller{session, settings}); err != nil {
				failures++
				fmt.Printf("FAILED %s %s %s: %v\n", framing, name, one.name, err)
			}
		}
	}
	for _, framing := range slices.Sorted(maps.Keys(framings)) {
		run("plain", anonymous, framing, cases())
		run("gzip", anonymous, framing, cases(), erpc.WithXferPipe(gzipFilter))
		run("auth", known, framing, []testCase{{"credentials", credentials}})
	}
	fmt.Printf("%d of %d cases\n", count-failures, count)
	if failures > 0 {
		fail("%d cases failed", failures)
	}
}

func cases() []testCase {
	return []testCase{
		{"mul", mul},
		{"names", names},
		{"error", divideByZero},
		{"own number", ownNumber},
		{"unknown", unknown},
		{"wrong codec", wrongCodec},
		{"metadata", metadata},
		{"many at once", many},
		{"push", push},
		{"pushed", pushed},
		{"texts", texts},
		{"nil", nothing},
		{"protobuf", shout},
		{"protobuf service in JSON", mapped},
		{"heartbeat", heartbeat},
	}
}

// call makes a call whose status is no success only if it is an error.
func (c caller) call(method string, arg, reply any, settings ...erpc.MessageSetting) error {
	return failure(c.try(method, arg, reply, settings...).Status())
}

func (c caller) try(method string, arg, reply any, settings ...erpc.MessageSetting) erpc.CallCmd {
	return c.Call(method, arg, reply, append(slices.Clone(c.settings), settings...)...)
}

func failure(status *erpc.Status) error {
	if status.OK() {
		return nil
	}
	return errors.New(status.String())
}

func mul(c caller) error {
	var reply Product
	if err := c.call("/arith/mul", &Args{10, -2_000_000_000}, &reply); err != nil {
		return err
	}
	return equal(reply.C, -20_000_000_000)
}

func names(c caller) error {
	for _, name := range []string{
		"/arith/mul", "/interop/arith/mul", "Arith.Mul", "interop.Arith.Mul", "/v1/legacy/times", "/arith/mul?tenant=a",
	} {
		var reply Product
		if err := c.call(name, &Args{6, 7}, &reply); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := equal(reply.C, 42); err != nil {
			return err
		}
	}
	return nil
}

func divideByZero(c caller) error {
	status := c.try("/arith/div", &Args{A: 1}, &Product{}).Status()
	if err := hasStatus(status, erpc.CodeBadMessage, "divide by zero"); err != nil {
		return err
	}
	// The connection goes on.
	return mul(c)
}

func ownNumber(c caller) error {
	status := c.try("/arith/fail", nil, &Product{}).Status()
	if err := hasStatus(status, 1001, "no such post: 100 % & more"); err != nil {
		return err
	}
	return equal(status.Cause().Error(), "it was deleted")
}

func unknown(c caller) error {
	for name, text := range map[string]string{
		"/arith/nothing": "unknown method interop.Arith/nothing",
		"/missing/mul":   "unknown service missing",
	} {
		if err := hasStatus(c.try(name, &Args{}, &Product{}).Status(), erpc.CodeNotFound, text); err != nil {
			return err
		}
	}
	return nil
}

func wrongCodec(c caller) error {
	xml := erpc.WithBodyCodec('x')
	return hasStatus(c.try("/arith/mul", &Args{}, &Product{}, xml).Status(), erpc.CodeBadMessage, "unsupported codec id: 120")
}

func hasStatus(status *erpc.Status, code int32, text string) error {
	if status.Code() != code || !strings.Contains(status.Msg(), text) {
		return fmt.Errorf("got %s, want %d with %q", status, code, text)
	}
	return nil
}

func metadata(c caller) error {
	var said Said
	cmd := c.try("/arith/describe", nil, &said, erpc.WithAddMeta("X-Tenant", "ours & theirs"),
		erpc.WithAddMeta("city", "Köln"), erpc.WithAddMeta("authorization", "bearer "+token))
	if err := failure(cmd.Status()); err != nil {
		return err
	}
	want := map[string]string{"authorization": "bearer " + token, "x-tenant": "ours & theirs", "city-bin": "Köln"}
	if err := equal(said.Metadata, want); err != nil {
		return err
	}
	return equal(string(cmd.InputMeta().Peek("answered-by")), "switchboard")
}

func credentials(c caller) error {
	var said Said
	if err := c.call("/arith/describe", nil, &said); err != nil {
		return err
	}
	return equal(said.Metadata, map[string]string{"authorization": "Bearer " + token})
}

func many(c caller) error {
	var group sync.WaitGroup
	failures := make(chan error, 500)
	for n := range int64(500) {
		group.Go(func() {
			var reply Product
			err := c.call("/arith/mul", &Args{n, 3}, &reply)
			if err == nil {
				err = equal(reply.C, 3*n)
			}
			if err != nil {
				failures <- err
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

// push sends a message without a response; messages of a connection are handled in order.
func push(c caller) error {
	count := func() (int64, error) {
		var reply Number
		err := c.call("/notes/count", nil, &reply)
		return reply.Number, err
	}
	before, err := count()
	if err != nil {
		return err
	}
	for range 3 {
		if err := failure(c.Push("/notes/add", &Number{2}, c.settings...)); err != nil {
			return err
		}
		if err := failure(c.Push("/notes/nothing", &Number{2}, c.settings...)); err != nil {
			return err
		}
	}
	after, err := count()
	if err != nil {
		return err
	}
	return equal(after-before, 6)
}

// heard is what the server has pushed.
var heard = make(chan string, 16)

type news struct {
	erpc.PushCtx
}

func (n *news) Flash(text *Text) *erpc.Status {
	heard <- fmt.Sprintf("%s: %s", n.PeekMeta("number"), text.Text)
	return nil
}

func (n *news) Raw(bytes *[]byte) *erpc.Status {
	heard <- string(*bytes)
	return nil
}

// pushed receives pushes of the server. Messages of a connection may be handled in any order.
func pushed(c caller) error {
	if err := c.call("/arith/back", nil, &Number{}); err != nil {
		return err
	}
	var got []string
	for range 4 {
		select {
		case text := <-heard:
			got = append(got, text)
		case <-time.After(patience):
			return fmt.Errorf("%q came, and no more", got)
		}
	}
	slices.Sort(got)
	return equal(got, []string{"0: news & more", "1: news & more", "2: news & more", "any bytes"})
}

// texts have characters that are escaped in JSON once, twice, or not at all.
func texts(c caller) error {
	for _, text := range []string{
		"", `"quoted" and C:\new\"odd\"`, "<&>\n\t\u2028 Köln", strings.Repeat(`large \" `, 100_000),
	} {
		var reply Text
		if err := c.call("/arith/mirror", &Text{text}, &reply); err != nil {
			return err
		}
		if reply.Text != text {
			return fmt.Errorf("%.100q became %.100q", text, reply.Text)
		}
	}
	return nil
}

func nothing(c caller) error {
	return c.call("/arith/sleep_for", nil, nil)
}

func shout(c caller) error {
	note := Note{Text: strings.Repeat("quiet ", 400), Number: 1 << 40, Data: []byte{1, 200, '"', 255}}
	var reply Note
	if err := c.call("/echo/shout", &note, &reply, erpc.WithBodyCodec(codec.ID_PROTOBUF)); err != nil {
		return err
	}
	note.Text = strings.ToUpper(note.Text)
	return equal(reply, note)
}

func mapped(c caller) error {
	var reply Note
	if err := c.call("/echo/shout", &Note{Text: "quiet", Number: 1 << 40, Data: []byte{0, 255}}, &reply); err != nil {
		return err
	}
	return equal(reply, Note{Text: "QUIET", Number: 1 << 40, Data: []byte{0, 255}})
}

// heartbeat is what the plug-in of this name sends every few seconds.
func heartbeat(c caller) error {
	if err := c.call("/heartbeat", nil, nil, erpc.WithSetMeta("hb_", "3")); err != nil {
		return err
	}
	if err := failure(c.Push("/heartbeat", nil, erpc.WithSetMeta("hb_", "3"))); err != nil {
		return err
	}
	status := c.try("/heartbeat", nil, nil, erpc.WithSetMeta("hb_", "soon")).Status()
	return hasStatus(status, erpc.CodeBadMessage, "invalid heartbeat rate")
}

func equal(got, want any) error {
	if number, ok := want.(int); ok {
		want = int64(number)
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
