// The client: threads that share a context, each with sockets of its own.
//
// DEALER: callers share sockets, as many calls outstanding on each as it has callers. REQ: a socket has one call
// outstanding, and callers that share it wait for their turn. In mode per-call each call has a new socket.

#include "closed_loop.hpp"
#include "pattern.hpp"
#include "requests.hpp"

#include <deque>
#include <stdexcept>
#include <sys/epoll.h>
#include <unistd.h>

namespace {

// More sockets than this only cost more to look after.
constexpr size_t REQ_SOCKETS = 64;

class Worker {
public:
    Worker(zmq::context_t& context, const peer::Arguments& arguments, size_t callers, size_t sockets,
           peer::Recorder& recorder)
        : context_(context),
          arguments_(arguments),
          pattern_(pattern(arguments)),
          is_per_call_(arguments.mode == "per-call"),
          requests_(arguments, pattern_),
          recorder_(recorder),
          callers_(callers),
          links_(is_per_call_ ? callers : sockets),
          epoll_(epoll_create1(0)) {}

    ~Worker() { close(epoll_); }

    // `first` is the number of the thread's first socket among all, which spreads them over the addresses.
    void run(size_t first) {
        for (size_t at = 0; at < links_.size(); ++at) {
            links_[at].address = "tcp://" + arguments_.addresses[(first + at) % arguments_.addresses.size()].text();
            open(at);
        }
        recorder_.start();
        for (size_t at = 0; at < callers_.size(); ++at) begin(at, peer::now());
        // sending reads messages that arrived meanwhile, which the descriptor then no longer signals
        for (size_t at = 0; at < links_.size(); ++at) take_all(at);
        while (outstanding_ > 0) {
            bool is_in_time = links_.size() == 1 && !is_per_call_ ? wait_for_only() : wait_for_any();
            if (!is_in_time) return give_up();
        }
    }

private:
    struct Caller {
        uint64_t from = 0;
        uint32_t calls = 0;
        bool is_waiting = false;
    };

    struct Link {
        std::string address;
        zmq::socket_t socket;
        // REQ only: who has the socket, and who waits for it
        bool is_taken = false;
        size_t taken_by = 0;
        std::deque<size_t> queue;
    };

    void open(size_t at) {
        auto& link = links_[at];
        link.socket = zmq::socket_t(context_, pattern_ == Pattern::DealerRouter ? ZMQ_DEALER : ZMQ_REQ);
        set_limits(link.socket);
        link.socket.set(zmq::sockopt::rcvtimeo, int(std::chrono::milliseconds(peer::DEADLINE).count()));
        link.socket.connect(link.address);
        epoll_event event{.events = EPOLLIN, .data = {.u64 = at}};
        epoll_ctl(epoll_, EPOLL_CTL_ADD, link.socket.get(zmq::sockopt::fd), &event);
    }

    void reopen(size_t at) {
        auto& socket = links_[at].socket;
        epoll_ctl(epoll_, EPOLL_CTL_DEL, socket.get(zmq::sockopt::fd), nullptr);
        socket.close();
        open(at);
    }

    // A caller's next call, unless the run is over.
    void begin(size_t at, uint64_t time) {
        if (!recorder_.may_begin(time)) return;
        ++outstanding_;
        auto& caller = callers_[at];
        caller.from = time;
        caller.is_waiting = true;
        ++caller.calls;
        auto& link = links_[at % links_.size()];
        if (pattern_ == Pattern::DealerRouter) return requests_.send(link.socket, id(at));
        link.queue.push_back(at);
        send_next(link);
    }

    void send_next(Link& link) {
        if (link.is_taken || link.queue.empty()) return;
        link.is_taken = true;
        link.taken_by = link.queue.front();
        link.queue.pop_front();
        requests_.send(link.socket, 0);
    }

    // So that a late reply is not taken for that of the caller's next call.
    uint64_t id(size_t at) const { return uint64_t(callers_[at].calls) << 32 | at; }

    // Takes a reply of a link if there is one, or waits for it; false if there is none.
    bool take(size_t at, zmq::recv_flags flags) {
        auto& link = links_[at];
        if (pattern_ == Pattern::RequestReply && !link.is_taken) {
            // nothing to take, but the descriptor stays ready until the socket has seen to what woke it
            (void)link.socket.get(zmq::sockopt::events);
            return false;
        }
        uint64_t replied = pattern_ == Pattern::RequestReply ? id(link.taken_by) : 0;
        bool is_right = false;
        if (!requests_.receive(link.socket, flags, replied, is_right)) return false;
        auto number = size_t(replied & UINT32_MAX);
        if (number >= callers_.size() || !callers_[number].is_waiting || id(number) != replied) return true;
        auto& caller = callers_[number];
        uint64_t time = peer::now();
        recorder_.finished(caller.from, time, is_right);
        caller.is_waiting = false;
        --outstanding_;
        link.is_taken = false;
        if (is_per_call_) reopen(at);
        send_next(link);
        begin(number, time);
        return true;
    }

    void take_all(size_t at) {
        while (take(at, zmq::recv_flags::dontwait)) {}
    }

    bool wait_for_only() { return take(0, zmq::recv_flags::none); }

    // The descriptor of a socket signals only changes, so each socket is read until it is empty.
    bool wait_for_any() {
        epoll_event events[256];
        int ready = epoll_wait(epoll_, events, 256, int(std::chrono::milliseconds(peer::DEADLINE).count()));
        for (int at = 0; at < ready; ++at) {
            take_all(size_t(events[at].data.u64));
        }
        return ready > 0;
    }

    // libzmq has no deadlines for calls: when nothing came for so long, nothing will.
    void give_up() {
        for (auto& caller : callers_) {
            if (caller.is_waiting) recorder_.failed(caller.from, peer::now(), "no reply within 10 s");
        }
    }

    zmq::context_t& context_;
    const peer::Arguments& arguments_;
    Pattern pattern_;
    bool is_per_call_;
    Requests requests_;
    peer::Recorder& recorder_;
    std::vector<Caller> callers_;
    std::vector<Link> links_;
    size_t outstanding_ = 0;
    int epoll_;
};

}  // namespace

int call(const peer::Arguments& arguments) {
    if (arguments.mode != "unary" && arguments.mode != "per-call") peer::stop("no such mode: " + arguments.mode);
    bool is_dealer = pattern(arguments) == Pattern::DealerRouter;
    size_t sockets = arguments.connections > 0 ? arguments.connections : is_dealer ? 1 : REQ_SOCKETS;
    sockets = std::min(std::max(sockets, arguments.addresses.size()), arguments.callers);
    size_t threads = std::min(arguments.threads > 0 ? arguments.threads : 1, sockets);
    zmq::context_t context(int(arguments.io_threads > 0 ? arguments.io_threads : 1));
    context.set(zmq::ctxopt::max_sockets, int(std::max<size_t>(1024, 4 * arguments.callers)));
    return peer::run_client(arguments, threads, [&](size_t at, peer::Recorder& recorder) {
        auto callers = peer::share(arguments.callers, threads, at);
        Worker(context, arguments, callers, peer::share(sockets, threads, at), recorder).run(at);
    });
}
