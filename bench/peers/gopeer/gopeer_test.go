package gopeer

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

func TestQuantilesAreWithinHalfAPercent(t *testing.T) {
	h := newHistogram()
	for micros := 1; micros <= 100_000; micros++ {
		h.record(time.Duration(micros) * time.Microsecond)
	}
	for _, share := range []float64{.001, .01, .5, .9, .99, .999, 1} {
		got, want := h.quantile(share), share*100_000
		if got < want*.995 || got > want*1.005 {
			t.Errorf("quantile %v is %v us instead of %v us", share, got, want)
		}
	}
	if h.mean() != 50_000.5 || h.min != time.Microsecond || h.max != 100*time.Millisecond {
		t.Errorf("mean %v, min %v, max %v", h.mean(), h.min, h.max)
	}
}

func TestBucketsHoldAnyLatency(t *testing.T) {
	h := newHistogram()
	for _, latency := range []time.Duration{-1, 0, 127, 128, 255, 256, 257, 1 << 40, 1 << 62} {
		h.record(latency)
	}
	for value := time.Duration(1); value < 1<<39; value = value*17/16 + 1 {
		off := middleOf(bucketOf(value)) - value
		if max(off, -off)*250 > value {
			t.Errorf("%v is kept as %v", value, middleOf(bucketOf(value)))
		}
	}
}

type counting struct {
	lock  sync.Mutex
	calls int
	err   error
}

func (c *counting) Caller(int) func() error {
	return func() error {
		c.lock.Lock()
		defer c.lock.Unlock()
		c.calls++
		return c.err
	}
}

func (c *counting) Close() {}

func TestRequestsAreCountedAcrossCallers(t *testing.T) {
	client := &counting{}
	r := runCallers(client, Options{Callers: 3, Requests: 100, WarmUp: time.Millisecond})
	if r.Requests != 100 || r.TotalRequests != client.calls || r.Errors != 0 || r.TotalRequests < 100 {
		t.Errorf("%+v after %d calls", r, client.calls)
	}
}

func TestErrorsAreCountedAndEndACaller(t *testing.T) {
	client := &counting{err: errors.New("no")}
	r := runCallers(client, Options{Callers: 2, Seconds: time.Hour})
	if r.Requests != 0 || r.Errors != 2*maxErrors || *r.FirstError != "no" {
		t.Errorf("%+v", r)
	}
}

// pipe is a stream that echoes bytes.
type pipe struct{ near, far net.Conn }

func (p pipe) Send() error {
	_, err := p.near.Write([]byte{1})
	return err
}

func (p pipe) Receive() error {
	_, err := p.far.Read(make([]byte, 1))
	return err
}

func (p pipe) Close() { p.near.Close() }

func TestStreamCountsWhatIsAnswered(t *testing.T) {
	near, far := net.Pipe()
	r := runStream(pipe{near, far}, Options{Callers: 4, Requests: 1000})
	if r.Requests != 1000 || r.Errors != 0 {
		t.Errorf("%+v", r)
	}
}

func TestCallersSpreadOverAddresses(t *testing.T) {
	options := Options{Addresses: []string{"a", "b"}}
	if got := options.Spread(1); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("%v", got)
	}
	options.Connections = 1
	if got := options.Spread(4); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
