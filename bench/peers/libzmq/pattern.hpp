// The two patterns of libzmq that are compared, and how a call looks in frames.
//
// REQ/REP: libzmq matches replies itself, as a socket has one call outstanding; the frame is the payload.
// DEALER/ROUTER: many calls are outstanding on a socket, so that a request begins with 8 bytes that the server sends
// back. Small payloads follow in the same frame, as a frame costs more than a copy; large ones are a frame of their
// own, which libzmq sends from where it lies.
#pragma once

#include "arguments.hpp"

#include <cstring>
#include <zmq.hpp>

enum class Pattern { RequestReply, DealerRouter };

constexpr size_t ID_BYTES = 8;

// Payloads from here on are sent without a copy.
constexpr size_t ZERO_COPY_BYTES = 16 << 10;

inline Pattern pattern(const peer::Arguments& arguments) {
    if (arguments.variant == "req-rep") return Pattern::RequestReply;
    if (arguments.variant == "dealer-router") return Pattern::DealerRouter;
    peer::stop("--variant is neither req-rep nor dealer-router");
}

// How many bytes come before the payload in its frame.
inline size_t id_bytes(Pattern pattern) { return pattern == Pattern::DealerRouter ? ID_BYTES : 0; }

// Queues without a limit: the closed loop has one, and ROUTER drops what its queue has no room for.
inline void set_limits(zmq::socket_t& socket) {
    socket.set(zmq::sockopt::sndhwm, 0);
    socket.set(zmq::sockopt::rcvhwm, 0);
    socket.set(zmq::sockopt::linger, 0);
}

int serve(const peer::Arguments& arguments);
int call(const peer::Arguments& arguments);
int print_codecs();
