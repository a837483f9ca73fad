//! JSON of INFO and CONNECT.

use super::ProtocolError;
use crate::Outbox;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fmt;

/// Description of a server, which it sends first and whenever it changes. Unknown fields are ignored.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Info {
    /// Unique id of the server.
    pub server_id: String,
    /// Name of the server.
    pub server_name: String,
    /// Version of NATS that the server follows; clients compare it before they use a feature.
    pub version: String,
    /// Version of Go, empty where the server is not written in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub go: String,
    /// Host that the server listens on.
    pub host: String,
    /// Port that the server listens on.
    pub port: u16,
    /// Version of the protocol; 1 means that INFO may be sent again.
    pub proto: i32,
    /// The server accepts headers.
    pub headers: bool,
    /// Largest payload with its headers, in bytes. A [`Server`](super::Server) sends its own limit here.
    pub max_payload: u64,
    /// Number of the connection.
    pub client_id: u64,
    /// CONNECT needs credentials.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// The client has to start TLS.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_required: bool,
    /// The client may start TLS.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_available: bool,
    /// The server has JetStream.
    #[serde(skip_serializing_if = "is_false")]
    pub jetstream: bool,
    /// Bytes for the client to sign.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// Other addresses of the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_urls: Vec<String>,
    /// Lame duck mode: the server drains, and clients move to another one.
    #[serde(skip_serializing_if = "is_false")]
    pub ldm: bool,
}

/// Options and credentials of a client. Without a field, `verbose`, `pedantic` and `echo` are true, as in the servers
/// of NATS. Unknown fields are ignored.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Connect {
    /// The client wants `+OK` for each command.
    pub verbose: bool,
    /// The client wants an error for a publication to an invalid subject.
    pub pedantic: bool,
    /// Messages return to the connection that published them.
    pub echo: bool,
    /// The client requires TLS.
    pub tls_required: bool,
    /// The client accepts headers.
    pub headers: bool,
    /// The client wants a message with the status 503 if its request has no subscriber; needs `headers`.
    pub no_responders: bool,
    /// Version of the protocol; 1 means that INFO may be sent again.
    pub protocol: i32,
    /// Name of the connection, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Language of the client.
    pub lang: String,
    /// Version of the client.
    pub version: String,
    /// Credentials.
    #[serde(flatten)]
    pub credentials: Credentials,
}

/// Credentials of a client, none of them verified. Compare secrets in constant time.
#[derive(Clone, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Credentials {
    /// Username.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// Token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<String>,
    /// JWT of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt: Option<String>,
    /// Public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<String>,
    /// Signature of the nonce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sig: Option<String>,
}

impl Default for Connect {
    fn default() -> Connect {
        Connect {
            verbose: true,
            pedantic: true,
            echo: true,
            tls_required: false,
            headers: false,
            no_responders: false,
            protocol: 0,
            name: None,
            lang: String::new(),
            version: String::new(),
            credentials: Credentials::default(),
        }
    }
}

impl Connect {
    pub(super) fn read(json: &[u8]) -> Result<Connect, ProtocolError> {
        read("CONNECT", json)
    }

    pub(super) fn write(&self, out: &mut Outbox) {
        write("CONNECT ", self, out);
    }
}

impl Info {
    pub(super) fn read(json: &[u8]) -> Result<Info, ProtocolError> {
        read("INFO", json)
    }

    pub(super) fn write(&self, out: &mut Outbox) {
        write("INFO ", self, out);
    }
}

impl Credentials {
    /// Returns the credentials in the form of the metadata `authorization`: `Bearer` and the JWT or the token, or
    /// `Basic` with the username and the password. `None` without any of these: a public key alone proves nothing.
    pub fn authorization(&self) -> Option<String> {
        if let Some(token) = self.jwt.as_ref().or(self.auth_token.as_ref()) {
            return Some(format!("Bearer {token}"));
        }
        let pass = self.pass.as_deref().unwrap_or_default();
        let user = self.user.as_ref()?;
        Some(format!("Basic {}", crate::base64::encode(format!("{user}:{pass}").as_bytes())))
    }
}

/// Writes no secrets.
impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("verbose", &self.verbose)
            .field("pedantic", &self.pedantic)
            .field("echo", &self.echo)
            .field("tls_required", &self.tls_required)
            .field("headers", &self.headers)
            .field("no_responders", &self.no_responders)
            .field("protocol", &self.protocol)
            .field("name", &self.name)
            .field("lang", &self.lang)
            .field("version", &self.version)
            .field("credentials", &self.credentials)
            .finish()
    }
}

/// Writes the username and the public key only.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ user: {:?}, nkey: {:?}, .. }}", self.user, self.nkey)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Reads an object. The error does not repeat the text, which may have secrets.
fn read<T: DeserializeOwned>(verb: &str, json: &[u8]) -> Result<T, ProtocolError> {
    if json.first() != Some(&b'{') {
        return Err(ProtocolError::parser(format!("{verb} has no JSON object")));
    }
    serde_json::from_slice(json).map_err(|error| {
        let problem = match error.classify() {
            serde_json::error::Category::Data => "has a field of another type, or one field twice",
            _ => "is malformed",
        };
        ProtocolError::parser(format!("JSON of {verb} {problem} at column {}", error.column()))
    })
}

fn write(verb: &str, value: &impl Serialize, out: &mut Outbox) {
    let json = serde_json::to_vec(value).expect("strings, numbers and lists are JSON");
    let tail = out.tail();
    tail.extend_from_slice(verb.as_bytes());
    tail.extend_from_slice(&json);
    tail.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_have_the_defaults_of_nats() {
        let connect = Connect::read(b"{}").unwrap();
        assert_eq!(connect, Connect::default());
        assert!(connect.verbose && connect.pedantic && connect.echo && !connect.headers);
        let text = br#"{"verbose":false,"echo":false,"user":"a","pass":"s3cret","later":[{}],"name":null}"#;
        let connect = Connect::read(text).unwrap();
        assert!(!connect.verbose && connect.pedantic && !connect.echo);
        assert_eq!(connect.credentials.user.as_deref(), Some("a"));
        assert_eq!(connect.credentials.pass.as_deref(), Some("s3cret"));
        let shown = format!("{connect:?}");
        assert!(shown.contains("\"a\"") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn credentials_have_the_form_of_authorization() {
        let credentials = |json: &str| Connect::read(json.as_bytes()).unwrap().credentials.authorization();
        for (json, authorization) in [
            (r#"{"user":"ali","pass":"s3cret"}"#, Some("Basic YWxpOnMzY3JldA==")),
            (r#"{"user":"ali"}"#, Some("Basic YWxpOg==")),
            (r#"{"auth_token":"t0ken","user":"ali"}"#, Some("Bearer t0ken")),
            (r#"{"jwt":"a.b.c","auth_token":"t0ken","sig":"x"}"#, Some("Bearer a.b.c")),
            (r#"{"nkey":"UABC","sig":"x"}"#, None),
            (r#"{"pass":"s3cret"}"#, None),
        ] {
            assert_eq!(credentials(json).as_deref(), authorization, "{json}");
        }
    }

    #[test]
    fn malformed_json_is_refused_without_its_text() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "CONNECT has no JSON object"),
            (b"[]", "CONNECT has no JSON object"),
            (b"{\"pass\":\"s3cret\"", "JSON of CONNECT is malformed at column 16"),
            (
                b"{\"verbose\":1}",
                "JSON of CONNECT has a field of another type, or one field twice at column 12",
            ),
            (b"{} {}", "JSON of CONNECT is malformed at column 4"),
        ];
        for (json, text) in cases {
            assert_eq!(Connect::read(json).unwrap_err().message(), *text);
        }
        let nested = [b"{\"x\":".to_vec(), vec![b'['; 4000]].concat();
        assert!(Connect::read(&nested).is_err(), "nesting is limited");
    }

    #[test]
    fn info_is_one_line() {
        let info = Info {
            server_name: "a\r\nb".to_owned(),
            connect_urls: vec!["h:1".to_owned()],
            ..Info::default()
        };
        let mut out = Outbox::new();
        info.write(&mut out);
        let line = out.take_all();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let json = line.strip_prefix(b"INFO ").unwrap().strip_suffix(b"\r\n").unwrap();
        assert_eq!(Info::read(json), Ok(info));
    }
}
