//! The service for the servers of an application.

use super::{
    convert,
    v1::{self, target::Target},
};
use crate::hub::Hub;
use ring::hmac;
use std::{fmt, sync::Arc};
use switchboard::{Call, Cx, Reply, Result, Service, ServiceInfo, Status};
use switchboard_message::Position;

/// Targets, keys, users and rooms of one request.
const NAMES_MAX: usize = 1_000;
/// Rows of a page whose request has no limit.
const PAGE_DEFAULT: usize = 100;
/// Role of callers, unless the service has a token.
const ROLE: &str = "push";

/// The service `switchboard.push.v1.Push` over a [`Hub`], for [`Server::add`](switchboard::Server::add).
///
/// It publishes to any device, and must not be open to devices. By default it serves callers that the server has
/// authenticated with the role `push`; [`token`](Self::token) accepts a token of its own, and [`open`](Self::open)
/// every
/// caller, for a listener that devices do not reach.
///
/// ```
/// use switchboard::Server;
/// use switchboard_push::{Hub, PushServer, v1};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard::Result<()> {
/// let hub = Hub::builder().open().build().await?;
/// let mut device = hub.attach("ali").await?;
/// let api = PushServer::new(&hub).open();
/// let server = Server::new().add(api).listen("tcp://127.0.0.1:0").start().await?;
///
/// let client = v1::PushClient::connect(&server.url()).await?;
/// let user = v1::Target { target: Some(v1::target::Target::User("ali".into())), ..Default::default() };
/// let entry = v1::Publication { payload: "hello".into(), ..Default::default() };
/// let request = v1::PublishRequest { targets: vec![user], entry: entry.into(), ..Default::default() };
/// client.publish(request).await?;
/// # let switchboard_push::Item::Entry(entry) = device.next().await?.unwrap() else { panic!() };
/// # assert_eq!(&entry[..], b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PushServer(Arc<Api>);

impl PushServer {
    /// Creates the service for callers with the role `push`.
    pub fn new(hub: &Hub) -> PushServer {
        PushServer(Arc::new(Api { hub: hub.clone(), access: Access::Role }))
    }

    /// Serves callers with this token in `authorization: Bearer`, whatever the server knows of them. An
    /// empty token admits no caller.
    #[must_use]
    pub fn token(self, token: impl AsRef<[u8]>) -> PushServer {
        let access = Access::Token(hmac::Key::new(hmac::HMAC_SHA256, token.as_ref()));
        PushServer(Arc::new(Api { hub: self.0.hub.clone(), access }))
    }

    /// Serves every caller.
    #[must_use]
    pub fn open(self) -> PushServer {
        PushServer(Arc::new(Api { hub: self.0.hub.clone(), access: Access::Open }))
    }
}

struct Api {
    hub: Hub,
    access: Access,
}

enum Access {
    Role,
    /// A key of the token: its tags are compared in constant time.
    Token(hmac::Key),
    Open,
}

impl Service for PushServer {
    fn info(&self) -> &'static ServiceInfo {
        &v1::PUSH
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        self.0.check(call.cx())?;
        v1::PushServer::from_arc(self.0.clone()).call(call).await
    }
}

impl Api {
    /// Checks the caller.
    fn check(&self, cx: &Cx) -> Result<()> {
        match &self.access {
            Access::Open => Ok(()),
            Access::Role
                if cx.caller().is_some_and(|caller| caller.roles.iter().any(|role| role == ROLE)) =>
            {
                Ok(())
            }
            Access::Role => Err(Status::permission_denied(
                "the push API needs a caller with the role \"push\"; authenticate with one, or configure a token",
            )),
            Access::Token(key) => {
                let sent = super::devices::bearer(cx.metadata()).filter(|sent| !sent.is_empty());
                let is_valid = sent.is_some_and(|sent| {
                    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, sent.as_bytes()), b"push");
                    hmac::verify(key, b"push", tag.as_ref()).is_ok()
                });
                match is_valid {
                    true => Ok(()),
                    false => Err(Status::unauthenticated("the token of the push API is missing or wrong")),
                }
            }
        }
    }

    fn limit(&self, limit: u32) -> usize {
        let limit = if limit == 0 { PAGE_DEFAULT } else { limit as usize };
        limit.min(self.hub.limits().page_max)
    }

    /// Publishes to one target.
    async fn publish_to(&self, target: Option<Target>, entry: v1::Publication) -> Result<v1::Published> {
        let publication = convert::publication(entry)?;
        let hub = &self.hub;
        let position: Position = match target {
            Some(Target::Room(name)) => hub.room(name).publish_encoded(publication).await?,
            Some(Target::User(id)) => hub.user(id).publish_encoded(publication).await?,
            Some(Target::Key(key)) => hub.key(key).publish_encoded(publication).await?,
            Some(Target::All(true)) => hub.all().publish_encoded(publication).await?,
            Some(Target::Rooms(pattern)) => {
                let rooms = hub.rooms(pattern).publish_encoded(publication).await?;
                let rooms = u32::try_from(rooms).unwrap_or(u32::MAX);
                return Ok(v1::Published { rooms, ..Default::default() });
            }
            _ => return Err(no_target()),
        };
        Ok(v1::Published { position: convert::position(position).into(), ..Default::default() })
    }
}

fn no_target() -> Status {
    Status::invalid_argument("a target of the request is empty; set its room, user, key, rooms or all")
}

fn check_names(field: &str, count: usize) -> Result<()> {
    if count > NAMES_MAX {
        let text =
            format!("field {field} has {count} values; the limit is {NAMES_MAX}; send several requests");
        return Err(Status::resource_exhausted(text));
    }
    Ok(())
}

fn entry_of(entry: Option<v1::Publication>) -> Result<v1::Publication> {
    entry.ok_or_else(|| Status::invalid_argument("field entry of the request is missing"))
}

impl v1::Push for Api {
    async fn publish(&self, request: v1::PublishRequest, _: &Cx) -> Result<v1::PublishResponse> {
        check_names("targets", request.targets.len())?;
        if request.targets.is_empty() {
            return Err(no_target());
        }
        let entry = entry_of(request.entry.into_option())?;
        let mut published = Vec::with_capacity(request.targets.len());
        let is_one = request.targets.len() == 1;
        for target in request.targets {
            match self.publish_to(target.target, entry.clone()).await {
                Ok(outcome) => published.push(outcome),
                Err(status) if is_one => return Err(status),
                Err(status) => published.push(v1::Published {
                    error: status.message().to_owned(),
                    code: status.code().name().to_owned(),
                    ..Default::default()
                }),
            }
        }
        Ok(v1::PublishResponse { published, ..Default::default() })
    }

    async fn publish_batch(
        &self,
        request: v1::PublishBatchRequest,
        _: &Cx,
    ) -> Result<v1::PublishBatchResponse> {
        check_names("entries", request.entries.len())?;
        let publications =
            request.entries.into_iter().map(convert::publication).collect::<Result<Vec<_>>>()?;
        let target = request.target.into_option().and_then(|target| target.target);
        let hub = &self.hub;
        let position = match target {
            Some(Target::Room(name)) => hub.room(name).publish_batch(publications).await?,
            Some(Target::User(id)) => hub.user(id).publish_batch(publications).await?,
            Some(Target::Key(key)) => hub.key(key).publish_batch(publications).await?,
            _ => {
                let text = "a batch has one target: a room, a user or a key";
                return Err(Status::invalid_argument(text));
            }
        };
        Ok(v1::PublishBatchResponse { position: convert::position(position).into(), ..Default::default() })
    }

    async fn disconnect(&self, request: v1::DisconnectRequest, _: &Cx) -> Result<v1::DisconnectResponse> {
        check_names("keys", request.keys.len())?;
        check_names("users", request.users.len())?;
        let is_redirect = !request.redirect.is_empty();
        for key in &request.keys {
            let key = self.hub.key(key);
            if is_redirect { key.redirect(&request.redirect) } else { key.close(&request.text) }?;
        }
        for user in &request.users {
            let user = self.hub.user(user);
            if is_redirect { user.redirect(&request.redirect) } else { user.close(&request.text) }?;
        }
        Ok(v1::DisconnectResponse::default())
    }

    async fn change_rooms(&self, request: v1::ChangeRoomsRequest, _: &Cx) -> Result<v1::ChangeRoomsResponse> {
        let (devices, rooms) =
            (request.keys.len() + request.users.len(), request.join.len() + request.leave.len());
        check_names("keys and users, times rooms,", devices.saturating_mul(rooms))?;
        for key in &request.keys {
            let key = self.hub.key(key);
            request.join.iter().try_for_each(|room| key.join(room))?;
            request.leave.iter().try_for_each(|room| key.leave(room))?;
        }
        for user in &request.users {
            let user = self.hub.user(user);
            request.join.iter().try_for_each(|room| user.join(room))?;
            request.leave.iter().try_for_each(|room| user.leave(room))?;
        }
        Ok(v1::ChangeRoomsResponse::default())
    }

    async fn members(&self, request: v1::MembersRequest, _: &Cx) -> Result<v1::MembersResponse> {
        let after = (request.after > 0).then_some(request.after);
        let page = self.hub.room(&request.room).members(after, self.limit(request.limit));
        Ok(v1::MembersResponse {
            members: page.members.into_iter().map(convert::device).collect(),
            count: page.count as u64,
            next: page.next.unwrap_or(0),
            ..Default::default()
        })
    }

    async fn rooms(&self, request: v1::RoomsRequest, _: &Cx) -> Result<v1::RoomsResponse> {
        let pattern = if request.pattern.is_empty() { ">" } else { &request.pattern };
        let page = self.hub.rooms(pattern).page(&request.after, self.limit(request.limit))?;
        let published = |name: &str| {
            let stats = self.hub.bus().topic_stats(&self.hub.room(name).topic().ok()?);
            stats.map(|stats| stats.published)
        };
        let room = |(name, members): (String, usize)| v1::Room {
            published: published(&name).unwrap_or(0),
            name,
            members: members as u64,
            ..Default::default()
        };
        let rooms = page.rooms.into_iter().map(room).collect();
        Ok(v1::RoomsResponse { rooms, next: page.next.unwrap_or_default(), ..Default::default() })
    }

    async fn presence(&self, request: v1::PresenceRequest, _: &Cx) -> Result<v1::PresenceResponse> {
        check_names("users", request.users.len())?;
        check_names("keys", request.keys.len())?;
        let users = request.users.iter().flat_map(|user| self.hub.user(user).devices());
        let keys = request.keys.iter().filter_map(|key| self.hub.key(key).device());
        let devices = users.chain(keys).map(convert::device).collect();
        Ok(v1::PresenceResponse { devices, ..Default::default() })
    }

    async fn counts(&self, request: v1::CountsRequest, _: &Cx) -> Result<v1::CountsResponse> {
        check_names("rooms", request.rooms.len())?;
        let stats = self.hub.stats();
        Ok(v1::CountsResponse {
            devices: stats.devices,
            users: stats.users,
            rooms: stats.rooms,
            memberships: stats.memberships,
            members: request.rooms.iter().map(|room| self.hub.room(room).count() as u64).collect(),
            published: stats.published,
            delivered: self.hub.delivered(),
            dropped: self.hub.state.counters.missed(),
            ..Default::default()
        })
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token is a secret.
        f.debug_struct("Api").field("hub", &self.hub).finish_non_exhaustive()
    }
}
