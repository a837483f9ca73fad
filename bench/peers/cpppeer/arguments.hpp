// The command line that every rival understands.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace peer {

struct Address {
    std::string host;
    uint16_t port = 0;

    std::string text() const { return host + ":" + std::to_string(port); }
};

struct Arguments {
    // "server" or "client"
    std::string command;
    // which of a rival's variants, where it has several
    std::string variant;
    // "echo", "message" or "codecs"
    std::string call = "echo";
    // "unary", "per-call" or "stream"
    std::string mode = "unary";
    // where a server listens
    std::string host = "127.0.0.1";
    std::vector<Address> addresses;
    size_t callers = 1;
    size_t bytes = 100;
    // 0: the rival's best choice
    size_t connections = 0;
    double warm_up = 0.5;
    double seconds = 3;
    // unless 0, the run ends after so many requests rather than after `seconds`
    uint64_t requests = 0;
    // 0: the rival's best choice
    size_t threads = 0;
    size_t io_threads = 0;

    // Prints the error and ends the program if the command line is not valid.
    static Arguments parse(int count, char** values);
};

[[noreturn]] inline void stop(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(2);
}

inline size_t cores() { return std::max(1u, std::thread::hardware_concurrency()); }

// How many of `total` things the part `at` of `parts` gets.
inline uint64_t share(uint64_t total, size_t parts, size_t at) { return total / parts + (at < total % parts ? 1 : 0); }

inline std::vector<Address> parse_addresses(std::string_view list) {
    std::vector<Address> addresses;
    while (!list.empty()) {
        auto one = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), one.size() + 1));
        auto colon = one.rfind(':');
        if (colon == one.npos) stop("address without a port: " + std::string(one));
        auto port = std::strtoul(std::string(one.substr(colon + 1)).c_str(), nullptr, 10);
        if (port == 0 || port > 65535) stop("port out of range: " + std::string(one));
        addresses.push_back({std::string(one.substr(0, colon)), uint16_t(port)});
    }
    return addresses;
}

inline Arguments Arguments::parse(int count, char** values) {
    Arguments arguments;
    if (count > 1) arguments.command = values[1];
    for (int at = 2; at < count; at += 2) {
        std::string_view name = values[at];
        if (at + 1 == count) stop("no value for " + std::string(name));
        std::string value = values[at + 1];
        auto number = [&] {
            char* end = nullptr;
            double parsed = std::strtod(value.c_str(), &end);
            if (value.empty() || *end != 0 || !(parsed >= 0)) stop("no number for " + std::string(name) + ": " + value);
            return parsed;
        };
        if (name == "--variant") arguments.variant = value;
        else if (name == "--call") arguments.call = value;
        else if (name == "--mode") arguments.mode = value;
        else if (name == "--host") arguments.host = value;
        else if (name == "--address") arguments.addresses = parse_addresses(value);
        else if (name == "--callers") arguments.callers = size_t(number());
        else if (name == "--bytes") arguments.bytes = size_t(number());
        else if (name == "--connections") arguments.connections = size_t(number());
        else if (name == "--warm-up") arguments.warm_up = number();
        else if (name == "--seconds") arguments.seconds = number();
        else if (name == "--requests") arguments.requests = uint64_t(number());
        else if (name == "--threads") arguments.threads = size_t(number());
        else if (name == "--io-threads") arguments.io_threads = size_t(number());
        else stop("unknown option: " + std::string(name));
    }
    bool is_client = arguments.command == "client";
    if (!is_client && arguments.command != "server") stop("the first argument is neither server nor client");
    if (arguments.call == "codecs" && is_client) return arguments;
    if (arguments.call != "echo" && arguments.call != "message") stop("unknown call: " + arguments.call);
    if (is_client && arguments.addresses.empty()) stop("a client needs --address");
    if (is_client && arguments.callers == 0) stop("a client needs callers");
    return arguments;
}

}  // namespace peer
