//! Kinds of credentials that a server accepts, with their names in errors, `WWW-Authenticate` and OpenAPI.

use super::Auth;
use std::{borrow::Cow, fmt};

/// A kind of credentials that a caller can send. [`Auth::credential`] returns the kind that an [`Auth`]
/// reads.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Credential {
    /// The metadata `authorization`, starting with this scheme: `Bearer`, `Basic`.
    Authorization(Cow<'static, str>),
    /// A TLS client certificate.
    Certificate,
    /// The metadata entry with this name, which is a header on HTTP.
    Metadata(Cow<'static, str>),
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credential::Authorization(scheme) => write!(f, "authorization: {scheme}"),
            Credential::Certificate => f.write_str("a client certificate"),
            Credential::Metadata(name) => write!(f, "metadata {name}"),
        }
    }
}

/// Kinds of credentials that a server reports to a caller without credentials.
#[derive(Debug, Default)]
pub struct Accepted {
    /// Suffix of the error text: `; send authorization: Bearer, or metadata x-api-key`.
    pub hint: String,
    #[cfg(feature = "http")]
    credentials: Vec<Credential>,
    /// Values of `WWW-Authenticate`.
    #[cfg(feature = "http")]
    pub challenges: Vec<http::HeaderValue>,
}

impl Accepted {
    /// Collects the credentials that these checks accept.
    pub fn by(auth: &[Box<dyn Auth>]) -> Accepted {
        let mut credentials: Vec<Credential> = Vec::new();
        for credential in auth.iter().filter_map(|auth| auth.credential()) {
            if !credentials.contains(&credential) {
                credentials.push(credential);
            }
        }
        let named: Vec<_> = credentials.iter().map(ToString::to_string).collect();
        Accepted {
            hint: match named.is_empty() {
                true => String::new(),
                false => format!("; send {}", named.join(", or ")),
            },
            #[cfg(feature = "http")]
            challenges: challenges(&credentials, auth),
            #[cfg(feature = "http")]
            credentials,
        }
    }

    /// Returns the `securitySchemes` of OpenAPI and the alternatives for `security`.
    #[cfg(feature = "http")]
    pub fn openapi(&self) -> (serde_json::Value, serde_json::Value) {
        use serde_json::json;
        let mut schemes = serde_json::Map::new();
        let mut any = Vec::new();
        for credential in &self.credentials {
            let (name, scheme) = match credential {
                Credential::Authorization(scheme) => {
                    let scheme = scheme.to_ascii_lowercase();
                    (scheme.clone(), json!({"type": "http", "scheme": scheme}))
                }
                Credential::Certificate => ("certificate".to_owned(), json!({"type": "mutualTLS"})),
                Credential::Metadata(name) => {
                    (name.to_string(), json!({"type": "apiKey", "in": "header", "name": name}))
                }
            };
            any.push(json!({&*name: []}));
            schemes.insert(name, scheme);
        }
        (schemes.into(), any.into())
    }
}

/// Returns one challenge for each kind of credentials. RFC 9110 requires at least one in a response with
/// status 401. Kinds without a registered scheme get a descriptive name.
#[cfg(feature = "http")]
fn challenges(credentials: &[Credential], auth: &[Box<dyn Auth>]) -> Vec<http::HeaderValue> {
    const REALM: &str = "realm=\"switchboard\"";
    let mut texts: Vec<String> = credentials
        .iter()
        .map(|credential| match credential {
            Credential::Authorization(scheme) => format!("{} {REALM}", token(scheme)),
            Credential::Certificate => format!("Certificate {REALM}"),
            Credential::Metadata(name) => format!("ApiKey {REALM}, header=\"{}\"", token(name)),
        })
        .collect();
    if texts.is_empty() {
        texts.extend(auth.iter().map(|auth| format!("{} {REALM}", token(auth.name()))));
    }
    texts.iter().filter_map(|text| http::HeaderValue::try_from(text).ok()).collect()
}

/// Replaces characters that an HTTP token must not contain.
#[cfg(feature = "http")]
fn token(text: &str) -> String {
    let is_token = |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
    let token: String = text.chars().map(|letter| if is_token(letter) { letter } else { '-' }).collect();
    if token.is_empty() { "Custom".to_owned() } else { token }
}
