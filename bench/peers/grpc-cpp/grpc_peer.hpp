// What the parts of the program share.
#pragma once

#include "arguments.hpp"
#include "bench/v1/bench.grpc.pb.h"
#include "closed_loop.hpp"
#include "proto_message.hpp"

#include <grpcpp/grpcpp.h>

using Echo = bench::v1::EchoMessage;
using Message = bench::v1::BenchmarkMessage;

// Completion queues that the program's own threads poll.
int serve_queues(const peer::Arguments& arguments);
// Reactors that gRPC's threads call.
int serve_callbacks(const peer::Arguments& arguments);

int call_unary(const peer::Arguments& arguments);
int call_stream(const peer::Arguments& arguments);
int print_codecs();

// `number` is that of the channel among all, which spreads them over the addresses.
inline std::shared_ptr<grpc::Channel> connect(const peer::Arguments& arguments, size_t number) {
    grpc::ChannelArguments options;
    // a connection of its own, which equal channels otherwise share
    options.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    options.SetMaxReceiveMessageSize(-1);
    auto& address = arguments.addresses[number % arguments.addresses.size()];
    return grpc::CreateCustomChannel(address.text(), grpc::InsecureChannelCredentials(), options);
}

inline std::chrono::system_clock::time_point deadline() { return std::chrono::system_clock::now() + peer::DEADLINE; }
