use super::*;
use crate::goim::imcloud::{
    AUTH_REPLY, HEARTBEAT_REPLY, MISSING_PARAMETER, Push, PushKind, Receivers, UNKNOWN_COMMAND,
};
use serde_json::json;

fn command(body: &str) -> Outcome {
    after_auth(Variant::ImCloud, &packet(1, operation::RAW, 3, body.as_bytes()))
}

#[test]
fn replies_have_the_bodies_of_im_cloud() {
    let requests = [auth_packet(), packet(1, operation::HEARTBEAT, 2, br#"{"type":"heartbeat"}"#)].concat();
    let (events, output, error) = run_split(Variants::Only(Variant::ImCloud), &requests);
    assert!(matches!(events[..], [Event::Auth(_), Event::Heartbeat]));
    let replies = [
        packet(1, operation::AUTH_REPLY, 1, AUTH_REPLY),
        packet(1, operation::HEARTBEAT_REPLY, 2, HEARTBEAT_REPLY),
    ];
    assert_eq!((output, error), (replies.concat(), None));
}

#[test]
fn an_authentication_without_one_of_four_members_closes_the_connection() {
    let whole = json!({ "mid": 123, "room_id": "live://1000", "platform": "web", "accepts": [1000] });
    for member in ["mid", "room_id", "platform", "accepts"] {
        let mut body = whole.clone();
        body.as_object_mut().unwrap().remove(member);
        let bytes = packet(1, operation::AUTH, 1, body.to_string().as_bytes());
        let (events, output, error) = run_split(Variants::Only(Variant::ImCloud), &bytes);
        let error = error.unwrap();
        assert_eq!((events, output, error.kind()), (Vec::new(), Vec::new(), ErrorKind::Auth));
        let text = format!("authentication lacks the member \"{member}\", which im-cloud requires");
        assert_eq!(error.message(), text);
        assert_eq!(run_split(Variants::Only(Variant::Goim), &bytes).2, None, "goim requires none");
    }
}

#[test]
fn the_authentication_selects_the_variant_where_both_are_served() {
    let auth = |protocol: &str| {
        let members = json!({
            "mid": 1, "room_id": "live://1", "platform": "web", "accepts": [], "protocol": protocol
        });
        packet(1, operation::AUTH, 1, members.to_string().as_bytes())
    };
    let goim = packet(1, operation::AUTH_REPLY, 1, b"");
    let im_cloud = packet(1, operation::AUTH_REPLY, 1, AUTH_REPLY);
    assert_eq!(run_split(Variants::ByAuth, &auth_packet()).1, goim);
    assert_eq!(run_split(Variants::ByAuth, &auth("goim")).1, goim);
    assert_eq!(run_split(Variants::ByAuth, &auth("im-cloud")).1, im_cloud);
    assert_eq!(run_split(Variants::Only(Variant::Goim), &auth("im-cloud")).1, goim);
}

#[test]
fn commands_of_devices_are_pushes() {
    for (body, to) in [
        (r#"{"cmd":"pushMids","data":{"msg":"hi","mids":123}}"#, Receivers::Mids(vec![123])),
        (r#"{"cmd":"pushMids","data":{"msg":"hi","mids":["1",2]}}"#, Receivers::Mids(vec![1, 2])),
        (r#"{"cmd":"pushKeys","data":{"msg":"hi","keys":"a"}}"#, Receivers::Keys(vec!["a".to_owned()])),
        (
            r#"{"cmd":"pushRoom","data":{"msg":"hi","type":"live://","room":1000}}"#,
            Receivers::Room("live://1000".to_owned()),
        ),
        (
            r#"{"cmd":"pushRoom","data":{"msg":"hi","type":"live","room":"1000"}}"#,
            Receivers::Room("live://1000".to_owned()),
        ),
        (r#"{"cmd":"pushAll","data":{"msg":"hi"}}"#, Receivers::All),
    ] {
        let push = Push { to, message: Bytes::from_static(b"hi") };
        assert_eq!(command(body), (vec![Event::Push(push)], Vec::new(), None), "{body}");
    }
    let (events, ..) = command(r#"{"cmd":"pushAll","data":{"msg":{"a":[1,"b"]}}}"#);
    let message = Bytes::from_static(br#"{"a":[1,"b"]}"#);
    assert_eq!(events, [Event::Push(Push { to: Receivers::All, message })]);
}

#[test]
fn commands_without_effect_are_replied_to_with_the_reason() {
    for (body, refusal, text) in [
        (r#"{"cmd":"pushTo","data":{"msg":"hi"}}"#, Refusal::Command, UNKNOWN_COMMAND),
        (r#"{"cmd":1,"data":{}}"#, Refusal::Command, UNKNOWN_COMMAND),
        ("[]", Refusal::Command, UNKNOWN_COMMAND),
        ("hello", Refusal::Command, UNKNOWN_COMMAND),
        ("", Refusal::Command, UNKNOWN_COMMAND),
        (r#"{"cmd":"pushAll"}"#, Refusal::Parameter, MISSING_PARAMETER),
        (r#"{"cmd":"pushAll","data":{"msg":""}}"#, Refusal::Parameter, MISSING_PARAMETER),
        (r#"{"cmd":"pushAll","data":{"msg":"0"}}"#, Refusal::Parameter, MISSING_PARAMETER),
        (r#"{"cmd":"pushMids","data":{"msg":"hi","mids":[]}}"#, Refusal::Parameter, MISSING_PARAMETER),
        (r#"{"cmd":"pushMids","data":{"msg":"hi","mids":["x"]}}"#, Refusal::Parameter, MISSING_PARAMETER),
        (r#"{"cmd":"pushRoom","data":{"msg":"hi","room":"1"}}"#, Refusal::Parameter, MISSING_PARAMETER),
    ] {
        let events = vec![Event::Refused { operation: operation::RAW, refusal }];
        assert_eq!(command(body), (events, packet(1, operation::RAW, 3, text.as_bytes()), None), "{body}");
    }
}

#[test]
fn other_packets_have_no_reply() {
    let (events, output, _) = after_auth(Variant::ImCloud, &packet(1, 4, 3, b"x"));
    assert_eq!(events, [Event::Message { operation: 4, body: Bytes::from_static(b"x") }]);
    assert!(output.is_empty());
}

#[test]
fn bodies_of_the_http_api_have_the_sizes_that_were_seen() {
    assert_eq!(crate::goim::imcloud::ACCEPTED.len(), 33);
    assert_eq!(PushKind::from_command("pushKeys"), Some(PushKind::Keys));
}
