// Makes requests and checks replies, for one thread of the client.
#pragma once

#include "pattern.hpp"
#include "proto_message.hpp"

class Requests {
public:
    Requests(const peer::Arguments& arguments, Pattern pattern)
        : id_bytes_(id_bytes(pattern)),
          is_message_(arguments.call == "message"),
          payload_(is_message_ ? "" : peer::echo_payload(arguments.bytes)) {
        peer::fill(request_);
    }

    void send(zmq::socket_t& socket, uint64_t id) {
        if (is_message_) {
            // encoded for each call
            zmq::message_t frame(id_bytes_ + request_.ByteSizeLong());
            request_.SerializeWithCachedSizesToArray(put_id(frame, id));
            socket.send(frame, zmq::send_flags::none);
        } else if (payload_.size() < ZERO_COPY_BYTES) {
            zmq::message_t frame(id_bytes_ + payload_.size());
            std::memcpy(put_id(frame, id), payload_.data(), payload_.size());
            socket.send(frame, zmq::send_flags::none);
        } else {
            if (id_bytes_ > 0) {
                zmq::message_t frame(id_bytes_);
                put_id(frame, id);
                socket.send(frame, zmq::send_flags::sndmore);
            }
            zmq::message_t frame(payload_.data(), payload_.size(), [](void*, void*) {}, nullptr);
            socket.send(frame, zmq::send_flags::none);
        }
    }

    // Receives a reply if there is one, or waits for it; false if there was none. `id` stays as it is for REQ.
    bool receive(zmq::socket_t& socket, zmq::recv_flags flags, uint64_t& id, bool& is_right) {
        zmq::message_t frame;
        if (!socket.recv(frame, flags)) return false;
        if (frame.size() < id_bytes_) throw std::runtime_error("a reply without an id");
        std::memcpy(&id, frame.data(), id_bytes_);
        size_t before = id_bytes_;
        if (frame.more()) {
            (void)socket.recv(frame);
            before = 0;
        }
        is_right = check(static_cast<const char*>(frame.data()) + before, frame.size() - before);
        return true;
    }

private:
    uint8_t* put_id(zmq::message_t& frame, uint64_t id) const {
        std::memcpy(frame.data(), &id, id_bytes_);
        return static_cast<uint8_t*>(frame.data()) + id_bytes_;
    }

    bool check(const char* bytes, size_t size) {
        if (is_message_) return reply_.ParseFromArray(bytes, int(size)) && peer::is_answer(reply_);
        return size == payload_.size() && std::memcmp(bytes, payload_.data(), size) == 0;
    }

    size_t id_bytes_;
    bool is_message_;
    std::string payload_;
    bench::v1::BenchmarkMessage request_;
    bench::v1::BenchmarkMessage reply_;
};
