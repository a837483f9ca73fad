package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"switchboard.example/bench/grpc-go/benchpb"
)

type service struct {
	benchpb.UnimplementedBenchServer
}

func serve(listener net.Listener) error {
	server := grpc.NewServer(
		grpc.NumStreamWorkers(workers),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.MaxRecvMsgSize(messageMax),
	)
	benchpb.RegisterBenchServer(server, service{})
	return server.Serve(listener)
}

func (service) Echo(_ context.Context, request *benchpb.EchoMessage) (*benchpb.EchoMessage, error) {
	return request, nil
}

func (service) Message(_ context.Context, request *benchpb.BenchmarkMessage) (*benchpb.BenchmarkMessage, error) {
	request.Field1 = proto.String("OK")
	request.Field2 = proto.Int32(100)
	return request, nil
}

func (service) Stream(stream grpc.BidiStreamingServer[benchpb.EchoMessage, benchpb.EchoMessage]) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(message); err != nil {
			return err
		}
	}
}
