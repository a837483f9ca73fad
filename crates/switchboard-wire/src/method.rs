//! Methods: their names, kinds and numbers.

mod undeclared;
mod undeclared_name;

use crate::{Codec, HttpRule, TextParam};
use std::{collections::HashMap, fmt, num::NonZeroU64};
use undeclared::{UNDECLARED, UndeclaredNames};
pub use undeclared_name::UndeclaredName;

/// Description of a service; generated code has one per service, in a static.
pub struct ServiceInfo {
    /// Full name, including the package: `demo.v1.Greeter`.
    pub name: &'static str,
    /// The methods; their index here is their number within the service.
    pub methods: &'static [MethodInfo],
    /// Encoded `google.protobuf.FileDescriptorSet` that describes the service, or empty.
    pub descriptor: &'static [u8],
}

impl fmt::Debug for ServiceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceInfo")
            .field("name", &self.name)
            .field("methods", &self.methods)
            .field("descriptor", &format_args!("{} bytes", self.descriptor.len()))
            .finish()
    }
}

/// Properties of a method that callers and servers know before any call.
#[derive(Clone, Copy, Debug)]
pub struct MethodInfo {
    /// Name without the service: `Greet`.
    pub name: &'static str,
    /// Number of messages in each direction.
    pub kind: Kind,
    /// The server sends no reply, and the caller waits for none.
    pub oneway: bool,
    /// The handler runs on its own task instead of on the task of the connection.
    pub spawn: bool,
    /// Effect of a repeated call.
    pub idempotency: Idempotency,
    /// Fingerprint of the messages, for codecs whose bytes do not identify fields.
    pub schema: Option<SchemaId>,
    /// HTTP paths beside `/package.Service/Method`.
    pub http: &'static [HttpRule],
    /// The parts of a request message in order, for wires that send them without names.
    pub params: Params,
    /// Conversion of text in paths and queries to the arguments in `params`, one entry each; `None` for arguments that
    /// only a body can fill. Empty if a descriptor defines the types.
    pub texts: &'static [Option<TextParam>],
}

/// The parts of a request message in order, by their names in JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: generated code declares them, and every reader of messages handles each
pub enum Params {
    /// The arguments of a method of a Rust trait; a message is always an object of them.
    Arguments(&'static [&'static str]),
    /// The fields of a protobuf message, by their numbers.
    Fields(&'static [&'static str]),
    /// Not declared.
    Unknown,
    /// Unchanged as sent, lists too: for methods that [no service declares](MethodTable::undeclared).
    AsSent,
}

impl MethodInfo {
    /// Creates a method with this name and kind and default properties.
    pub const fn new(name: &'static str, kind: Kind) -> MethodInfo {
        MethodInfo {
            name,
            kind,
            oneway: false,
            spawn: false,
            idempotency: Idempotency::Unknown,
            schema: None,
            http: &[],
            params: Params::Unknown,
            texts: &[],
        }
    }

    /// Marks the method one-way.
    #[must_use]
    pub const fn oneway(mut self) -> MethodInfo {
        self.oneway = true;
        self
    }

    /// Runs its handlers on their own tasks.
    #[must_use]
    pub const fn spawn(mut self) -> MethodInfo {
        self.spawn = true;
        self
    }

    /// Sets the effect of a repeated call.
    #[must_use]
    pub const fn idempotency(mut self, idempotency: Idempotency) -> MethodInfo {
        self.idempotency = idempotency;
        self
    }

    /// Sets the names of the parts of its request message.
    #[must_use]
    pub const fn params(mut self, params: Params) -> MethodInfo {
        self.params = params;
        self
    }

    /// Sets the conversion of text to its arguments.
    #[must_use]
    pub const fn texts(mut self, texts: &'static [Option<TextParam>]) -> MethodInfo {
        self.texts = texts;
        self
    }

    /// Sets its HTTP paths.
    #[must_use]
    pub const fn http(mut self, rules: &'static [HttpRule]) -> MethodInfo {
        self.http = rules;
        self
    }

    /// Sets the fingerprint of its messages; 0 means none.
    #[must_use]
    pub const fn schema(mut self, number: u64) -> MethodInfo {
        self.schema = SchemaId::new(number);
        self
    }

    /// Checks that a caller that was built from schema `theirs` can send messages of this method in `codec`. A caller
    /// without a schema is accepted, and so is every codec whose messages carry the names or numbers of their fields.
    ///
    /// # Errors
    /// `FailedPrecondition` with both schemas and the full name of the method, `path`.
    pub fn check_schema(
        &self,
        path: &str,
        codec: Codec,
        theirs: Option<SchemaId>,
    ) -> Result<(), crate::Status> {
        match (theirs, self.schema) {
            (Some(theirs), Some(ours)) if theirs != ours && codec == Codec::Postcard => {
                Err(crate::Status::failed_precondition(format!(
                    "{path} has schema {ours} here and {theirs} in the caller: they were built from different \
                     traits; build both from the same one, or call with json"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Fingerprint of a method's arguments and results: their names, types and order. Builds with equal fingerprints
/// understand each other's messages.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SchemaId(NonZeroU64);

impl SchemaId {
    /// Creates the fingerprint with this number; `None` for 0.
    pub const fn new(number: u64) -> Option<SchemaId> {
        match NonZeroU64::new(number) {
            Some(number) => Some(SchemaId(number)),
            None => None,
        }
    }

    /// Returns the number that is sent on the wire.
    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Number of messages in each direction.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: one message or many, in each direction
pub enum Kind {
    /// Many requests, many replies.
    Bidi,
    /// Many requests, one reply.
    ClientStream,
    /// One request, many replies.
    ServerStream,
    /// One request, one reply.
    Unary,
}

/// Effect of a repeated call of a method.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: the levels of `idempotency_level` in protobuf
pub enum Idempotency {
    /// A repeated call has the effect of a single one.
    Idempotent,
    /// The method has no effect: it only reads.
    NoSideEffects,
    /// Not declared.
    Unknown,
}

/// Text of a status for an unknown method, around its name, that does not list all methods.
const UNKNOWN: &str = "unknown method ";
const UNLISTED: &str = "; methods that this caller may not call are not listed";

/// Number of a method in a server's [`MethodTable`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MethodId(pub u16);

/// Result of a method lookup by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Number of the method.
    pub method: MethodId,
    /// Full name, if no service declares the method: the number then represents all undeclared methods.
    pub undeclared_name: Option<UndeclaredName>,
}

impl Found {
    /// Returns true for an unknown method, whose calls end with a status after the guards.
    pub fn is_refused(&self) -> bool {
        self.undeclared_name.as_ref().is_some_and(|called| called.refusal().is_some())
    }
}

impl From<MethodId> for Found {
    fn from(method: MethodId) -> Found {
        Found { method, undeclared_name: None }
    }
}

/// All methods of a server: full name to number, number to service and index.
#[derive(Debug, Default)]
pub struct MethodTable {
    by_name: HashMap<Box<str>, MethodId>,
    entries: Vec<Entry>,
    services: Vec<&'static ServiceInfo>,
    /// The largest per-method limit.
    largest_message: Option<u32>,
    /// Set if the server accepts calls of undeclared methods.
    undeclared: Option<UndeclaredNames>,
    /// Set if calls of unknown methods pass the guards before they are refused.
    guards_unknown: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    service: u16,
    index: u16,
    /// Limit of the method, which replaces that of the connection.
    message_bytes_max: Option<u32>,
    /// Error texts may name the method to every caller.
    listed: bool,
}

impl MethodTable {
    /// Adds a service and returns its number, the count of services before it.
    ///
    /// # Errors
    /// Returns an error if the service was already added, and for more than 65535 methods in total.
    pub fn add(&mut self, service: &'static ServiceInfo) -> Result<u16, String> {
        if self.services.iter().any(|known| known.name == service.name) {
            return Err(format!("service {} is added twice", service.name));
        }
        if self.entries.len() + service.methods.len() > usize::from(u16::MAX) {
            return Err("more than 65535 methods in one server".into());
        }
        let number = self.services.len() as u16;
        for (index, method) in service.methods.iter().enumerate() {
            let id = MethodId(self.entries.len() as u16);
            self.by_name.insert(format!("{}/{}", service.name, method.name).into(), id);
            self.entries.push(Entry {
                service: number,
                index: index as u16,
                message_bytes_max: None,
                listed: true,
            });
        }
        self.services.push(service);
        Ok(number)
    }

    /// Accepts calls of methods that no service declares: of these services, or of all undeclared services if the list
    /// is empty.
    ///
    /// Such methods belong to a service whose number is the count of added services. State per method is shared by all
    /// of them, under the number [`len`](Self::len) and the name `*`. Call this after every [`add`](Self::add).
    ///
    /// # Errors
    /// Returns an error for more than 65535 methods in total.
    pub fn accept_undeclared(&mut self, services: impl IntoIterator<Item = String>) -> Result<(), String> {
        // One number for the shared state, and one for each of the two kinds.
        if self.entries.len() + 3 > usize::from(u16::MAX) {
            return Err(format!("more than {} methods beside those of a fallback", u16::MAX - 3));
        }
        self.undeclared = Some(UndeclaredNames::new(services.into_iter().map(Into::into).collect()));
        Ok(())
    }

    /// Makes calls of unknown methods pass the guards before they are refused, so that callers without credentials
    /// cannot find out which methods exist. Call this after [`accept_undeclared`](Self::accept_undeclared).
    ///
    /// Such methods belong to a service of their own, after the others, and share the state of all undeclared methods.
    ///
    /// # Errors
    /// Returns an error for more than 65535 methods in total.
    pub fn guard_unknown(&mut self) -> Result<(), String> {
        // One number for the shared state, and two kinds of two services.
        if self.entries.len() + 5 > usize::from(u16::MAX) {
            return Err(format!("more than {} methods in one server with authentication", u16::MAX - 5));
        }
        self.guards_unknown = true;
        Ok(())
    }

    /// Returns true if calls of unknown methods [pass the guards](Self::guard_unknown).
    #[inline]
    pub fn guards_unknown(&self) -> bool {
        self.guards_unknown
    }

    /// Returns true if calls of methods that no service declares are accepted.
    #[inline]
    pub fn accepts_undeclared(&self) -> bool {
        self.undeclared.is_some()
    }

    /// Finds the method with this full name that no service declares. Returns `None` if such calls are not accepted,
    /// for unknown methods of declared services, and for an invalid name.
    ///
    /// The wire passes the kind that it can detect: `Unary` if each direction has one message, `Bidi` if the call may
    /// be of any kind.
    pub fn undeclared(&self, name: &str, kind: Kind) -> Option<Found> {
        let undeclared = self.undeclared.as_ref()?;
        let service = name.split_once('/').map(|(service, _)| service);
        if self.services.iter().any(|known| Some(known.name) == service) || !undeclared.accepts(name) {
            return None;
        }
        let of_kind = if kind == Kind::Unary { 1 } else { 2 };
        Some(Found {
            method: MethodId(self.entries.len() as u16 + of_kind),
            undeclared_name: Some(name.into()),
        })
    }

    /// Returns true if the number represents methods that [no service declares](Self::undeclared).
    #[inline]
    pub fn is_undeclared(&self, id: MethodId) -> bool {
        usize::from(id.0) > self.entries.len()
    }

    /// Returns the length of a table with one entry for each method, and one for all undeclared methods if they are
    /// accepted or guarded.
    #[inline]
    pub fn slots(&self) -> usize {
        self.entries.len() + usize::from(self.accepts_undeclared() || self.guards_unknown)
    }

    /// Finds the method with the full name `package.Service/Method`.
    pub fn find(&self, name: &str) -> Option<MethodId> {
        self.by_name.get(name).copied()
    }

    /// Finds a method by a service name without its package: `Greeter` and `Greet`. Names added by
    /// [`alias`](Self::alias) take precedence.
    ///
    /// # Errors
    /// `Unimplemented` for a name that matches no method, or services of several packages.
    pub fn find_short(&self, service: &str, method: &str) -> Result<MethodId, crate::Status> {
        let name = format!("{service}/{method}");
        if let Some(found) = self.find(&name) {
            return Ok(found);
        }
        let known = self.short(service)?.map(|known| format!("{}/{method}", known.name));
        let name = known.unwrap_or(name);
        self.find(&name).ok_or_else(|| self.unknown(&name))
    }

    /// Finds the method with this index, from 0, in a service with or without its package. An [`alias`](Self::alias)
    /// `SERVICE/INDEX` takes precedence.
    ///
    /// # Errors
    /// `Unimplemented` for an unknown service or index, and for a short name of services in several packages.
    pub fn find_index(&self, service: &str, index: i32) -> Result<MethodId, crate::Status> {
        if let Some(found) = self.find(&format!("{service}/{index}")) {
            return Ok(found);
        }
        let full = self.services.iter().find(|known| known.name == service).copied();
        let Some(known) = full.map_or_else(|| self.short(service), |known| Ok(Some(known)))? else {
            return Err(self.unknown(&format!("{service}/{index}")));
        };
        let method = usize::try_from(index).ok().and_then(|index| known.methods.get(index));
        let found = method.and_then(|method| self.find(&format!("{}/{}", known.name, method.name)));
        found.ok_or_else(|| {
            let (name, count) = (known.name, known.methods.len());
            match known.methods.iter().all(|method| self.is_listed(name, method.name)) {
                true => crate::Status::unimplemented(format!(
                    "unknown method {index}: {name} has {count}, from 0 on"
                )),
                false => self.unknown(&format!("{service}/{index}")),
            }
        })
    }

    /// Finds the service with this name without its package.
    fn short(&self, service: &str) -> Result<Option<&'static ServiceInfo>, crate::Status> {
        let is_it =
            |known: &&&ServiceInfo| known.name.rsplit_once('.').is_some_and(|(_, short)| short == service);
        let mut services = self.services.iter().filter(is_it);
        match (services.next(), services.next()) {
            (Some(one), Some(other)) => Err(self.ambiguous(service, one.name, other.name)),
            (known, _) => Ok(known.copied()),
        }
    }

    /// Finds a method by a path `package.Service/Method`, or `Service/Method` as in [`find_short`](Self::find_short),
    /// which clients of brpc use over HTTP.
    pub fn find_called(&self, path: &str) -> Option<MethodId> {
        self.find(path).or_else(|| {
            let (service, method) = path.split_once('/').filter(|(service, _)| !service.contains('.'))?;
            self.find_short(service, method).ok()
        })
    }

    /// Adds another name by which callers may call the method `name`.
    ///
    /// # Errors
    /// Returns an error if there is no method `name`, and if the alias is not of the form `package.Service/Method` or
    /// is already in use.
    pub fn alias(&mut self, alias: &str, name: &str) -> Result<(), String> {
        let id = self.find(name).ok_or_else(|| self.unknown(name).message().to_owned())?;
        let is_name = |text: &str| !text.is_empty() && !text.contains('/');
        if !alias.split_once('/').is_some_and(|(service, method)| is_name(service) && is_name(method)) {
            return Err(format!("{alias:?} is not of the form package.Service/Method"));
        }
        match self.by_name.insert(alias.into(), id) {
            None => Ok(()),
            Some(taken) => {
                self.by_name.insert(alias.into(), taken);
                Err(format!("{alias} is taken by {}", self.full_name(taken)))
            }
        }
    }

    /// Removes every name of a method, so that it cannot be called.
    pub fn hide(&mut self, id: MethodId) {
        if usize::from(id.0) == self.entries.len() {
            self.undeclared = None;
        }
        self.by_name.retain(|_, known| *known != id);
    }

    /// Returns true if the method has been [hidden](Self::hide).
    pub fn is_hidden(&self, id: MethodId) -> bool {
        !self.by_name.values().any(|known| *known == id)
    }

    /// Leaves the method out of error texts, for methods that not every caller may call.
    pub fn unlist(&mut self, id: MethodId) {
        if let Some(entry) = self.entries.get_mut(usize::from(id.0)) {
            entry.listed = false;
        }
    }

    /// Returns true if error texts may name the method to every caller.
    fn is_listed(&self, service: &str, method: &str) -> bool {
        let found = self.by_name.get(&*format!("{service}/{method}"));
        found.and_then(|id| self.entries.get(usize::from(id.0))).is_some_and(|entry| entry.listed)
    }

    /// Creates the status for a name that matches two methods or services; it names them if every caller may call both.
    pub fn ambiguous(&self, name: &str, one: &str, other: &str) -> crate::Status {
        let is_listed = |full: &str| match full.split_once('/') {
            Some((service, method)) => self.is_listed(service, method),
            None => {
                let mut services = self.services.iter().filter(|service| service.name == full);
                services.any(|service| {
                    service.methods.iter().any(|method| self.is_listed(service.name, method.name))
                })
            }
        };
        crate::Status::unimplemented(match is_listed(one) && is_listed(other) {
            true => format!("{name} is ambiguous: {one} or {other}; use the name with its package"),
            false => format!("{name} exists in more than one package; use the name with its package"),
        })
    }

    /// Sets a per-method limit for request messages, in bytes.
    ///
    /// # Errors
    /// Returns an error if there is no such method.
    pub fn limit_messages(&mut self, name: &str, bytes: u32) -> Result<(), String> {
        let id = self.find(name).ok_or_else(|| self.unknown(name).message().to_owned())?;
        self.entries[usize::from(id.0)].message_bytes_max = Some(bytes);
        self.largest_message = self.entries.iter().filter_map(|entry| entry.message_bytes_max).max();
        Ok(())
    }

    /// Returns the largest request message of the method in bytes, where `general` is the limit of the connection.
    #[inline]
    pub fn message_bytes_max(&self, id: MethodId, general: u32) -> u32 {
        self.own_limit(id).unwrap_or(general)
    }

    #[inline]
    fn own_limit(&self, id: MethodId) -> Option<u32> {
        self.entries.get(usize::from(id.0))?.message_bytes_max
    }

    /// Returns the largest request message of any method in bytes, where `general` is the limit of the connection.
    #[inline]
    pub fn largest_message(&self, general: u32) -> u32 {
        self.largest_message.map_or(general, |largest| largest.max(general))
    }

    /// Returns true if any method has its own limit.
    #[inline]
    pub fn has_limits(&self) -> bool {
        self.largest_message.is_some()
    }

    /// Creates the status for a request message that exceeds the limit of its method.
    pub fn too_large(&self, id: MethodId, bytes: u32, general: u32) -> crate::Status {
        let (max, name) = (self.message_bytes_max(id, general), self.full_name(id));
        let whose = if self.own_limit(id).is_some() { "method" } else { "receiver" };
        crate::Status::resource_exhausted(format!(
            "a request of {bytes} bytes to {name} is over the limit of {max} bytes (message_bytes_max of the {whose})"
        ))
    }

    /// Returns the number of the service and the index of the method in it.
    #[inline]
    pub fn service_and_index(&self, id: MethodId) -> (u16, u16) {
        match self.entries.get(usize::from(id.0)) {
            Some(entry) => (entry.service, entry.index),
            None => {
                let (number, services) =
                    ((usize::from(id.0) - self.entries.len()) as u16, self.services.len() as u16);
                match number {
                    0 => (services, 0),
                    1 | 2 => (services, number - 1),
                    _ => (services + u16::from(self.accepts_undeclared()), number - 3),
                }
            }
        }
    }

    /// Returns the service of the method.
    ///
    /// # Panics
    /// If `id` is not in this table.
    #[inline]
    pub fn service(&self, id: MethodId) -> &'static ServiceInfo {
        match self.entries.get(usize::from(id.0)) {
            Some(entry) => self.services[usize::from(entry.service)],
            None => &UNDECLARED,
        }
    }

    /// Returns the description of the method.
    ///
    /// # Panics
    /// If `id` is not in this table.
    #[inline]
    pub fn info(&self, id: MethodId) -> &'static MethodInfo {
        match self.entries.get(usize::from(id.0)) {
            Some(entry) => &self.services[usize::from(entry.service)].methods[usize::from(entry.index)],
            None => &UNDECLARED.methods[usize::from(self.service_and_index(id).1.min(1))],
        }
    }

    /// Returns the full name, `package.Service/Method`; `*` for undeclared methods.
    pub fn full_name(&self, id: MethodId) -> String {
        match usize::from(id.0) >= self.entries.len() {
            true => UNDECLARED.name.to_owned(),
            false => format!("{}/{}", self.service(id).name, self.info(id).name),
        }
    }

    /// Returns the services, in the order in which they were added.
    pub fn services(&self) -> &[&'static ServiceInfo] {
        &self.services
    }

    /// Returns the number of methods.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there is no method.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Creates the status for an unknown name. It lists the methods of the service that every caller may call.
    pub fn unknown(&self, name: &str) -> crate::Status {
        self.unknown_where(name, |id| self.entries.get(usize::from(id.0)).is_some_and(|entry| entry.listed))
    }

    /// Creates the status for an unknown name, which lists the methods of the service that `shows` accepts.
    ///
    /// If it does not accept all of them, the text does not say whether the service exists.
    pub fn unknown_where(&self, name: &str, shows: impl Fn(MethodId) -> bool) -> crate::Status {
        let service = name.split_once('/').map_or(name, |(service, _)| service);
        let known = self.services.iter().find(|known| known.name == service);
        let methods = known.iter().flat_map(|known| {
            known.methods.iter().map(|method| method.name).filter(|method| {
                self.by_name.get(&*format!("{}/{method}", known.name)).is_some_and(|id| shows(*id))
            })
        });
        let methods: Vec<_> = methods.collect();
        let all = || (0..self.entries.len()).all(|at| shows(MethodId(at as u16)));
        crate::Status::unimplemented(match known {
            _ if !methods.is_empty() => {
                format!("unknown method {name}: {service} has {}", methods.join(", "))
            }
            Some(_) if all() => format!("unknown method {name}: {service} has none"),
            None if all() => format!("unknown service {service}"),
            _ => format!("{UNKNOWN}{name}{UNLISTED}"),
        })
    }

    /// Lists the methods that `shows` accepts in the status of an [unknown name](Self::unknown), if it lists none.
    pub fn relist(&self, status: &crate::Status, shows: impl Fn(MethodId) -> bool) -> crate::Status {
        let text = status.message();
        let name = text.strip_prefix(UNKNOWN).and_then(|text| text.strip_suffix(UNLISTED));
        let Some(name) = name else { return status.clone() };
        let listed = self.unknown_where(name, shows);
        let mut relisted = crate::Status::new(status.code(), listed.message());
        *relisted.metadata_mut() = status.metadata().clone();
        relisted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CALC: ServiceInfo = ServiceInfo {
        name: "calc.Calc",
        methods: &[MethodInfo::new("Add", Kind::Unary), MethodInfo::new("Note", Kind::Unary).oneway()],
        descriptor: &[],
    };

    #[test]
    fn names_map_to_indexes_and_back() {
        let mut table = MethodTable::default();
        assert_eq!(table.add(&CALC), Ok(0));
        assert!(table.add(&CALC).unwrap_err().contains("twice"));
        let note = table.find("calc.Calc/Note").unwrap();
        assert_eq!(table.service_and_index(note), (0, 1));
        assert_eq!(table.full_name(note), "calc.Calc/Note");
        assert!(table.info(note).oneway);
        assert_eq!(table.find("calc.Calc/Nope"), None);
        assert!(table.unknown("calc.Calc/Nope").message().contains("has Add, Note"));
        assert!(table.unknown("x.Y/Z").message().contains("unknown service x.Y"));
    }

    #[test]
    fn methods_that_are_not_listed_are_in_no_text() {
        static OTHER: ServiceInfo = ServiceInfo {
            name: "old.Calc",
            methods: &[MethodInfo::new("Add", Kind::Unary)],
            descriptor: &[],
        };
        let mut table = MethodTable::default();
        table.add(&CALC).unwrap();
        table.add(&OTHER).unwrap();
        table.unlist(table.find("calc.Calc/Add").unwrap());
        assert!(table.unknown("calc.Calc/Nope").message().ends_with("calc.Calc has Note"));
        table.unlist(table.find("calc.Calc/Note").unwrap());
        for name in ["calc.Calc/Nope", "calc.Calc", "x.Y/Z"] {
            let text = table.unknown(name).message().to_owned();
            assert_eq!(
                text,
                format!("unknown method {name}; methods that this caller may not call are not listed")
            );
        }
        let texts = [
            table.find_short("Calc", "Add").unwrap_err(),
            table.find_index("calc.Calc", 7).unwrap_err(),
            table.find_index("Calc", 7).unwrap_err(),
            crate::jsonrpc::find(&table, "Calc.Add").unwrap_err(),
            crate::rpcx::find(&table, "Calc", "Add").unwrap_err(),
        ];
        for status in texts {
            let text = status.message();
            assert!(!text.contains("old.Calc") && !text.contains("has 2"), "{text}");
        }
        let shown = table.find("calc.Calc/Add").unwrap();
        let text = table.unknown_where("calc.Calc/Nope", |id| id == shown).message().to_owned();
        assert!(text.ends_with("calc.Calc has Add"), "{text}");
    }

    #[test]
    fn services_are_found_without_their_package_where_that_is_clear() {
        static OTHER: ServiceInfo = ServiceInfo {
            name: "old.Calc",
            methods: &[MethodInfo::new("Add", Kind::Unary)],
            descriptor: &[],
        };
        let mut table = MethodTable::default();
        table.add(&CALC).unwrap();
        assert_eq!(table.find_short("Calc", "Note").ok(), table.find("calc.Calc/Note"));
        assert_eq!(table.find_called("Calc/Note"), table.find_called("calc.Calc/Note"));
        assert_eq!((table.find_called("Calc"), table.find_called("x.Calc/Note")), (None, None));
        assert!(table.find_short("Calc", "Nope").unwrap_err().message().contains("has Add, Note"));
        assert!(table.find_short("Nope", "Add").unwrap_err().message().contains("unknown service Nope"));
        table.add(&OTHER).unwrap();
        let status = table.find_short("Calc", "Add").unwrap_err();
        assert_eq!(
            status.message(),
            "Calc is ambiguous: calc.Calc or old.Calc; use the name with its package"
        );
        table.alias("Calc/Add", "old.Calc/Add").unwrap();
        assert_eq!(table.find_short("Calc", "Add").ok(), table.find("old.Calc/Add"));
    }

    #[test]
    fn undeclared_methods_are_accepted_if_configured() {
        let mut table = MethodTable::default();
        table.add(&CALC).unwrap();
        assert_eq!((table.undeclared("a.B/C", Kind::Unary), table.slots()), (None, 2));
        table.accept_undeclared([]).unwrap();
        assert_eq!((table.slots(), table.full_name(MethodId(2))), (3, "*".to_owned()));
        for (kind, index) in [(Kind::Unary, 0), (Kind::Bidi, 1)] {
            let Found { method, undeclared_name } = table.undeclared("a.B/C", kind).unwrap();
            assert_eq!(undeclared_name.as_deref(), Some("a.B/C"));
            assert!(table.is_undeclared(method) && !table.is_undeclared(MethodId(2)));
            assert_eq!((table.full_name(method), table.service(method).name), ("*".to_owned(), "*"));
            assert_eq!((table.service_and_index(method), table.info(method).kind), ((1, index), kind));
        }
        assert_eq!((table.find("a.B/C"), table.undeclared("calc.Calc/Nope", Kind::Unary)), (None, None));
        table.hide(MethodId(2));
        assert_eq!((table.undeclared("a.B/C", Kind::Unary), table.slots()), (None, 2));
    }

    #[test]
    fn methods_have_other_names_or_none() {
        let mut table = MethodTable::default();
        table.add(&CALC).unwrap();
        table.alias("old.Calc/Plus", "calc.Calc/Add").unwrap();
        let add = table.find("calc.Calc/Add");
        assert_eq!(table.find("old.Calc/Plus"), add);
        assert!(
            table
                .alias("calc.Calc/Note", "calc.Calc/Add")
                .unwrap_err()
                .contains("is taken by calc.Calc/Note")
        );
        assert!(table.alias("a.B/C", "calc.Calc/Nope").unwrap_err().contains("has Add, Note"));
        for odd in ["", "a", "a/", "/a", "a/b/c"] {
            assert!(
                table
                    .alias(odd, "calc.Calc/Add")
                    .unwrap_err()
                    .contains("is not of the form package.Service/Method")
            );
        }
        let add = add.unwrap();
        table.hide(add);
        assert!(table.is_hidden(add) && !table.is_hidden(MethodId(1)));
        assert_eq!((table.find("old.Calc/Plus"), table.find("calc.Calc/Add")), (None, None));
        assert!(table.unknown("calc.Calc/Add").message().ends_with("calc.Calc has Note"));
    }
}
