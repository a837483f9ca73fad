//! Responses of goim's logic.

use serde::Serialize;
use switchboard::plugin::RouteResponse;

/// Success.
pub(crate) const OK: i32 = 0;
/// The request has an error.
pub(crate) const BAD_REQUEST: i32 = -400;
/// The push failed.
pub(crate) const SERVER_ERROR: i32 = -500;

const JSON: &str = "application/json; charset=utf-8";

/// Returns a response without data.
pub(crate) fn error(code: i32, message: &str) -> RouteResponse {
    with_status(200, JSON, code, message)
}

/// Returns a response with data.
pub(crate) fn data(data: &impl Serialize) -> RouteResponse {
    // Lists and numbers have JSON.
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    let body = format!("{{\"code\":0,\"message\":\"\",\"data\":{}}}", escaped(&data));
    RouteResponse::new(200).header("content-type", JSON).body(body)
}

/// Returns the response to parameters that cannot be read: goim sends its status before it knows the type of the body.
pub(crate) fn bad_query(message: &str) -> RouteResponse {
    with_status(400, "text/plain; charset=utf-8", BAD_REQUEST, message)
}

/// Returns a response without data and with another HTTP status.
pub(crate) fn with_status(status: u16, content_type: &str, code: i32, message: &str) -> RouteResponse {
    let message = serde_json::to_string(message).unwrap_or_default();
    let body = format!("{{\"code\":{code},\"message\":{}}}", escaped(&message));
    RouteResponse::new(status).header("content-type", content_type).body(body)
}

/// Escapes the characters in JSON that Go's encoder escapes as well.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard::plugin::RouteBody;

    fn body(response: RouteResponse) -> String {
        let RouteBody::Whole(body) = response.body else { panic!("pieces") };
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn responses_have_the_bytes_of_goim() {
        let ok = body(error(OK, ""));
        assert_eq!((&*ok, ok.len()), (r#"{"code":0,"message":""}"#, 23));
        assert_eq!(
            body(error(SERVER_ERROR, "a \"b\" <c>")),
            r#"{"code":-500,"message":"a \"b\" \u003cc\u003e"}"#
        );
        assert_eq!(body(data(&Vec::<u8>::new())), r#"{"code":0,"message":"","data":[]}"#);
        let refused = bad_query("x");
        assert_eq!(refused.status, 400);
        assert_eq!(refused.headers, [("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())]);
    }
}
