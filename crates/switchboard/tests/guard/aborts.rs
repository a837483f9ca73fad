//! Connections that are aborted with whatever goes over them.

use super::*;
use switchboard::{Code, client::ConnectionAborter};

#[tokio::test]
async fn an_abort_ends_calls_and_connections_on_every_wire() {
    let several = [("?balance=round_robin", Codec::Postcard), ("?wire=grpc&retries=2", Codec::Json)];
    for (wire, codec) in WIRES.into_iter().chain(several) {
        for is_dropped in [false, true] {
            let (running, seen) = start(Server::new()).await;
            let url = match wire.strip_prefix("ws") {
                Some(options) => running.url().replace("tcp://", "ws://") + options,
                None => running.url() + wire,
            };
            let aborter = ConnectionAborter::new();
            let channel = Channel::builder(&url).aborted_by(&aborter).connect().await.unwrap();
            let client = Client { wire, codec, channel };
            let calls: Vec<_> = (0..3)
                .map(|_| {
                    let call = client.call::<()>(&HANG, &"");
                    tokio::spawn(async move { call.await.map(drop) })
                })
                .collect();
            soon(seen.until(|seen| seen.hanging() == 3)).await;
            assert!(aborter.connections() > 0, "{wire}");
            let client = (!is_dropped).then_some(client);
            assert!(aborter.abort() > 0, "{wire}");
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
            assert_eq!(
                (aborter.connections(), aborter.abort(), running.stats().accepted > 0),
                (0, 0, true),
                "{wire}"
            );
            assert_eq!(running.stats().connections, 0, "{wire}");
        }
    }
}
