//! Ends of endpoints that are not connected or in this process, and the end of a socket.

use super::*;
use switchboard_socket::{
    ErrorKind,
    SocketType::{Dish, Radio},
};

#[tokio::test]
async fn a_group_that_was_joined_twice_needs_two_leaves() {
    for endpoint in endpoints() {
        let (radio, dish) = pair(Radio, Dish, &endpoint).await;
        dish.join("g").unwrap();
        dish.join("g").unwrap();
        dish.leave("g").unwrap();
        let receive = async {
            loop {
                send(&radio, ["g", "body"]).await;
                tokio::task::yield_now().await;
                if let Some(message) = dish.try_recv().unwrap() {
                    break message;
                }
            }
        };
        let message = timeout(LIMIT, receive).await.expect("the group is joined still");
        assert_eq!(message, Message::from(["g", "body"]));
        dish.leave("g").unwrap();
        assert_eq!(dish.leave("g").unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
