//! The body of the authentication.

use super::{ErrorKind, Limits, ProtocolError, Variant, Variants};
use bytes::Bytes;
use serde_json::{Map, Value};

/// Authentication of a device.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Auth {
    /// Operations that the device receives.
    pub accepts: Vec<i32>,
    /// The whole body, for a verifier that reads more of it.
    pub body: Bytes,
    /// Key of the device, of which there is one connection. `None` lets the server choose it.
    pub key: Option<String>,
    /// Number of the user, 0 if there is none.
    pub mid: i64,
    /// Platform of the device, empty if it names none.
    pub platform: String,
    /// Name of the variant that the device selects.
    pub protocol: Option<String>,
    /// First room, `type://id`.
    pub room: Option<String>,
    /// Credentials of the device.
    pub token: Option<String>,
}

impl Auth {
    /// Reads a body, and selects the variant of the connection. Unknown members are ignored.
    ///
    /// # Errors
    /// If the body is not an object of JSON, a member has another type, a limit is exceeded, or a member that im-cloud
    /// requires is missing.
    pub(super) fn read(
        body: Bytes,
        variants: Variants,
        limits: &Limits,
    ) -> Result<(Auth, Variant), ProtocolError> {
        let members: Map<String, Value> = serde_json::from_slice(&body).map_err(|error| {
            ProtocolError::new(ErrorKind::Auth, format!("authentication is not an object of JSON: {error}"))
        })?;
        let members = Members(&members);
        let auth = Auth {
            accepts: members.accepts(limits.accepts_max)?,
            key: members.text("key", limits.key_bytes_max, "key_bytes_max")?,
            mid: members.mid()?,
            platform: members
                .text("platform", limits.platform_bytes_max, "platform_bytes_max")?
                .unwrap_or_default(),
            protocol: members.text("protocol", limits.platform_bytes_max, "platform_bytes_max")?,
            room: members.text("room_id", limits.room_bytes_max, "room_bytes_max")?,
            token: members.text("token", limits.body_bytes_max, "body_bytes_max")?,
            body,
        };
        let variant = variants.of(&auth);
        if variant == Variant::ImCloud {
            members.require(&["mid", "room_id", "platform", "accepts"])?;
        }
        Ok((auth, variant))
    }

    /// Returns the body of an authentication, as a client sends it: `body` is not used.
    pub fn to_json(&self) -> Vec<u8> {
        let mut members = Map::new();
        members.insert("mid".into(), self.mid.into());
        let texts = [
            ("key", self.key.as_deref()),
            ("room_id", self.room.as_deref()),
            ("platform", Some(&*self.platform)),
            ("protocol", self.protocol.as_deref()),
            ("token", self.token.as_deref()),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                members.insert(name.into(), text.into());
            }
        }
        members.insert("accepts".into(), self.accepts.clone().into());
        Value::Object(members).to_string().into_bytes()
    }
}

/// Members of the body, whose names are compared as goim does: exactly, then without case.
struct Members<'a>(&'a Map<String, Value>);

impl<'a> Members<'a> {
    /// Returns a member; `None` if it is missing or null.
    fn find(&self, name: &str) -> Option<&'a Value> {
        let exact = self.0.get(name);
        let mut others = self.0.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        exact.or_else(|| others.next().map(|(_, value)| value)).filter(|value| !value.is_null())
    }

    /// Returns a text, `None` if it is missing or empty.
    fn text(&self, name: &str, bytes_max: u32, limit: &str) -> Result<Option<String>, ProtocolError> {
        match self.find(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() > bytes_max as usize => {
                let what = format!("member \"{name}\" of the authentication");
                Err(ProtocolError::over(&what, text.len(), "bytes", bytes_max as usize, limit))
            }
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => Err(wrong_type(name, "a string")),
        }
    }

    /// Returns the number of the user: a number, or its text, which im-cloud's clients may send.
    fn mid(&self) -> Result<i64, ProtocolError> {
        let number = match self.find("mid") {
            None => Some(0),
            Some(Value::Number(number)) => number.as_i64(),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        number.ok_or_else(|| wrong_type("mid", "an integer of 64 bits"))
    }

    fn accepts(&self, count_max: u32) -> Result<Vec<i32>, ProtocolError> {
        let list = match self.find("accepts") {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(wrong_type("accepts", "an array")),
        };
        if list.len() > count_max as usize {
            let what = "member \"accepts\" of the authentication";
            return Err(ProtocolError::over(
                what,
                list.len(),
                "operations",
                count_max as usize,
                "accepts_max",
            ));
        }
        let numbers = list.iter().map(|value| value.as_i64().and_then(|number| i32::try_from(number).ok()));
        numbers
            .collect::<Option<Vec<i32>>>()
            .ok_or_else(|| wrong_type("accepts", "an array of integers of 32 bits"))
    }

    /// Checks that all of these members are there.
    fn require(&self, names: &[&str]) -> Result<(), ProtocolError> {
        let missing = names.iter().find(|name| self.find(name).is_none());
        missing.map_or(Ok(()), |name| {
            let text = format!("authentication lacks the member \"{name}\", which im-cloud requires");
            Err(ProtocolError::new(ErrorKind::Auth, text))
        })
    }
}

fn wrong_type(name: &str, wanted: &str) -> ProtocolError {
    let text = format!("member \"{name}\" of the authentication is not {wanted}");
    ProtocolError::new(ErrorKind::Auth, text)
}
