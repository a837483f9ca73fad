//! The client: callers in a closed loop, each with one call outstanding and a deadline, as in `switchboard bench`.

use crate::{Echo, PATH, cores, runtime};
use prost::bytes::Bytes;
use std::{
    cell::RefCell,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};
use tonic::{Request, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

const WARM_UP: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Measures and prints one line.
pub(crate) fn measure(address: &str, callers: usize, bytes: usize, seconds: f64) {
    let address = address.trim_start_matches("tcp://");
    let threads = cores().min(callers);
    let begin = Instant::now() + WARM_UP;
    let end = begin + Duration::from_secs_f64(seconds);
    let workers: Vec<_> = (0..threads)
        .map(|at| {
            let share = callers / threads + usize::from(at < callers % threads);
            let address = address.to_owned();
            thread::spawn(move || worker(&address, share, bytes, begin, end))
        })
        .collect();
    let mut micros: Vec<u32> =
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker ends")).collect();
    micros.sort_unstable();
    let at = |part: f64| micros.get((micros.len() as f64 * part) as usize).copied().unwrap_or_default();
    println!(
        "{callers} callers, {bytes} B: {:.0} calls/s, p50 {} us, p99 {} us",
        micros.len() as f64 / seconds,
        at(0.5),
        at(0.99)
    );
}

/// Latencies of the calls of one thread, in microseconds.
fn worker(address: &str, callers: usize, bytes: usize, begin: Instant, end: Instant) -> Vec<u32> {
    let taken = Rc::new(RefCell::new(Vec::new()));
    runtime().block_on(tokio::task::LocalSet::new().run_until(async {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.tcp_nodelay(true).connect().await.expect("the server answers");
        let payload = Bytes::from(vec![7; bytes]);
        let callers: Vec<_> = (0..callers)
            .map(|_| {
                let (channel, payload, taken) = (channel.clone(), payload.clone(), taken.clone());
                tokio::task::spawn_local(async move {
                    let mut client = Grpc::new(channel);
                    let path = http::uri::PathAndQuery::from_static(PATH);
                    let mut from = Instant::now();
                    while from < end {
                        client.ready().await.expect("the connection lives");
                        let mut request = Request::new(Echo { payload: Some(payload.clone()) });
                        request.set_timeout(TIMEOUT);
                        let codec = ProstCodec::<Echo, Echo>::default();
                        let reply = client.unary(request, path.clone(), codec).await.expect("an answer");
                        assert_eq!(
                            reply.into_inner().payload.map_or(0, |payload| payload.len()),
                            payload.len()
                        );
                        let now = Instant::now();
                        if now >= begin && now < end {
                            taken.borrow_mut().push((now - from).as_micros() as u32);
                        }
                        from = now;
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("a caller ends");
        }
    }));
    taken.take()
}
