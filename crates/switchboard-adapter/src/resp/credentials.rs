//! Credentials of clients in the form in which the server's checks read those of calls.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use switchboard_wire::{Metadata, resp::Credentials};

/// User of a client that sends a password alone.
const DEFAULT_USER: &[u8] = b"default";
/// Metadata with API keys.
const API_KEY: &str = "x-api-key";

/// Returns the metadata of a call with these credentials, in the forms that checks read, which are tried in this order:
/// a name and a password as `authorization: Basic`, and the password as `authorization: Bearer` and as `x-api-key`. A
/// client that sends a password alone, or the user `default`, most likely has a token. Forms with bytes that metadata
/// cannot have are left out.
pub(super) fn forms(credentials: &Credentials) -> Vec<Metadata> {
    let (name, password) = (credentials.username(), credentials.password());
    let has_name = name.is_some_and(|name| name[..] != *DEFAULT_USER);
    let pair = [name.map_or(DEFAULT_USER, |name| name), b":", password].concat();
    let basic = form([("authorization", format!("Basic {}", STANDARD.encode(pair)).into())]);
    let bearer =
        form([("authorization", [b"Bearer ", &password[..]].concat().into()), (API_KEY, password.clone())]);
    let forms = if has_name { [basic, bearer] } else { [bearer, basic] };
    forms.into_iter().flatten().collect()
}

fn form<const N: usize>(entries: [(&str, Bytes); N]) -> Option<Metadata> {
    let mut metadata = Metadata::new();
    for (name, value) in entries {
        metadata.insert(name, value).ok()?;
    }
    Some(metadata)
}

/// Adds the credentials of a connection to the metadata of a call, unless the call has its own of that name.
pub(super) fn add(credentials: &Metadata, call: &mut Metadata) {
    for (name, value) in credentials.iter() {
        if call.value(name).is_none() {
            // It was accepted in other metadata before.
            let _ = call.insert(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_the_form_of_those_of_calls() {
        let read = |user: Option<&'static str>, password: &'static str| {
            let credentials = Credentials::new(user.map(Into::into), password.into());
            let text = |form: &Metadata| form.text("authorization").map(str::to_owned);
            forms(&credentials).iter().filter_map(text).collect::<Vec<_>>()
        };
        assert_eq!(read(Some("ali"), "s3cret"), ["Basic YWxpOnMzY3JldA==", "Bearer s3cret"]);
        for user in [None, Some("default")] {
            assert_eq!(read(user, "s3cret"), ["Bearer s3cret", "Basic ZGVmYXVsdDpzM2NyZXQ="]);
        }
        assert_eq!(read(None, "a\nb").len(), 1, "no line break in metadata");
        let mut call = Metadata::new();
        call.insert("authorization", "Bearer own").unwrap();
        add(&forms(&Credentials::new(None, "other".into()))[0], &mut call);
        assert_eq!((call.text("authorization"), call.text("x-api-key")), (Some("Bearer own"), Some("other")));
    }
}
