//! Connections that are cut with whatever goes over them.

use super::*;
use switchboard::{Code, client::Cut};

#[tokio::test]
async fn a_cut_ends_calls_and_connections_on_every_wire() {
    let several = [("?balance=round_robin", Codec::Postcard), ("?wire=grpc&retries=2", Codec::Json)];
    for (wire, codec) in WIRES.into_iter().chain(several) {
        for is_dropped in [false, true] {
            let (running, seen) = start(Server::new()).await;
            let url = match wire.strip_prefix("ws") {
                Some(options) => running.url().replace("tcp://", "ws://") + options,
                None => running.url() + wire,
            };
            let cut = Cut::new();
            let channel = Channel::builder(&url).cut_by(&cut).connect().await.unwrap();
            let client = Client { wire, codec, channel };
            let calls: Vec<_> = (0..3)
                .map(|_| {
                    let call = client.call::<()>(&HANG, &"");
                    tokio::spawn(async move { call.await.map(drop) })
                })
                .collect();
            soon(seen.until(|seen| seen.hanging() == 3)).await;
            assert!(cut.connections() > 0, "{wire}");
            let client = (!is_dropped).then_some(client);
            assert!(cut.now() > 0, "{wire}");
            for call in calls {
                let status = failed(soon(call).await.unwrap());
                assert_eq!(status.code(), Code::Unavailable, "{wire}: {status}");
            }
            soon(seen.until(|seen| seen.hanging() == 0)).await;
            soon(async {
                while running.stats().connections > 0 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            // Nothing is opened again.
            if let Some(client) = client {
                let status = failed(client.echo().await);
                assert_eq!(status.code(), Code::Unavailable, "{wire}: {status}");
            }
            assert_eq!((cut.connections(), cut.now(), running.stats().accepted > 0), (0, 0, true), "{wire}");
            assert_eq!(running.stats().connections, 0, "{wire}");
        }
    }
}
