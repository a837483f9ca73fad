//! Descriptors of all input files, and the selection of files to generate.

use crate::{
    Error, Proto,
    imports::{IMPORTS, OPTIONS_FILE},
    names::{Named as _, package_of},
};
use buffa::Message as _;
use buffa_codegen::generated::descriptor::{
    DescriptorProto, FileDescriptorProto, FileDescriptorSet, SourceCodeInfo,
};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};
use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

/// The descriptors of all files.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    /// All files, imports before the files that import them.
    pub(crate) files: Vec<FileDescriptorProto>,
    /// Names of the files to generate.
    pub(crate) selected: Vec<String>,
    /// Paths of the input files, for Cargo.
    pub(crate) read_from: Vec<PathBuf>,
}

/// Files whose messages `buffa-types` cannot write as JSON, which every message must support.
const WITHOUT_JSON: [&str; 5] = [
    "google/protobuf/api.proto",
    "google/protobuf/compiler/plugin.proto",
    "google/protobuf/descriptor.proto",
    "google/protobuf/source_context.proto",
    "google/protobuf/type.proto",
];

impl Schema {
    /// Reads all inputs of the builder.
    pub(crate) fn read(proto: &Proto) -> Result<Schema, Error> {
        let mut schema = Schema::default();
        let mut roots = Vec::new();
        if !proto.files.is_empty() {
            roots.extend(schema.compile(&proto.files, &proto.includes)?);
        }
        for path in &proto.descriptor_sets {
            roots.extend(schema.load(path)?);
        }
        schema.selected = schema.select(roots, &proto.extern_paths)?;
        if schema.selected.is_empty() {
            return Err(Error::new(
                "nothing to generate: the files have no messages, enums or services, or .extern_path(…) covers them",
            ));
        }
        Ok(schema)
    }

    /// Compiles `.proto` files; returns their names.
    fn compile(&mut self, files: &[PathBuf], includes: &[PathBuf]) -> Result<Vec<String>, Error> {
        let includes = all_includes(files, includes)?;
        let mut resolver = ChainFileResolver::new();
        for directory in &includes {
            resolver.add(IncludeFileResolver::new(directory.clone()));
        }
        resolver.add(KnownResolver);
        resolver.add(GoogleFileResolver::new());
        let mut compiler = protox::Compiler::with_file_resolver(resolver);
        compiler.include_imports(true).include_source_info(true);
        for file in files {
            compiler.open_file(file).map_err(|cause| Error::compile(cause, &includes))?;
        }
        self.read_from.extend(compiler.files().filter_map(|file| file.path().map(Path::to_owned)));
        let roots =
            compiler.files().filter(|file| !file.is_import()).map(|file| file.name().to_owned()).collect();
        // Encoded and decoded, because the typed set does not contain the options that are extensions.
        self.add(&compiler.encode_file_descriptor_set(), "the compiled files")?;
        Ok(roots)
    }

    /// Loads a descriptor set; returns the names of its files that no other file in it imports or that have services.
    fn load(&mut self, path: &Path) -> Result<Vec<String>, Error> {
        let bytes = fs::read(path).map_err(|cause| Error::io("read", path, cause))?;
        self.read_from.push(path.to_owned());
        let shown = path.display().to_string();
        let files = self.add(&bytes, &shown)?;
        if files.is_empty() {
            return Err(Error::new(format!(
                "{shown} has no files: is it what protoc -o or buf build -o wrote?"
            )));
        }
        let known: BTreeSet<_> = self.files.iter().map(|file| file.name().to_owned()).collect();
        let mut imported = BTreeSet::new();
        for file in &files {
            for import in &file.dependency {
                if !known.contains(import) {
                    return Err(Error::new(format!(
                        "{shown}: {} imports {import}, which is not in the set: build it with --include_imports",
                        file.name()
                    )));
                }
                imported.insert(import.clone());
            }
        }
        let roots = files.iter().filter(|file| !imported.contains(file.name()) || !file.service.is_empty());
        Ok(roots.map(|file| file.name().to_owned()).collect())
    }

    /// Adds the new files of an encoded set; returns all files of the set.
    fn add(&mut self, encoded: &[u8], origin: &str) -> Result<Vec<FileDescriptorProto>, Error> {
        let options = buffa_codegen::tooling_decode_options().map_err(Error::new)?;
        let set: FileDescriptorSet = options.decode_from_slice(encoded).map_err(|cause| {
            Error::new(format!(
                "{origin}: {}",
                buffa_codegen::decode_failure("the descriptor set", &cause, options.element_memory_limit())
            ))
        })?;
        for file in &set.file {
            if !self.files.iter().any(|known| known.name() == file.name()) {
                self.files.push(file.clone());
            }
        }
        Ok(set.file)
    }

    /// Returns the roots and all files of which they use a message or enum, except for files whose code exists
    /// elsewhere. Files that are imported only for their options are not selected.
    fn select(&self, roots: Vec<String>, extern_paths: &[(String, String)]) -> Result<Vec<String>, Error> {
        let mut file_of_type = HashMap::new();
        for file in &self.files {
            for message in &file.message_type {
                note_types(&mut file_of_type, &scope(file), message, file.name());
            }
            for item in &file.enum_type {
                file_of_type.insert(format!("{}.{}", scope(file), item.name()), file.name());
            }
        }
        let mut selected = BTreeSet::new();
        let mut open = roots;
        while let Some(name) = open.pop() {
            let Some(file) = self.file(&name) else { continue };
            if is_elsewhere(file, extern_paths) || !selected.insert(name) {
                continue;
            }
            let mut used = BTreeSet::new();
            file.message_type.iter().for_each(|message| note_used(&mut used, message));
            for method in file.service.iter().flat_map(|service| &service.method) {
                used.extend(method.input_type.as_deref());
                used.extend(method.output_type.as_deref());
            }
            for type_name in used {
                let origin = file_of_type.get(type_name).ok_or_else(|| {
                    Error::new(format!(
                        "{}: type {type_name} is in none of the files that were read",
                        file.name()
                    ))
                })?;
                if WITHOUT_JSON.contains(origin) && !covers(extern_paths, type_name) {
                    return Err(Error::new(format!(
                        "{}: {type_name} cannot be used, there is no JSON for it: send it as `bytes`, or name your own \
                         code for it with .extern_path(…)",
                        file.name()
                    )));
                }
                open.push((*origin).to_owned());
            }
            let public =
                file.public_dependency.iter().filter_map(|&index| file.dependency.get(index as usize));
            open.extend(public.cloned());
        }
        // In the order of the files, so that the same input gives the same output.
        Ok(self
            .files
            .iter()
            .map(|file| file.name().to_owned())
            .filter(|name| selected.contains(name))
            .collect())
    }

    /// Returns the file with this name.
    pub(crate) fn file(&self, name: &str) -> Option<&FileDescriptorProto> {
        self.files.iter().find(|file| file.name() == name)
    }

    /// Returns the message with this full name, which begins with a dot.
    pub(crate) fn message(&self, name: &str) -> Option<&DescriptorProto> {
        self.files.iter().find_map(|file| {
            let within = name.strip_prefix(&scope(file))?.strip_prefix('.')?;
            let mut parts = within.split('.');
            let first = parts.next()?;
            let root = file.message_type.iter().find(|message| message.name() == first)?;
            parts.try_fold(root, |message, part| {
                message.nested_type.iter().find(|nested| nested.name() == part)
            })
        })
    }

    /// Returns the selected files of a package.
    pub(crate) fn files_of<'a>(&'a self, package: &'a str) -> impl Iterator<Item = &'a FileDescriptorProto> {
        let selected = self.selected.iter().filter_map(|name| self.file(name));
        selected.filter(move |file| package_of(file) == package)
    }

    /// Returns the encoded descriptors of the files of a package with all their imports. Source information is kept
    /// only for comments in generated files, with their positions: service descriptions are made of them.
    pub(crate) fn descriptors_of(&self, package: &str) -> Vec<u8> {
        let mut wanted = BTreeSet::new();
        let mut open: Vec<_> = self.files_of(package).map(|file| file.name().to_owned()).collect();
        while let Some(name) = open.pop() {
            if let Some(file) = self.file(&name)
                && wanted.insert(name)
            {
                open.extend(file.dependency.iter().cloned());
            }
        }
        let mut set = FileDescriptorSet::default();
        for file in self.files.iter().filter(|file| wanted.contains(file.name())) {
            let mut file = file.clone();
            let info =
                file.source_code_info.take().filter(|_| self.selected.iter().any(|name| name == file.name()));
            file.source_code_info = info.map(with_comments).into();
            set.file.push(file);
        }
        set.encode_to_vec()
    }
}

/// Keeps the positions that have a comment.
fn with_comments(mut info: SourceCodeInfo) -> SourceCodeInfo {
    info.location
        .retain(|location| location.leading_comments.is_some() || location.trailing_comments.is_some());
    info.location.iter_mut().for_each(|location| location.leading_detached_comments.clear());
    info
}

/// Resolves the files that this crate includes.
struct KnownResolver;

impl FileResolver for KnownResolver {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match IMPORTS.iter().find(|(known, _)| *known == name) {
            Some((_, source)) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// Returns the given directories, and for each file outside of them the root of its package.
fn all_includes(files: &[PathBuf], given: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut includes = given.to_vec();
    for file in files {
        fs::metadata(file).map_err(|cause| Error::io("read", file, cause))?;
        if !includes.iter().any(|directory| file.starts_with(directory)) {
            includes.push(package_root(file));
        }
    }
    Ok(includes)
}

/// Returns `proto` for `proto/demo/v1/demo.proto` of package `demo.v1`; else the directory of the file.
fn package_root(file: &Path) -> PathBuf {
    let parent = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    // A file that cannot be parsed is reported when it is compiled.
    let package =
        File::open("package.proto", file).map(|file| file.file_descriptor_proto().package().to_owned());
    let mut root = parent.as_path();
    for part in package.unwrap_or_default().rsplit('.') {
        match (root.file_name(), root.parent()) {
            (Some(name), Some(above)) if name == part => root = above,
            _ => return dot_if_empty(parent),
        }
    }
    dot_if_empty(root.to_owned())
}

fn dot_if_empty(path: PathBuf) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path }
}

/// Returns true if the code for a file is in another crate or not needed.
fn is_elsewhere(file: &FileDescriptorProto, extern_paths: &[(String, String)]) -> bool {
    let package = scope(file);
    let google = package == ".google.protobuf" || package.starts_with(".google.protobuf.");
    let empty = file.message_type.is_empty()
        && file.enum_type.is_empty()
        && file.service.is_empty()
        && file.public_dependency.is_empty();
    google || covers(extern_paths, &package) || empty || file.name() == OPTIONS_FILE
}

/// Returns true if a package or type is mapped to existing code.
fn covers(extern_paths: &[(String, String)], name: &str) -> bool {
    extern_paths.iter().any(|(proto, _)| {
        proto == "."
            || name.strip_prefix(proto.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Returns `.demo.v1`, or an empty string for a file without a package.
fn scope(file: &FileDescriptorProto) -> String {
    let package = package_of(file);
    if package.is_empty() { String::new() } else { format!(".{package}") }
}

fn note_types<'a>(
    types: &mut HashMap<String, &'a str>,
    scope: &str,
    message: &DescriptorProto,
    file: &'a str,
) {
    let name = format!("{scope}.{}", message.name());
    message.nested_type.iter().for_each(|nested| note_types(types, &name, nested, file));
    for item in &message.enum_type {
        types.insert(format!("{name}.{}", item.name()), file);
    }
    types.insert(name, file);
}

fn note_used<'a>(used: &mut BTreeSet<&'a str>, message: &'a DescriptorProto) {
    used.extend(message.field.iter().filter_map(|field| field.type_name.as_deref()));
    message.nested_type.iter().for_each(|nested| note_used(used, nested));
}
