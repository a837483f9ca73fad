//! Rates of calls.

use super::*;
use switchboard::{Code, Retry, guard::Rate};

#[tokio::test]
async fn rates_hold_on_every_wire() {
    for (options, codec) in WIRES {
        // One call in a thousand seconds: no test waits for it.
        let (running, _) =
            start(Server::new().rate(Rate::per_second(0.001).burst(3).methods("test.Probe/E*"))).await;
        let client = Client::on(&running, options, codec).await;
        for _ in 0..3 {
            client.echo().await.unwrap();
        }
        let status = failed(client.echo().await);
        assert_eq!(status.code(), Code::ResourceExhausted, "{options}: {status}");
        let text = "more than 0.001 calls a second of all callers together to test.Probe/E*";
        assert_eq!(status.message(), text, "{options}");
        if options.is_empty() {
            let Retry::After(pause) = status.retry() else { panic!("{:?}", status.retry()) };
            assert!((900..=1000).contains(&pause.as_secs()), "{pause:?}");
        }
        // Methods that are not meant are not counted.
        assert_eq!(failed(soon(client.call::<()>(&FAIL, &"x")).await).code(), Code::NotFound);
    }
}

#[tokio::test]
async fn keys_are_counted_apart() {
    let rate = || Rate::per_second(0.001);
    let server = Server::new()
        .rate(rate().burst(4).by_peer())
        .rate(rate().by_metadata("Tenant"))
        .rate(rate().burst(2).by_method());
    assert_eq!(server.layers(), ["rate of *", "rate of *", "rate of *"]);
    let (running, _) = start(server).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let mut answers = Vec::new();
    for (method, tenant) in [
        (&MIRROR, "a"),
        (&MIRROR, "a"),
        (&MIRROR, "b"),
        (&MIRROR, "c"),
        (&WHERE, "d"),
        (&WHERE, "e"),
        (&WHERE, "f"),
    ] {
        let call = channel.unary(method, Codec::Postcard, Ok(vec![0u8]), |_, _| Ok(()));
        answers.push(match call.meta("tenant", tenant).await {
            Ok(_) => "ok".to_owned(),
            Err(status) => status.message().split(" of ").nth(1).unwrap().to_owned(),
        });
    }
    let expected =
        ["ok", "one value of tenant to *", "ok", "one method to *", "ok", "ok", "one address to *"];
    let expected = expected.map(|text| text.split(" of ").next().unwrap().to_owned());
    assert_eq!(answers, expected);
}

/// Calls that one tenant's rate refuses take nothing of the rate for all of them.
#[tokio::test]
async fn refused_calls_take_no_tokens_of_other_rates() {
    let rate = || Rate::per_second(0.001);
    let server = Server::new().rate(rate().burst(50)).rate(rate().burst(5).by_metadata("tenant"));
    let (running, _) = start(server).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let mirror = |tenant: &'static str| {
        let channel = channel.clone();
        async move {
            let call = channel.unary(&MIRROR, Codec::Postcard, Ok(vec![0u8]), |_, _| Ok(()));
            call.meta("tenant", tenant).await.map(drop)
        }
    };
    // One after the other, and all that one read brings.
    let mut passed = 0;
    for _ in 0..100 {
        passed += u32::from(mirror("greedy").await.is_ok());
    }
    let calls: tokio::task::JoinSet<_> = (0..200).map(|_| mirror("greedy")).collect();
    passed += soon(calls.join_all()).await.iter().map(|call| u32::from(call.is_ok())).sum::<u32>();
    assert_eq!(passed, 5);
    for tenant in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        for _ in 0..5 {
            mirror(tenant).await.unwrap_or_else(|status| panic!("{tenant}: {status}"));
        }
    }
    let status = failed(mirror("j").await);
    assert!(status.message().contains("of all callers together"), "{status}");
}

#[tokio::test]
async fn wrong_rates_are_refused_at_the_start() {
    let server = || Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = config_error(server().rate(Rate::per_second(rate)).start().await);
        assert!(error.contains("calls per second is not a valid rate"), "{error}");
    }
    let error = config_error(server().rate(Rate::per_second(1.0).methods("x.*")).start().await);
    assert!(error.contains("rate: x.* matches no method"), "{error}");
}
