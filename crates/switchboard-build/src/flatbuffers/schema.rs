//! Files that include each other, and resolution of names in them.

use super::{
    ast::{Base, Item, Kind, Method, Type},
    parser,
};
use crate::Error;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// All parsed files.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) items: Vec<Item>,
    /// Full paths of the files.
    pub(super) files: Vec<PathBuf>,
    /// Index in `items` of each full name.
    names: BTreeMap<String, usize>,
}

/// A resolved type.
#[derive(Clone, Debug)]
pub(super) enum Resolved<'a> {
    Array(Box<Resolved<'a>>, usize),
    Base(Base),
    Item(&'a Item),
    String,
    Vector(Box<Resolved<'a>>),
}

impl Resolved<'_> {
    pub(super) fn is_union(&self) -> bool {
        matches!(self, Resolved::Item(Item { kind: Kind::Union(_), .. }))
    }

    pub(super) fn is_union_vector(&self) -> bool {
        matches!(self, Resolved::Vector(item) if item.is_union())
    }
}

/// Largest nesting of structs; deeper ones are recursive.
const STRUCTS_MAX: usize = 64;

impl Schema {
    /// Reads the files and the files that they include.
    ///
    /// # Errors
    /// Returns an error for files that are missing or cannot be parsed, and for names that are defined twice.
    pub(super) fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<Schema, Error> {
        let mut schema = Schema::default();
        for file in files {
            schema.load(file, includes)?;
        }
        for (number, item) in schema.items.iter().enumerate() {
            let name = format!("{}.{}", item.namespace, item.name);
            let bare = item.is_global.then(|| item.name.clone());
            if [Some(name), bare]
                .into_iter()
                .flatten()
                .any(|name| schema.names.insert(name, number).is_some())
            {
                return Err(Error::new(format!("{}: {} is defined twice", item.place, item.name)));
            }
        }
        Ok(schema)
    }

    fn load(&mut self, file: &Path, includes: &[PathBuf]) -> Result<(), Error> {
        let path = fs::canonicalize(file).map_err(|cause| Error::io("read", file, cause))?;
        if self.files.contains(&path) {
            return Ok(());
        }
        let text = fs::read_to_string(&path).map_err(|cause| Error::io("read", file, cause))?;
        self.files.push(path);
        let name = file.display().to_string();
        let stem = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let document = parser::parse(&name, &stem, &text)?;
        self.items.extend(document.items);
        for (include, line) in document.includes {
            let folders = file.parent().into_iter().chain(includes.iter().map(PathBuf::as_path));
            let Some(found) = folders.map(|folder| folder.join(&include)).find(|place| place.is_file())
            else {
                return Err(Error::new(format!(
                    "{name}:{line}: {include} is not there: add its directory with .include(…), on a command line \
                     with -I"
                )));
            };
            self.load(&found, includes)?;
        }
        Ok(())
    }

    /// Finds the definition of a name in a namespace, from the innermost namespace outwards.
    ///
    /// # Errors
    /// Returns an error for an undefined name.
    pub(super) fn find(&self, namespace: &str, name: &str, place: &str) -> Result<&Item, Error> {
        let mut within = namespace;
        loop {
            if let Some(found) = self.names.get(&format!("{within}.{name}")) {
                return Ok(&self.items[*found]);
            }
            within = match within.rsplit_once('.') {
                Some((outer, _)) => outer,
                None => break,
            };
        }
        let found = self.names.get(name).map(|found| &self.items[*found]);
        found.ok_or_else(|| Error::new(format!("{place}: {name} is not defined")))
    }

    /// Finds the table that a method or union names.
    ///
    /// # Errors
    /// Returns an error if the name is undefined or is not a table.
    pub(super) fn table(&self, namespace: &str, name: &str, place: &str) -> Result<&Item, Error> {
        match self.find(namespace, name, place)? {
            item @ Item { kind: Kind::Table(_), .. } => Ok(item),
            _ => Err(Error::new(format!("{place}: {name} is not a table"))),
        }
    }

    /// Finds the request and reply tables of a method.
    ///
    /// # Errors
    /// Returns the errors of [`table`](Self::table).
    pub(super) fn messages(&self, service: &Item, method: &Method) -> Result<(&Item, &Item), Error> {
        let table = |name: &str| self.table(&service.namespace, name, &method.place);
        Ok((table(&method.request)?, table(&method.reply)?))
    }

    /// Resolves a type.
    ///
    /// # Errors
    /// Returns an error for undefined names, and for names of services.
    pub(super) fn resolve(&self, namespace: &str, ty: &Type, place: &str) -> Result<Resolved<'_>, Error> {
        let inner = |ty: &Type| self.resolve(namespace, ty, place).map(Box::new);
        Ok(match ty {
            Type::Array(item, size) => Resolved::Array(inner(item)?, *size),
            Type::Base(base) => Resolved::Base(*base),
            Type::Named(name) => match self.find(namespace, name, place)? {
                Item { kind: Kind::Service(_), name, .. } => {
                    return Err(Error::new(format!("{place}: {name} is a service, not a type")));
                }
                item => Resolved::Item(item),
            },
            Type::String => Resolved::String,
            Type::Vector(item) => Resolved::Vector(inner(item)?),
        })
    }

    /// Returns size and alignment in bytes of an in-place value; `None` for a value that is stored elsewhere.
    ///
    /// # Errors
    /// Returns an error for structs that contain themselves or a value that is stored elsewhere.
    pub(super) fn layout(&self, ty: &Resolved<'_>) -> Result<Option<(usize, usize)>, Error> {
        self.layout_within(ty, STRUCTS_MAX)
    }

    fn layout_within(&self, ty: &Resolved<'_>, left: usize) -> Result<Option<(usize, usize)>, Error> {
        Ok(match ty {
            Resolved::Array(item, len) => {
                self.layout_within(item, left)?.map(|(size, align)| (size * len, align))
            }
            Resolved::Base(base) | Resolved::Item(Item { kind: Kind::Enum { base, .. }, .. }) => {
                Some((base.size(), base.size()))
            }
            Resolved::Item(item @ Item { kind: Kind::Struct { .. }, .. }) => {
                let offsets = self.offsets(item, left)?;
                Some((offsets.size, offsets.align))
            }
            Resolved::Item(_) | Resolved::String | Resolved::Vector(_) => None,
        })
    }

    /// Returns the offsets of the fields of a struct.
    ///
    /// # Errors
    /// Returns the errors of [`layout`](Self::layout).
    pub(super) fn offsets_of(&self, item: &Item) -> Result<Offsets, Error> {
        self.offsets(item, STRUCTS_MAX)
    }

    fn offsets(&self, item: &Item, left: usize) -> Result<Offsets, Error> {
        let Kind::Struct { fields, align } = &item.kind else { return Ok(Offsets::default()) };
        if left == 0 {
            return Err(Error::new(format!("{}: struct {} contains itself", item.place, item.name)));
        }
        let mut offsets = Offsets { align: *align, ..Offsets::default() };
        for field in fields {
            if let Some(default) = &field.default {
                return Err(Error::new(format!("{}: a struct has no defaults: {default:?}", field.place)));
            }
            let ty = self.resolve(&item.namespace, &field.ty, &field.place)?;
            let Some((size, align)) = self.layout_within(&ty, left - 1)? else {
                return Err(Error::new(format!(
                    "{}: {} is not a number, enum or struct, and {} is a struct: make it a table",
                    field.place, field.name, item.name
                )));
            };
            let at = offsets.size.next_multiple_of(align);
            offsets.fields.push(at);
            offsets.size = at + size;
            offsets.align = offsets.align.max(align);
        }
        offsets.size = offsets.size.next_multiple_of(offsets.align);
        Ok(offsets)
    }
}

/// The layout of a struct, in bytes.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    pub(super) fields: Vec<usize>,
    pub(super) size: usize,
    pub(super) align: usize,
}
