//! Methods: their names, kinds and numbers.

mod learned;

use crate::{Codec, HttpRule, TextParam};
pub use learned::LEARNED_MAX;
use learned::Learned;
use std::{collections::HashMap, fmt, num::NonZeroU64};

/// What a service offers; generated code has one per service, in a static.
pub struct ServiceInfo {
    /// Full name, package included: `demo.v1.Greeter`.
    pub name: &'static str,
    /// The methods; a call names one by its index here.
    pub methods: &'static [MethodInfo],
    /// An encoded `google.protobuf.FileDescriptorSet` that describes the service, or nothing.
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

/// What callers and servers know of a method before any call.
#[derive(Clone, Copy, Debug)]
pub struct MethodInfo {
    /// Name without the service: `Greet`.
    pub name: &'static str,
    /// How many messages go either way.
    pub kind: Kind,
    /// No reply is sent or waited for.
    pub oneway: bool,
    /// The handler runs on a task of its own instead of in the connection's turn.
    pub spawn: bool,
    /// What a second try does.
    pub idempotency: Idempotency,
    /// Fingerprint of the messages, where their bytes do not say what they are.
    pub schema: Option<SchemaId>,
    /// Its HTTP paths beside `/package.Service/Method`.
    pub http: &'static [HttpRule],
    /// The parts of a request message in order, for wires that send them without names.
    pub params: Params,
    /// What text in paths and queries does for the arguments of `params`, one for each, none for those that only a
    /// body has; empty where a descriptor says it.
    pub texts: &'static [Option<TextParam>],
}

/// The parts of a request message in order, by their names in JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Params {
    /// The arguments of a method of a Rust trait; a message is always an object of them.
    Arguments(&'static [&'static str]),
    /// The fields of a protobuf message, by their numbers.
    Fields(&'static [&'static str]),
    /// Nobody said.
    Unknown,
    /// As they were sent, lists too: of methods that were [learned](MethodTable::learn).
    AsSent,
}

impl MethodInfo {
    /// A method of this name and kind, nothing special about it.
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

    /// Marks it one-way.
    #[must_use]
    pub const fn oneway(mut self) -> MethodInfo {
        self.oneway = true;
        self
    }

    /// Moves its handlers off the connection.
    #[must_use]
    pub const fn spawn(mut self) -> MethodInfo {
        self.spawn = true;
        self
    }

    /// Says what a second try does.
    #[must_use]
    pub const fn idempotency(mut self, idempotency: Idempotency) -> MethodInfo {
        self.idempotency = idempotency;
        self
    }

    /// Names the parts of its request message.
    #[must_use]
    pub const fn params(mut self, params: Params) -> MethodInfo {
        self.params = params;
        self
    }

    /// Says what text does for its arguments.
    #[must_use]
    pub const fn texts(mut self, texts: &'static [Option<TextParam>]) -> MethodInfo {
        self.texts = texts;
        self
    }

    /// Gives it HTTP paths.
    #[must_use]
    pub const fn http(mut self, rules: &'static [HttpRule]) -> MethodInfo {
        self.http = rules;
        self
    }

    /// Gives the messages a fingerprint; 0 is none.
    #[must_use]
    pub const fn schema(mut self, number: u64) -> MethodInfo {
        self.schema = SchemaId::new(number);
        self
    }

    /// Whether a caller that was built from `theirs` sends messages of this method on `codec`. One that names no
    /// schema is believed, and so is every codec whose messages carry the names or numbers of their fields.
    ///
    /// # Errors
    /// `FailedPrecondition` that names both schemas and the method by its full name, `path`.
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

/// Fingerprint of a method's arguments and results, their names, types and order: builds that agree on it understand
/// each other's messages.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SchemaId(NonZeroU64);

impl SchemaId {
    /// The fingerprint with this number; 0 is none.
    pub const fn new(number: u64) -> Option<SchemaId> {
        match NonZeroU64::new(number) {
            Some(number) => Some(SchemaId(number)),
            None => None,
        }
    }

    /// As the wire has it.
    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How many messages go either way.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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

/// What a second try of a method does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Idempotency {
    /// The same as one.
    Idempotent,
    /// Nothing: the method only reads.
    NoSideEffects,
    /// Nobody said.
    Unknown,
}

/// The number of a method in a server's [`MethodTable`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MethodId(pub u16);

/// Every method of a server: full name to number, number to service and index.
#[derive(Debug, Default)]
pub struct MethodTable {
    by_name: HashMap<Box<str>, MethodId>,
    entries: Vec<Entry>,
    services: Vec<&'static ServiceInfo>,
    /// The largest of the methods' own limits.
    largest_message: Option<u32>,
    /// There if calls of other methods are taken too.
    learned: Option<Box<Learned>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    service: u16,
    index: u16,
    /// The method's own limit, in place of the connection's.
    message_bytes_max: Option<u32>,
}

impl MethodTable {
    /// Adds a service; its number is the count of those before it.
    ///
    /// # Errors
    /// The name of a service that is already there, or more than 65535 methods in all.
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
            self.entries.push(Entry { service: number, index: index as u16, message_bytes_max: None });
        }
        self.services.push(service);
        Ok(number)
    }

    /// Takes calls of methods that no service declares: of these services, of all others when there are none.
    ///
    /// Such methods are [learned](Self::learn) as they are called, [`LEARNED_MAX`] at most. They belong to a service
    /// whose number is the count of those that were added; what is kept for each method is kept for all of them
    /// together, under the number [`len`](Self::len), where the name is `*`. To be called after every
    /// [`add`](Self::add).
    ///
    /// # Errors
    /// More than 65535 methods in all.
    pub fn take_others(&mut self, services: impl IntoIterator<Item = String>) -> Result<(), String> {
        if self.entries.len() + 1 + LEARNED_MAX > usize::from(u16::MAX) {
            return Err(format!(
                "more than {} methods beside those that are learned",
                u16::MAX - LEARNED_MAX as u16
            ));
        }
        self.learned = Some(Box::new(Learned::new(services.into_iter().map(Into::into).collect())));
        Ok(())
    }

    /// Whether calls of methods that no service declares are taken.
    #[inline]
    pub fn takes_others(&self) -> bool {
        self.learned.is_some()
    }

    /// The method with this full name that no service declares, known from now on; none if such calls are not taken,
    /// for other methods of the services that there are, and for one name more than [`LEARNED_MAX`].
    ///
    /// A wire says by the kind how much it tells of a call: `Unary` where one message goes either way, `Bidi` where it
    /// may be any kind.
    pub fn learn(&self, name: &str, kind: Kind) -> Option<MethodId> {
        let learned = self.learned.as_ref()?;
        let service = name.split_once('/').map(|(service, _)| service);
        if self.services.iter().any(|known| Some(known.name) == service) {
            return None;
        }
        let place = learned.find(name, kind)?;
        Some(MethodId(self.entries.len() as u16 + 1 + place))
    }

    /// Whether the method was [learned](Self::learn).
    #[inline]
    pub fn is_learned(&self, id: MethodId) -> bool {
        usize::from(id.0) > self.entries.len()
    }

    fn learned(&self, id: MethodId) -> Option<&'static ServiceInfo> {
        self.learned.as_ref()?.get(usize::from(id.0).checked_sub(self.entries.len() + 1)?)
    }

    /// How many things there are of which each method has one: as many as methods, and one for all that are learned.
    #[inline]
    pub fn slots(&self) -> usize {
        self.entries.len() + usize::from(self.takes_others())
    }

    /// The method with the full name `package.Service/Method`.
    pub fn find(&self, name: &str) -> Option<MethodId> {
        self.by_name.get(name).copied()
    }

    /// The method of a service that is named without its package: `Greeter` and `Greet`. The names that were given by
    /// [`alias`](Self::alias) come first.
    ///
    /// # Errors
    /// `Unimplemented` for a name that means no method, or services of several packages.
    pub fn find_short(&self, service: &str, method: &str) -> Result<MethodId, crate::Status> {
        let name = format!("{service}/{method}");
        if let Some(found) = self.find(&name) {
            return Ok(found);
        }
        let known = self.short(service)?.map(|known| format!("{}/{method}", known.name));
        let name = known.unwrap_or(name);
        self.find(&name).ok_or_else(|| self.unknown(&name))
    }

    /// The method that has this place, from 0, in a service that is named with or without its package. An
    /// [`alias`](Self::alias) `SERVICE/PLACE` comes first.
    ///
    /// # Errors
    /// `Unimplemented` for a service or a place that is unknown, and for the name of services of several packages.
    pub fn find_index(&self, service: &str, index: i32) -> Result<MethodId, crate::Status> {
        if let Some(found) = self.find(&format!("{service}/{index}")) {
            return Ok(found);
        }
        let full = self.services.iter().find(|known| known.name == service).copied();
        let Some(known) = full.map_or_else(|| self.short(service), |known| Ok(Some(known)))? else {
            return Err(self.unknown(service));
        };
        let method = usize::try_from(index).ok().and_then(|index| known.methods.get(index));
        let found = method.and_then(|method| self.find(&format!("{}/{}", known.name, method.name)));
        found.ok_or_else(|| {
            let (name, count) = (known.name, known.methods.len());
            crate::Status::unimplemented(format!("unknown method {index}: {name} has {count}, from 0 on"))
        })
    }

    /// The service that is named so without its package.
    fn short(&self, service: &str) -> Result<Option<&'static ServiceInfo>, crate::Status> {
        let is_it =
            |known: &&&ServiceInfo| known.name.rsplit_once('.').is_some_and(|(_, short)| short == service);
        let mut services = self.services.iter().filter(is_it);
        match (services.next(), services.next()) {
            (Some(one), Some(other)) => Err(crate::Status::unimplemented(format!(
                "{service} may be {} or {}: say which by its package",
                one.name, other.name
            ))),
            (known, _) => Ok(known.copied()),
        }
    }

    /// The method of a path `package.Service/Method`, or of `Service/Method` as [`find_short`](Self::find_short) has
    /// it: so do clients of brpc call over HTTP.
    pub fn find_called(&self, path: &str) -> Option<MethodId> {
        self.find(path).or_else(|| {
            let (service, method) = path.split_once('/').filter(|(service, _)| !service.contains('.'))?;
            self.find_short(service, method).ok()
        })
    }

    /// Gives the method `name` another name that callers may use.
    ///
    /// # Errors
    /// The name of a method that is not there, and another name that is no `package.Service/Method` or is taken.
    pub fn alias(&mut self, alias: &str, name: &str) -> Result<(), String> {
        let id = self.find(name).ok_or_else(|| self.unknown(name).message().to_owned())?;
        let is_name = |text: &str| !text.is_empty() && !text.contains('/');
        if !alias.split_once('/').is_some_and(|(service, method)| is_name(service) && is_name(method)) {
            return Err(format!("{alias:?} is no package.Service/Method"));
        }
        match self.by_name.insert(alias.into(), id) {
            None => Ok(()),
            Some(taken) => {
                self.by_name.insert(alias.into(), taken);
                Err(format!("{alias} is taken by {}", self.full_name(taken)))
            }
        }
    }

    /// Takes every name of a method away: nobody can call it.
    pub fn hide(&mut self, id: MethodId) {
        if usize::from(id.0) == self.entries.len() {
            self.learned = None;
        }
        self.by_name.retain(|_, known| *known != id);
    }

    /// Whether the method has been [hidden](Self::hide).
    pub fn is_hidden(&self, id: MethodId) -> bool {
        !self.by_name.values().any(|known| *known == id)
    }

    /// Gives the method a limit of its own for request messages, in bytes.
    ///
    /// # Errors
    /// The name of a method that is not there.
    pub fn limit_messages(&mut self, name: &str, bytes: u32) -> Result<(), String> {
        let id = self.find(name).ok_or_else(|| self.unknown(name).message().to_owned())?;
        self.entries[usize::from(id.0)].message_bytes_max = Some(bytes);
        self.largest_message = self.entries.iter().filter_map(|entry| entry.message_bytes_max).max();
        Ok(())
    }

    /// Largest request message of the method, where the connection's limit is `general`.
    #[inline]
    pub fn message_bytes_max(&self, id: MethodId, general: u32) -> u32 {
        self.own_limit(id).unwrap_or(general)
    }

    #[inline]
    fn own_limit(&self, id: MethodId) -> Option<u32> {
        self.entries.get(usize::from(id.0))?.message_bytes_max
    }

    /// Largest request message of any method, where the connection's limit is `general`.
    #[inline]
    pub fn largest_message(&self, general: u32) -> u32 {
        self.largest_message.map_or(general, |largest| largest.max(general))
    }

    /// Whether any method has a limit of its own.
    #[inline]
    pub fn has_limits(&self) -> bool {
        self.largest_message.is_some()
    }

    /// The status for a request message over the limit of its method.
    pub fn too_large(&self, id: MethodId, bytes: u32, general: u32) -> crate::Status {
        let (max, name) = (self.message_bytes_max(id, general), self.full_name(id));
        let whose = if self.own_limit(id).is_some() { "method" } else { "receiver" };
        crate::Status::resource_exhausted(format!(
            "a request of {bytes} bytes to {name} is over the limit of {max} bytes (message_bytes_max of the {whose})"
        ))
    }

    /// Number of the service and index of the method in it; of one that was learned, which of these it is.
    #[inline]
    pub fn place(&self, id: MethodId) -> (u16, u16) {
        match self.entries.get(usize::from(id.0)) {
            Some(entry) => (entry.service, entry.index),
            None => (
                self.services.len() as u16,
                (usize::from(id.0) - self.entries.len()).saturating_sub(1) as u16,
            ),
        }
    }

    /// The service of the method.
    ///
    /// # Panics
    /// If `id` is not of this table.
    #[inline]
    pub fn service(&self, id: MethodId) -> &'static ServiceInfo {
        match self.entries.get(usize::from(id.0)) {
            Some(entry) => self.services[usize::from(entry.service)],
            None => self.learned(id).unwrap_or(&OTHERS),
        }
    }

    /// What is known of the method.
    ///
    /// # Panics
    /// If `id` is not of this table.
    #[inline]
    pub fn info(&self, id: MethodId) -> &'static MethodInfo {
        match self.entries.get(usize::from(id.0)) {
            Some(entry) => &self.services[usize::from(entry.service)].methods[usize::from(entry.index)],
            None => &self.service(id).methods[0],
        }
    }

    /// The full name, `package.Service/Method`.
    pub fn full_name(&self, id: MethodId) -> String {
        match usize::from(id.0) == self.entries.len() {
            true => OTHERS.name.to_owned(),
            false => format!("{}/{}", self.service(id).name, self.info(id).name),
        }
    }

    /// The services, in the order in which they were added.
    pub fn services(&self) -> &[&'static ServiceInfo] {
        &self.services
    }

    /// How many methods there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no method.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Says that `name` is unknown and what to look at: the service, or the methods that it has.
    pub fn unknown(&self, name: &str) -> crate::Status {
        let service = name.split_once('/').map_or(name, |(service, _)| service);
        let text = match self.services.iter().find(|known| known.name == service) {
            Some(known) => {
                let shown = |method: &&str| self.by_name.contains_key(&*format!("{}/{method}", known.name));
                let methods: Vec<_> = known.methods.iter().map(|method| method.name).filter(shown).collect();
                format!("unknown method {name}: {} has {}", known.name, methods.join(", "))
            }
            None if self.learned.as_ref().is_some_and(|learned| learned.is_full()) => {
                format!(
                    "{name} is one more than {LEARNED_MAX} methods that this server learns from its callers"
                )
            }
            None => format!("unknown service {service}"),
        };
        crate::Status::unimplemented(text)
    }
}

/// What stands for all methods that are learned.
static OTHERS: ServiceInfo =
    ServiceInfo { name: "*", methods: &[MethodInfo::new("*", Kind::Bidi)], descriptor: &[] };

#[cfg(test)]
mod tests {
    use super::*;

    static CALC: ServiceInfo = ServiceInfo {
        name: "calc.Calc",
        methods: &[MethodInfo::new("Add", Kind::Unary), MethodInfo::new("Note", Kind::Unary).oneway()],
        descriptor: &[],
    };

    #[test]
    fn names_lead_to_places_and_back() {
        let mut table = MethodTable::default();
        assert_eq!(table.add(&CALC), Ok(0));
        assert!(table.add(&CALC).unwrap_err().contains("twice"));
        let note = table.find("calc.Calc/Note").unwrap();
        assert_eq!(table.place(note), (0, 1));
        assert_eq!(table.full_name(note), "calc.Calc/Note");
        assert!(table.info(note).oneway);
        assert_eq!(table.find("calc.Calc/Nope"), None);
        assert!(table.unknown("calc.Calc/Nope").message().contains("has Add, Note"));
        assert!(table.unknown("x.Y/Z").message().contains("unknown service x.Y"));
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
        assert_eq!(status.message(), "Calc may be calc.Calc or old.Calc: say which by its package");
        table.alias("Calc/Add", "old.Calc/Add").unwrap();
        assert_eq!(table.find_short("Calc", "Add").ok(), table.find("old.Calc/Add"));
    }

    #[test]
    fn other_methods_are_learned_where_that_was_asked_for() {
        let mut table = MethodTable::default();
        table.add(&CALC).unwrap();
        assert_eq!((table.learn("a.B/C", Kind::Unary), table.slots()), (None, 2));
        table.take_others([]).unwrap();
        assert_eq!((table.slots(), table.full_name(MethodId(2))), (3, "*".to_owned()));
        let learned = table.learn("a.B/C", Kind::Unary).unwrap();
        assert!(table.is_learned(learned) && !table.is_learned(MethodId(2)));
        assert_eq!((table.full_name(learned), table.service(learned).name), ("a.B/C".to_owned(), "a.B"));
        let (service, place) = table.place(learned);
        assert_eq!((service, u32::from(learned.0)), (1, 3 + u32::from(place)));
        assert_eq!((table.find("a.B/C"), table.learn("calc.Calc/Nope", Kind::Unary)), (None, None));
        table.hide(MethodId(2));
        assert_eq!((table.learn("a.B/C", Kind::Unary), table.slots()), (None, 2));
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
            assert!(table.alias(odd, "calc.Calc/Add").unwrap_err().contains("is no package.Service/Method"));
        }
        let add = add.unwrap();
        table.hide(add);
        assert!(table.is_hidden(add) && !table.is_hidden(MethodId(1)));
        assert_eq!((table.find("old.Calc/Plus"), table.find("calc.Calc/Add")), (None, None));
        assert!(table.unknown("calc.Calc/Add").message().ends_with("calc.Calc has Note"));
    }
}
