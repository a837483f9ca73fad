//! Shared subscriptions.

use crate::{
    AT_LEAST_ONCE, AT_MOST_ONCE,
    client::{Client, v4, v5},
    started,
};
use std::collections::BTreeSet;
use switchboard_wire::mqtt::Reason;

#[tokio::test]
async fn each_message_goes_to_one_member_also_when_one_is_killed() {
    let (bus, _, running) = started().await;
    let mut members = Vec::new();
    for number in 0..3 {
        let connect = if number == 1 { v4("m1") } else { v5(&format!("m{number}")) };
        let mut member = Client::connect(&running, connect).await;
        assert_eq!(member.subscribe("$share/workers/jobs/+", AT_LEAST_ONCE).await, Reason::GRANTED_QOS_1);
        members.push(member);
    }
    let mut other = Client::connect(&running, v4("other")).await;
    other.subscribe("$share/others/jobs/#", AT_MOST_ONCE).await;
    let mut publisher = Client::connect(&running, v4("publisher")).await;
    const COUNT: usize = 90;
    for number in 0..COUNT {
        publisher.publish(&format!("jobs/{}", number % 7), AT_LEAST_ONCE, &number.to_string()).await;
    }
    for _ in 0..COUNT {
        other.message().await;
    }
    other.settled().await;
    // Each has a third. The second acknowledges nothing and is killed: the others get its messages.
    let mut seen = BTreeSet::new();
    for _ in 0..COUNT / 3 {
        for member in [0, 2] {
            assert!(seen.insert(members[member].text().await.1));
        }
        members[1].message().await;
    }
    drop(members.remove(1));
    while seen.len() < COUNT {
        let (first, second) = members.split_at_mut(1);
        let (_, payload) = tokio::select! {
            text = first[0].text() => text,
            text = second[0].text() => text,
        };
        assert!(seen.insert(payload), "once");
    }
    drop(bus);
}

#[tokio::test]
async fn an_absent_member_keeps_the_cursor_of_its_group() {
    let (_, _, running) = started().await;
    let mut member = Client::connect(&running, v5("m")).await;
    member.subscribe("$share/g/t", AT_LEAST_ONCE).await;
    member.bye().await;
    let mut publisher = Client::connect(&running, v4("publisher")).await;
    for number in 0..5 {
        publisher.publish("t", AT_LEAST_ONCE, &number.to_string()).await;
    }
    let (mut member, ack) = Client::respond(&running, v5("m")).await;
    assert!(ack.session_present);
    for number in 0..5 {
        assert_eq!(member.text().await.1, number.to_string());
    }
    assert_eq!(member.unsubscribe("$share/g/t").await, [Reason::SUCCESS]);
    publisher.publish("t", AT_LEAST_ONCE, "of none").await;
    member.settled().await;
}
