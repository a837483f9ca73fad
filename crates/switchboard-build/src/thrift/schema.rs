//! Files that include each other, and resolution of names in them.

use super::{
    ast::{Base, Constant, Document, Enum, Service, Struct, StructKind, Type, Value},
    parser,
};
use crate::Error;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// All parsed files.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) documents: Vec<Document>,
}

/// A type with typedefs resolved; names have the index of their file.
#[derive(Clone, Debug)]
pub(super) enum Resolved<'a> {
    Base(Base),
    Enum(usize, &'a Enum),
    List(Box<Resolved<'a>>),
    Map(Box<Resolved<'a>>, Box<Resolved<'a>>),
    Set(Box<Resolved<'a>>),
    Struct(usize, &'a Struct),
}

/// Largest number of chained typedefs; a longer chain is recursive.
const TYPEDEFS_MAX: usize = 64;
/// Largest depth of services that extend each other; a deeper chain is recursive.
const EXTENDS_MAX: usize = 64;

impl Schema {
    /// Reads the files and the files that they include.
    ///
    /// # Errors
    /// Returns an error for files that are missing or cannot be parsed.
    pub(super) fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<Schema, Error> {
        let mut schema = Schema { documents: Vec::new() };
        for file in files {
            schema.load(file, includes)?;
        }
        for document in &schema.documents {
            schema.check_names(document)?;
        }
        Ok(schema)
    }

    /// Returns the index of the file, which is read if it is new.
    fn load(&mut self, file: &Path, includes: &[PathBuf]) -> Result<usize, Error> {
        let path = fs::canonicalize(file).map_err(|cause| Error::io("read", file, cause))?;
        if let Some(known) = self.documents.iter().position(|document| document.path == path) {
            return Ok(known);
        }
        let text = fs::read_to_string(&path).map_err(|cause| Error::io("read", file, cause))?;
        let name = file.display().to_string();
        let mut document = parser::parse(&name, &text)?;
        document.path = path.clone();
        document.stem = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        document.package = package(&document);
        let number = self.documents.len();
        let wanted = std::mem::take(&mut document.includes);
        self.documents.push(document);
        for (include, line) in wanted {
            let own = file.parent().map(Path::to_owned);
            let mut places =
                own.into_iter().chain(includes.iter().cloned()).map(|folder| folder.join(&include));
            let Some(found) = places.find(|place| place.is_file()) else {
                return Err(Error::new(format!(
                    "{name}:{line}: {include} is not there: add its directory with .include(…), on a command line \
                     with -I"
                )));
            };
            let stem = found.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            let included = self.load(&found, includes)?;
            self.documents[number].included.push((stem, included));
        }
        Ok(number)
    }

    /// Checks that no name is defined twice.
    fn check_names(&self, document: &Document) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        let structs = document.structs.iter().map(|item| &item.name);
        let others = document.enums.iter().map(|item| &item.name);
        let typedefs = document.typedefs.iter().map(|item| &item.name);
        for name in
            structs.chain(others).chain(typedefs).chain(document.services.iter().map(|item| &item.name))
        {
            if !names.insert(name) {
                return Err(Error::new(format!("{}: {name} is defined twice", document.path.display())));
            }
        }
        Ok(())
    }

    /// `file:line`.
    pub(super) fn place(&self, file: usize, line: usize) -> String {
        format!("{}:{line}", self.documents[file].path.display())
    }

    /// Returns the file in which a name is looked up, and the name in that file.
    fn locate<'n>(&self, file: usize, name: &'n str) -> (usize, &'n str) {
        if let Some((stem, rest)) = name.split_once('.')
            && let Some((_, included)) = self.documents[file].included.iter().find(|(known, _)| known == stem)
        {
            return (*included, rest);
        }
        (file, name)
    }

    /// Resolves a type in `file`.
    ///
    /// # Errors
    /// Returns an error for undefined names.
    pub(super) fn resolve(&self, file: usize, ty: &Type, line: usize) -> Result<Resolved<'_>, Error> {
        self.resolve_within(file, ty, line, TYPEDEFS_MAX)
    }

    fn resolve_within(
        &self,
        file: usize,
        ty: &Type,
        line: usize,
        left: usize,
    ) -> Result<Resolved<'_>, Error> {
        if left == 0 {
            return Err(Error::new(format!("{}: a typedef that refers to itself", self.place(file, line))));
        }
        let inner = |ty: &Type| self.resolve_within(file, ty, line, left - 1).map(Box::new);
        Ok(match ty {
            Type::Base(base) => Resolved::Base(*base),
            Type::List(element) => Resolved::List(inner(element)?),
            Type::Set(element) => Resolved::Set(inner(element)?),
            Type::Map(key, value) => Resolved::Map(inner(key)?, inner(value)?),
            Type::Named(name) => {
                let (at, bare) = self.locate(file, name);
                let document = &self.documents[at];
                if let Some(found) = document.structs.iter().find(|item| item.name == bare) {
                    return Ok(Resolved::Struct(at, found));
                }
                if let Some(found) = document.enums.iter().find(|item| item.name == bare) {
                    return Ok(Resolved::Enum(at, found));
                }
                if let Some(found) = document.typedefs.iter().find(|item| item.name == bare) {
                    return self.resolve_within(at, &found.ty, found.line, left - 1);
                }
                return Err(Error::new(format!("{}: {name} is not a type", self.place(file, line))));
            }
        })
    }

    /// Finds the exception that a method throws.
    ///
    /// # Errors
    /// Returns an error for a type that is not an exception.
    pub(super) fn exception(&self, file: usize, ty: &Type, line: usize) -> Result<(usize, &Struct), Error> {
        match self.resolve(file, ty, line)? {
            Resolved::Struct(at, found) if found.kind == StructKind::Exception => Ok((at, found)),
            _ => Err(Error::new(format!("{}: only exceptions are thrown", self.place(file, line)))),
        }
    }

    /// Finds a service by its name.
    fn service(&self, file: usize, name: &str) -> Option<(usize, &Service)> {
        let (at, bare) = self.locate(file, name);
        Some((at, self.documents[at].services.iter().find(|service| service.name == bare)?))
    }

    /// Returns the services that a service extends, followed by the service, each with its file.
    ///
    /// # Errors
    /// Returns an error for undefined services, and for services that extend themselves.
    pub(super) fn extended<'a>(
        &'a self,
        file: usize,
        service: &'a Service,
    ) -> Result<Vec<(usize, &'a Service)>, Error> {
        let mut chain = vec![(file, service)];
        while let Some((at, last)) = chain.last().copied()
            && let Some(base) = &last.extends
        {
            let place = self.place(at, last.line);
            let base = self.service(at, base);
            let base =
                base.ok_or_else(|| Error::new(format!("{place}: {} extends an unknown service", last.name)))?;
            if chain.len() == EXTENDS_MAX {
                return Err(Error::new(format!("{place}: {} extends itself", last.name)));
            }
            chain.push(base);
        }
        chain.reverse();
        Ok(chain)
    }

    /// Finds a constant by its name, and its file.
    pub(super) fn constant(&self, file: usize, name: &str) -> Option<(usize, &Constant)> {
        let (at, bare) = self.locate(file, name);
        Some((at, self.documents[at].constants.iter().find(|constant| constant.name == bare)?))
    }

    /// Returns the number of `Enum.MEMBER`, which may follow the stem of a file.
    pub(super) fn member(&self, file: usize, name: &str) -> Option<i32> {
        let (at, bare) = self.locate(file, name);
        let (item, member) = bare.split_once('.')?;
        let item = self.documents[at].enums.iter().find(|found| found.name == item)?;
        Some(item.members.iter().find(|(known, _, _)| known == member)?.1)
    }

    /// Resolves a value until it is not a name; returns it with the file in which names inside of it are looked up.
    ///
    /// # Errors
    /// Returns an error for undefined names.
    pub(super) fn value<'a>(
        &'a self,
        file: usize,
        value: &'a Value,
        line: usize,
    ) -> Result<(usize, std::borrow::Cow<'a, Value>), Error> {
        use std::borrow::Cow;
        let (mut file, mut value) = (file, value);
        for _ in 0..TYPEDEFS_MAX {
            let Value::Name(name) = value else { return Ok((file, Cow::Borrowed(value))) };
            if name == "true" || name == "false" {
                return Ok((file, Cow::Owned(Value::Int(i64::from(name == "true")))));
            }
            if let Some(number) = self.member(file, name) {
                return Ok((file, Cow::Owned(Value::Int(number.into()))));
            }
            let Some((at, constant)) = self.constant(file, name) else {
                return Err(Error::new(format!("{}: {name} has no value", self.place(file, line))));
            };
            (file, value) = (at, &constant.value);
        }
        Err(Error::new(format!("{}: a constant that refers to itself", self.place(file, line))))
    }
}

/// Returns the namespace for Rust, the namespace for all languages, or the name of the file.
fn package(document: &Document) -> String {
    let of = |language: &str| document.namespaces.iter().find(|(known, _)| known == language);
    of("rs").or(of("*")).map_or_else(|| document.stem.clone(), |(_, name)| name.clone())
}
