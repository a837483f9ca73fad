// The payload of requests.
#pragma once

#include <cstdint>
#include <string>

namespace peer {

// Byte i is i % 251.
inline std::string echo_payload(size_t bytes) {
    std::string payload(bytes, 0);
    for (size_t at = 0; at < bytes; ++at) payload[at] = char(at % 251);
    return payload;
}

// The values of the message of rpcx-benchmark: a text of 18 characters of 3 bytes, and the same without the first 3.
inline const std::string TEXT = "许多往事在眼前一幕一幕，变的那麼模糊";
inline const std::string SHORT_TEXT = TEXT.substr(9);
constexpr int32_t NUMBER = 100'000;

// What the server sets in its reply.
inline const std::string REPLY_TEXT = "OK";
constexpr int32_t REPLY_NUMBER = 100;

}  // namespace peer
