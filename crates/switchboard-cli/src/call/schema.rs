//! The schema: services and their messages, from reflection or from files.

use super::bundled::BundledImports;
use super::{
    failure::Failure,
    names::{instead, only_with_suffix, split_method},
    reflection::{Query, Reflection, Response},
};
use clap::{ArgGroup, Args};
use prost::Message;
use prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, MessageDescriptor, MethodDescriptor, ServiceDescriptor,
    prost_types::FileDescriptorProto,
};
use protox::file::{ChainFileResolver, GoogleFileResolver, IncludeFileResolver};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Most files that a server may send for one query, imports included.
const FILES_MAX: usize = 10_000;

/// Options for the files of a schema.
#[derive(Clone, Debug, Default, Args)]
#[command(group = ArgGroup::new("sources").multiple(true))]
pub(crate) struct SchemaArgs {
    /// Take the schema from a .proto file instead of from the server. May be repeated
    #[arg(long, value_name = "FILE", help_heading = "Schema", group = "sources")]
    #[arg(conflicts_with = "descriptor_set")]
    pub(super) proto: Vec<PathBuf>,
    /// Take the schema from a .thrift file, for --wire thrift. May be repeated
    #[arg(long, value_name = "FILE", help_heading = "Schema", group = "sources")]
    pub(super) thrift: Vec<PathBuf>,
    /// Take the schema from a .fbs file, for --wire grpc, native or kiss. May be repeated
    #[arg(long, value_name = "FILE", help_heading = "Schema", group = "sources")]
    pub(super) fbs: Vec<PathBuf>,
    /// Look for schema files and their imports here. May be repeated [default: .]
    #[arg(short = 'I', long = "include", value_name = "DIR", help_heading = "Schema", requires = "sources")]
    pub(super) includes: Vec<PathBuf>,
    /// Take the schema from a descriptor set, as protoc and buf make them. May be repeated
    #[arg(long, value_name = "FILE", help_heading = "Schema")]
    pub(super) descriptor_set: Vec<PathBuf>,
}

/// Descriptors, completed from the server when they are needed.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) pool: DescriptorPool,
    server: Option<Reflection>,
}

/// An element of a schema with a name.
#[derive(Debug)]
pub(super) enum Symbol {
    Enum(EnumDescriptor),
    Field(FieldDescriptor),
    Message(MessageDescriptor),
    Method(MethodDescriptor),
    Service(ServiceDescriptor),
}

impl Schema {
    /// Reads the files that the command line names, if it names any.
    pub(crate) fn of_files(args: &SchemaArgs) -> Result<Option<Schema>, Failure> {
        let mut pool = if !args.proto.is_empty() {
            compile(&args.proto, &args.includes).map_err(Failure::Usage)?
        } else if !args.descriptor_set.is_empty() {
            read_sets(&args.descriptor_set).map_err(Failure::Usage)?
        } else {
            return Ok(None);
        };
        add_well_known(&mut pool);
        Ok(Some(Schema { pool, server: None }))
    }

    /// Creates a schema with only the files that every schema may use.
    pub(super) fn empty() -> Schema {
        Schema { pool: DescriptorPool::global(), server: None }
    }

    #[cfg(test)]
    pub(super) fn of_pool(pool: DescriptorPool) -> Schema {
        Schema { pool, server: None }
    }

    /// Creates a schema that queries a server when needed.
    pub(crate) fn of_server(server: Reflection) -> Schema {
        Schema { pool: DescriptorPool::global(), server: Some(server) }
    }

    /// Returns every service, sorted by name.
    pub(crate) async fn services(&mut self) -> Result<Vec<String>, Failure> {
        let mut names: Vec<String> = match &mut self.server {
            None => self.pool.services().map(|service| service.full_name().to_owned()).collect(),
            Some(server) => match server.query(&[Query::Services]).await?.pop() {
                Some(Response::Services(names)) => names,
                _ => Vec::new(),
            },
        };
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Returns the service with this name; the package may be omitted if the rest is unique.
    pub(crate) async fn service(&mut self, name: &str) -> Result<ServiceDescriptor, Failure> {
        self.fetch(name).await?;
        if let Some(service) = self.pool.get_service_by_name(name) {
            return Ok(service);
        }
        let services = self.services().await?;
        if let Some(full) = only_with_suffix(services.iter().map(String::as_str), name) {
            self.fetch(full).await?;
            if let Some(service) = self.pool.get_service_by_name(full) {
                return Ok(service);
            }
        }
        if services.iter().any(|service| service == name) {
            let text = format!("the server lists {name} but has no schema of it; call it with --raw KIND");
            return Err(Failure::Usage(text));
        }
        let text = format!(
            "unknown service {name}{}",
            instead(name, services.iter().map(String::as_str).filter(|known| !is_about_the_server(known)))
        );
        Err(Failure::Usage(text))
    }

    /// Returns the method that the user typed.
    pub(super) async fn method(&mut self, typed: &str) -> Result<MethodDescriptor, Failure> {
        let (service, name) = split_method(typed).map_err(Failure::Usage)?;
        let service = self.service(service).await?;
        service.methods().find(|method| method.name() == name).ok_or_else(|| {
            let names: Vec<_> = service.methods().map(|method| method.name().to_owned()).collect();
            let text = format!(
                "unknown method {name} of {}{}",
                service.full_name(),
                instead(name, names.iter().map(String::as_str))
            );
            Failure::Usage(text)
        })
    }

    /// Returns the element with this name.
    pub(super) async fn symbol(&mut self, typed: &str) -> Result<Symbol, Failure> {
        let name = typed.trim_start_matches(['.', '/']).replace('/', ".");
        self.fetch(&name).await?;
        if let Some(symbol) = self.known(&name) {
            return Ok(symbol);
        }
        // Loads all services first, with everything that they refer to; some servers do not find methods by name.
        let services = self.services().await?;
        for service in &services {
            self.fetch(service).await?;
        }
        if let Some(symbol) = self.known(&name) {
            return Ok(symbol);
        }
        let names = self.names();
        if let Some(full) = only_with_suffix(names.iter().map(String::as_str), &name)
            && let Some(symbol) = self.known(full)
        {
            return Ok(symbol);
        }
        let known = names.iter().map(String::as_str).filter(|known| !is_about_the_server(known));
        Err(Failure::Usage(format!("unknown name {name}{}", instead(&name, known))))
    }

    fn known(&self, name: &str) -> Option<Symbol> {
        let pool = &self.pool;
        if let Some(service) = pool.get_service_by_name(name) {
            return Some(Symbol::Service(service));
        }
        if let Some(message) = pool.get_message_by_name(name) {
            return Some(Symbol::Message(message));
        }
        if let Some(found) = pool.get_enum_by_name(name) {
            return Some(Symbol::Enum(found));
        }
        let (parent, child) = name.rsplit_once('.')?;
        if let Some(service) = pool.get_service_by_name(parent) {
            return service.methods().find(|method| method.name() == child).map(Symbol::Method);
        }
        pool.get_message_by_name(parent)?.get_field_by_name(child).map(Symbol::Field)
    }

    fn names(&self) -> BTreeSet<String> {
        let pool = &self.pool;
        let services = pool.services().flat_map(|service| {
            let methods: Vec<_> = service.methods().map(|method| method.full_name().to_owned()).collect();
            methods.into_iter().chain([service.full_name().to_owned()])
        });
        let messages = pool.all_messages().filter(|message| !message.is_map_entry());
        services
            .chain(messages.map(|message| message.full_name().to_owned()))
            .chain(pool.all_enums().map(|found| found.full_name().to_owned()))
            .collect()
    }

    /// Gets the file of a name from the server, and its imports. The caller checks whether the name is known
    /// afterwards.
    pub(super) async fn fetch(&mut self, name: &str) -> Result<(), Failure> {
        let Some(server) = &mut self.server else { return Ok(()) };
        if self.pool.get_service_by_name(name).is_some() || self.pool.get_message_by_name(name).is_some() {
            return Ok(());
        }
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut queries = vec![Query::FileOf(name.to_owned())];
        while !queries.is_empty() {
            let responses = server.query(&queries).await?;
            let mut imports = BTreeSet::new();
            for (question, answer) in queries.iter().zip(responses) {
                match (question, answer) {
                    (_, Response::Files(encoded)) => {
                        for bytes in encoded {
                            let file = FileDescriptorProto::decode(&*bytes).map_err(|error| {
                                Failure::Usage(format!("the server's schema cannot be read: {error}"))
                            })?;
                            imports.extend(file.dependency.iter().cloned());
                            files.entry(file.name().to_owned()).or_insert(bytes);
                        }
                    }
                    (Query::FileNamed(file), _) => {
                        let text = format!("the server does not have {file}, which its schema imports");
                        return Err(Failure::Usage(text));
                    }
                    _ => return Ok(()),
                }
            }
            if files.len() > FILES_MAX {
                return Err(Failure::Usage(format!("the server's schema has over {FILES_MAX} files")));
            }
            imports.retain(|name| !files.contains_key(name) && self.pool.get_file_by_name(name).is_none());
            if imports.len() > FILES_MAX {
                return Err(Failure::Usage(format!("the server's schema imports over {FILES_MAX} files")));
            }
            queries = imports.into_iter().map(Query::FileNamed).collect();
        }
        let mut pool = self.pool.clone();
        // An encoded descriptor set: a field 1 for each file. The existing files of the pool are included.
        let mut set = Vec::new();
        for bytes in
            files.iter().filter(|(name, _)| pool.get_file_by_name(name).is_none()).map(|(_, file)| file)
        {
            prost::encoding::bytes::encode(1, bytes, &mut set);
        }
        pool.decode_file_descriptor_set(&*set)
            .map_err(|error| Failure::Usage(format!("the server's schema is not consistent: {error}")))?;
        self.pool = pool;
        Ok(())
    }
}

/// Returns whether the method belongs to a Rust trait, whose schema was generated for its JSON: our servers put such
/// schemas into files of this folder.
pub(crate) fn takes_json_alone(method: &MethodDescriptor) -> bool {
    method.parent_file().name().starts_with("switchboard/json/")
}

/// Returns whether a service or message is one that every server may have besides its own.
pub(crate) fn is_about_the_server(name: &str) -> bool {
    name.starts_with("grpc.reflection.")
        || name.starts_with("grpc.health.")
        || name.starts_with("google.protobuf.")
}

fn compile(files: &[PathBuf], includes: &[PathBuf]) -> Result<DescriptorPool, String> {
    let mut folders = includes.to_vec();
    if folders.is_empty() {
        folders.push(PathBuf::from("."));
        // Without other settings, imports are searched next to the file.
        let beside =
            files.iter().filter_map(|file| file.parent()).filter(|folder| !folder.as_os_str().is_empty());
        folders.extend(beside.map(Path::to_owned));
    }
    let wrong = |error: protox::Error| {
        // The debug text, unlike the display text, begins with file, line and column.
        let mut text = format!("{error:?}");
        if error.is_file_not_found() {
            let searched: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            text += &format!("; searched in {}: name its folder with -I", searched.join(", "));
        }
        text
    };
    let mut resolver = ChainFileResolver::new();
    for folder in &folders {
        resolver.add(IncludeFileResolver::new(folder.clone()));
    }
    resolver.add(BundledImports);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(true).open_files(files).map_err(wrong)?;
    Ok(compiler.descriptor_pool())
}

fn read_sets(files: &[PathBuf]) -> Result<DescriptorPool, String> {
    let mut pool = DescriptorPool::new();
    for path in files {
        let wrong = |why: &dyn std::fmt::Display| format!("descriptor set {}: {why}", path.display());
        let bytes = fs::read(path).map_err(|error| wrong(&error))?;
        pool.decode_file_descriptor_set(&*bytes).map_err(|error| {
            let text = wrong(&error);
            match text.contains("imported file") {
                true => format!("{text}; make the set with its imports (protoc --include_imports)"),
                false => text,
            }
        })?;
    }
    Ok(pool)
}

/// An `Any` may contain them although no file imports them.
fn add_well_known(pool: &mut DescriptorPool) {
    for file in DescriptorPool::global().files() {
        if pool.get_file_by_name(file.name()).is_none() {
            // A schema with other definitions of these names keeps them.
            let _ = pool.add_file_descriptor_proto(file.file_descriptor_proto().clone());
        }
    }
}
