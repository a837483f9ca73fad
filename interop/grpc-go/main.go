// Command grpc-go-retry calls grpc.testing.TestService with a retry policy and counts the attempts.
//
//	grpc-go-retry HOST:PORT    exit code 1 if a case fails
//
// A client retries a call only while the server has sent nothing but a Trailers-Only response.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const (
	attempts = 4
	policy   = `{"methodConfig": [{
		"name": [{}],
		"retryPolicy": {
			"maxAttempts": 4,
			"initialBackoff": "0.001s",
			"maxBackoff": "0.001s",
			"backoffMultiplier": 1,
			"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"]
		}
	}]}`
	// The server requests this pause when the text of the status does.
	pause = 200 * time.Millisecond
)

// counter counts the attempts of calls.
type counter struct{ begun atomic.Int64 }

func (c *counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (c *counter) HandleRPC(_ context.Context, event stats.RPCStats) {
	if begin, ok := event.(*stats.Begin); ok && !begin.IsTransparentRetryAttempt {
		c.begun.Add(1)
	}
}
func (c *counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *counter) HandleConn(context.Context, stats.ConnStats)                       {}

func main() {
	if len(os.Args) != 2 {
		fail("expected HOST:PORT")
	}
	var count counter
	conn, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(policy),
		grpc.WithStatsHandler(&count),
	)
	if err != nil {
		fail("%v", err)
	}
	client := testpb.NewTestServiceClient(conn)
	unary := func(code codes.Code, text string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{
				ResponseStatus: &testpb.EchoStatus{Code: int32(code), Message: text},
			})
			return err
		}
	}
	stream := func(code codes.Code, text string, messages int) func(context.Context) error {
		return func(ctx context.Context) error {
			request := &testpb.StreamingOutputCallRequest{
				ResponseStatus: &testpb.EchoStatus{Code: int32(code), Message: text},
			}
			for range messages {
				request.ResponseParameters = append(request.ResponseParameters, &testpb.ResponseParameters{Size: 1})
			}
			replies, err := client.StreamingOutputCall(ctx, request)
			for err == nil {
				_, err = replies.Recv()
			}
			return err
		}
	}
	cases := []struct {
		name     string
		call     func(context.Context) error
		code     codes.Code
		attempts int64
		least    time.Duration
	}{
		{"unary", unary(codes.Unavailable, "not now"), codes.Unavailable, attempts, 0},
		{"unary with a pause", unary(codes.ResourceExhausted, "retry in 200 ms"), codes.ResourceExhausted, attempts, (attempts - 1) * pause},
		{"unary that no policy names", unary(codes.Internal, "no"), codes.Internal, 1, 0},
		{"stream before its first message", stream(codes.Unavailable, "not now", 0), codes.Unavailable, attempts, 0},
		{"stream with a pause", stream(codes.ResourceExhausted, "retry in 200 ms", 0), codes.ResourceExhausted, attempts, (attempts - 1) * pause},
		{"unknown method", func(ctx context.Context) error {
			_, err := client.UnimplementedCall(ctx, &testpb.Empty{})
			return err
		}, codes.Unimplemented, attempts, 0},
		{"unknown service", func(ctx context.Context) error {
			_, err := testpb.NewUnimplementedServiceClient(conn).UnimplementedCall(ctx, &testpb.Empty{})
			return err
		}, codes.Unimplemented, attempts, 0},
	}
	failed := false
	for _, c := range cases {
		count.begun.Store(0)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		began := time.Now()
		err := c.call(ctx)
		took := time.Since(began)
		cancel()
		made := count.begun.Load()
		if status.Code(err) != c.code || made != c.attempts || took < c.least {
			failed = true
			fmt.Printf("%s: %d attempts in %v, %v; expected %d in at least %v, %v\n",
				c.name, made, took, err, c.attempts, c.least, c.code)
		}
	}
	if failed {
		os.Exit(1)
	}
	fmt.Printf("%d of %d cases\n", len(cases), len(cases))
}

func fail(text string, values ...any) {
	fmt.Fprintf(os.Stderr, text+"\n", values...)
	os.Exit(1)
}
