//! The workloads, and what they must reach.

use switchboard_cli::bench::bus::options::Mode;

/// A workload of the comparison.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    /// Such as `MSG-1`.
    pub(super) id: &'static str,
    pub(super) label: &'static str,
    pub(super) mode: Mode,
    pub(super) bytes: u32,
    pub(super) peers: u32,
    pub(super) goals: &'static [Goal],
    /// Reason for which the workload is not measured here.
    pub(super) elsewhere: Option<&'static str>,
}

/// One goal of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// At least so many times the messages per second of a rival, or of the reference of the workload.
    Rate(&'static str, f64),
    /// At most so many times the median delay of a rival.
    P50(&'static str, f64),
    /// At most so many times the delay of a rival that 1 % of the messages exceed.
    P99(&'static str, f64),
    /// At least so many messages per second.
    MessagesPerSecond(f64),
    /// No entry was lost although the receiver was killed, and each repeated one was marked.
    NoneLost,
    /// At most so many bytes per peer.
    BytesPerPeer(f64),
}

/// Name of the run without a stalled peer, beside which `stalled` runs.
const NONE_STALLED: &str = "7 peers, none stalled";

/// Returns all workloads in the order of the report.
pub(super) fn all() -> Vec<Workload> {
    let row = |id, label, mode: Mode, bytes, peers, goals| Workload {
        id,
        label,
        mode,
        bytes,
        peers,
        goals,
        elsewhere: None,
    };
    let elsewhere = |id, label, mode: Mode, reason| Workload {
        elsewhere: Some(reason),
        ..row(id, label, mode, mode.bytes(), mode.peers(), &[])
    };
    const PIPELINE: &[Goal] = &[Goal::Rate("libzmq", 2.0), Goal::Rate("omq", 1.2), Goal::Rate("rzmq", 1.2)];
    const FAN_OUT: &[Goal] = &[Goal::Rate("libzmq", 2.5), Goal::Rate("omq", 1.2)];
    const FAN_OUT_LARGE: &[Goal] = &[Goal::Rate("libzmq", 7.0), Goal::Rate("omq", 1.2)];
    const REQUESTS: &[Goal] =
        &[Goal::P50("libzmq", 0.6), Goal::P99("libzmq", 0.5), Goal::P50("omq", 1.0), Goal::P99("omq", 1.0)];
    const CURVE: &[Goal] = &[Goal::Rate("libzmq", 3.0), Goal::Rate("without CURVE", 0.65)];
    const ACKED: &[Goal] = &[Goal::Rate("unacknowledged", 0.5), Goal::NoneLost];
    const INPROC: &[Goal] =
        &[Goal::Rate("libzmq", 3.0), Goal::Rate("omq", 1.3), Goal::MessagesPerSecond(15_000_000.0)];
    vec![
        row("MSG-1", "PUSH to PULL, 64 B, one sender", Mode::PushPull, 64, 1, PIPELINE),
        row("MSG-1", "PUSH to PULL, 64 B, four senders", Mode::PushPull, 64, 4, PIPELINE),
        row("MSG-2", "PUSH to PULL, inproc, 64 B", Mode::Inproc, 64, 1, INPROC),
        row("MSG-3", "REQ to REP, 100 B", Mode::ReqRep, 100, 1, REQUESTS),
        row("MSG-4", "PUB to 64 SUB, 256 B", Mode::PubSub, 256, 64, FAN_OUT),
        row("MSG-4", "PUB to 64 SUB, 4 KiB", Mode::PubSub, 4096, 64, FAN_OUT_LARGE),
        row("MSG-5", "DEALER to ROUTER, one client", Mode::Router, 64, 1, &[Goal::Rate("libzmq", 1.5)]),
        row("MSG-5", "DEALER to ROUTER, 64 clients", Mode::Router, 64, 64, &[Goal::Rate("libzmq", 3.0)]),
        row("MSG-6", "PUSH to PULL with CURVE, 1 KiB", Mode::Curve, 1024, 1, CURVE),
        row(
            "MSG-8",
            "memory per idle peer of a ROUTER",
            Mode::Idle,
            64,
            10_000,
            &[Goal::BytesPerPeer(1536.0)],
        ),
        row("MSG-9", "acknowledged pipeline", Mode::Acked, 64, 1, ACKED),
        row("MSG-12", "PUSH to 8 PULL, one stalled", Mode::Stalled, 64, 8, &[Goal::Rate(NONE_STALLED, 0.95)]),
        elsewhere(
            "MSG-13",
            "clients of NATS and Redis",
            Mode::FanOut,
            "measured by the programs of those systems: `nats bench` and `redis-benchmark`",
        ),
        row("MSG-14", "a topic to 1,000 SUB, 128 B", Mode::FanOut, 128, 1_000, &[Goal::Rate("floor", 0.8)]),
        row(
            "MSG-15",
            "publish in the process, 64 B",
            Mode::Publish,
            64,
            1,
            &[Goal::MessagesPerSecond(3_000_000.0)],
        ),
    ]
}
