//! The gateway: a hub, and the plugins and services that serve it on one port.

use super::rooms::RoomClass;
use std::path::PathBuf;
use switchboard::{
    Server,
    auth::{Auth, Checked, Credential, Credentials, Jwt},
    guard::Rule,
};
use switchboard_adapter::Mqtt;
use switchboard_message::{TopicRule, TopicRules};
use switchboard_push::{Hub, Jwt as DeviceTokens, PushServer, adapter::goim::Goim};

/// Method that checks of credentials see for the login of a connection without calls, such as one of MQTT.
const LOGIN: &str = "switchboard.Connection/Login";
/// Role of clients of MQTT that may publish.
const PUBLISHER: &str = "push";

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    pub(super) keys: Keys,
    /// Token of callers of the API. `None`: all callers if devices are not verified, else no caller.
    pub(super) api_token: Option<String>,
    pub(super) has_mqtt: bool,
    pub(super) rooms: Vec<RoomClass>,
}

/// Verification of devices.
#[derive(Clone, Debug)]
pub(super) enum Keys {
    /// Every device is what it says it is.
    Open,
    /// Shared secret of JSON Web Tokens.
    Secret(String),
    /// File with the key set of JSON Web Tokens.
    Set(PathBuf),
}

impl Keys {
    /// Checks the secret, or the file with keys.
    pub(super) fn check(&self) -> Result<(), String> {
        self.jwt().map(drop)
    }

    /// Returns the check of tokens; `None` if every device is accepted.
    fn jwt(&self) -> Result<Option<Jwt>, String> {
        let jwt = match self {
            Keys::Open => return Ok(None),
            Keys::Secret(secret) => Jwt::secret(secret.as_bytes()),
            Keys::Set(path) => Jwt::jwks_file(path),
        };
        jwt.map(Some).map_err(|error| format!("keys of JSON Web Tokens: {error}"))
    }
}

impl Gateway {
    /// Creates a gateway that accepts every device and every caller, without histories.
    pub(crate) fn open() -> Gateway {
        Gateway { keys: Keys::Open, api_token: None, has_mqtt: true, rooms: Vec::new() }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.keys, Keys::Open)
    }

    /// Returns whether callers may push.
    pub(super) fn has_api(&self) -> bool {
        self.is_open() || self.api_token.is_some()
    }

    /// Adds the hub, the protocols of its devices and the API to a server.
    ///
    /// # Errors
    /// An invalid key, or an invalid pattern of rooms.
    pub(crate) async fn add_to(&self, server: Server) -> Result<Server, String> {
        let mut builder = Hub::builder();
        builder = match &self.keys {
            Keys::Open => builder.open(),
            Keys::Secret(secret) => builder.auth(DeviceTokens::hs256(secret)),
            Keys::Set(path) => builder.auth(DeviceTokens::jwks_file(path)),
        };
        for class in &self.rooms {
            builder = builder.rooms(class.pattern.as_str(), class.rooms.clone());
        }
        let hub = builder.build().await.map_err(|status| status.message().to_owned())?;
        let goim = Goim::new(hub.clone());
        let mut server = server.plugin(hub.clone()).plugin(goim.clone());
        server = match &self.api_token {
            Some(token) => {
                server.add(PushServer::new(&hub).token(token)).plugin(goim.api().token(token.as_str()))
            }
            None if self.is_open() => server.add(PushServer::new(&hub).open()).plugin(goim.api().open()),
            None => server,
        };
        if self.has_mqtt { self.with_mqtt(server, &hub) } else { Ok(server) }
    }

    /// Adds MQTT on the topics of the hub.
    fn with_mqtt(&self, server: Server, hub: &Hub) -> Result<Server, String> {
        let rules = TopicRules::new(self.topic_rules()).map_err(|status| status.message().to_owned())?;
        let server = server.plugin(Mqtt::new(hub.bus().clone()).rules(rules));
        let Some(jwt) = self.keys.jwt()? else { return Ok(server) };
        // The hub verifies all other devices, and the API its callers.
        Ok(server.auth(Logins(jwt)).rule(Rule::methods("switchboard.push.*").public()))
    }

    /// Returns the rules for clients of MQTT. Topics of users and keys carry orders to devices, and `push/` those to
    /// all and the lifecycle events.
    fn topic_rules(&self) -> Vec<TopicRule> {
        let rooms = || TopicRule::topics("room/>");
        let closed = TopicRule::topics(">").deny();
        if self.is_open() {
            return vec![rooms().public(), closed];
        }
        vec![rooms().to_subscribe(), rooms().to_publish().roles([PUBLISHER]), closed]
    }
}

/// JSON Web Tokens of connections without calls.
struct Logins(Jwt);

impl Auth for Logins {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn credential(&self) -> Option<Credential> {
        self.0.credential()
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        match credentials.method() {
            LOGIN => self.0.check(credentials),
            _ => Checked::Absent,
        }
    }
}
