// What every server shares: the first line of its output, and its end.
#pragma once

#include "arguments.hpp"

#include <cstdint>
#include <cstdio>
#include <unistd.h>

namespace peer {

inline void announce(const Arguments& arguments, uint16_t port) {
    std::printf("listening on %s:%u\n", arguments.host.c_str(), unsigned(port));
    std::fflush(stdout);
}

// A server lives as long as its standard input is open.
inline void wait_for_end_of_input() {
    char ignored[256];
    while (::read(STDIN_FILENO, ignored, sizeof ignored) > 0) {}
}

}  // namespace peer
