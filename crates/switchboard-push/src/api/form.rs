//! Parameters of im-cloud's requests: in the query, in a form or in JSON, as PHP reads them.

use percent_encoding::percent_decode;
use serde_json::{Map, Value};
use switchboard::plugin::RouteHead;

/// Reads the parameters of a request; those of the body replace those of the query. A body that cannot be read has
/// none.
pub(super) fn parameters(head: &RouteHead, body: &[u8]) -> Map<String, Value> {
    let mut found = Map::new();
    for (name, value) in &head.parameters {
        insert(&mut found, name, value.clone());
    }
    let is_json = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let sent = match serde_json::from_slice(body) {
        Ok(members) if is_json => members,
        _ => form(body),
    };
    found.extend(sent);
    found
}

/// Reads a form: names and values separated by `&` and `=`, percent-encoded.
fn form(body: &[u8]) -> Map<String, Value> {
    let mut found = Map::new();
    for pair in body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = (decoded(&pair[..at]), decoded(pair.get(at + 1..).unwrap_or_default()));
        insert(&mut found, &name, value);
    }
    found
}

fn decoded(text: &[u8]) -> String {
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

/// Adds a value. A name with `[]`, and a name that is repeated, has an array.
fn insert(found: &mut Map<String, Value>, name: &str, value: String) {
    let (name, is_array) = match name.split_once('[') {
        Some((name, _)) => (name, true),
        None => (name, false),
    };
    match found.get_mut(name) {
        Some(Value::Array(values)) => values.push(value.into()),
        Some(single) => *single = Value::Array(vec![single.take(), value.into()]),
        None if is_array => drop(found.insert(name.to_owned(), Value::Array(vec![value.into()]))),
        None => drop(found.insert(name.to_owned(), value.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_come_from_the_query_a_form_or_json() {
        let mut head = RouteHead::new("POST", "/im/push/keys");
        head.parameters = vec![("operation".into(), "9".into()), ("msg".into(), "query".into())];
        for (body, expected) in [
            (&b""[..], json!({ "operation": "9", "msg": "query" })),
            (
                b"msg=a+b%26%3D&keys[]=1&keys%5B%5D=2&empty&=x",
                json!({ "operation": "9", "msg": "a b&=", "keys": ["1", "2"], "empty": "", "": "x" }),
            ),
            (b"keys=1&keys=2&keys=3", json!({ "operation": "9", "msg": "query", "keys": ["1", "2", "3"] })),
            (
                b" {\"msg\":{\"a\":1},\"mids\":[1]}",
                json!({ "operation": "9", "msg": { "a": 1 }, "mids": [1] }),
            ),
            (b"{not json", json!({ "operation": "9", "msg": "query", "{not json": "" })),
        ] {
            let found = Value::Object(parameters(&head, body));
            assert_eq!(found, expected, "{}", body.escape_ascii());
        }
    }
}
