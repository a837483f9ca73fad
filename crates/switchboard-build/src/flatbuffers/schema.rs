//! Files that include each other, and what names in them mean.

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

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) items: Vec<Item>,
    /// Files, by their full paths.
    pub(super) files: Vec<PathBuf>,
    /// Where in `items` a full name is.
    names: BTreeMap<String, usize>,
}

/// What a type is.
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

/// Structs in one another deeper than this go round in a circle.
const STRUCTS_MAX: usize = 64;

impl Schema {
    /// Reads the files and those that they include.
    ///
    /// # Errors
    /// Files that are not there or not understood, and names that mean two things.
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

    /// What a name means in a namespace: what is nearest, from the inside out.
    ///
    /// # Errors
    /// Names that nobody defined.
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

    /// The table that a method or union names.
    ///
    /// # Errors
    /// Something else has the name, or nothing.
    pub(super) fn table(&self, namespace: &str, name: &str, place: &str) -> Result<&Item, Error> {
        match self.find(namespace, name, place)? {
            item @ Item { kind: Kind::Table(_), .. } => Ok(item),
            _ => Err(Error::new(format!("{place}: {name} is no table"))),
        }
    }

    /// The tables of a method.
    ///
    /// # Errors
    /// Those of [`table`](Self::table).
    pub(super) fn messages(&self, service: &Item, method: &Method) -> Result<(&Item, &Item), Error> {
        let table = |name: &str| self.table(&service.namespace, name, &method.place);
        Ok((table(&method.request)?, table(&method.reply)?))
    }

    /// What a type is.
    ///
    /// # Errors
    /// Names that nobody defined, and those of services.
    pub(super) fn resolve(&self, namespace: &str, ty: &Type, place: &str) -> Result<Resolved<'_>, Error> {
        let inner = |ty: &Type| self.resolve(namespace, ty, place).map(Box::new);
        Ok(match ty {
            Type::Array(item, size) => Resolved::Array(inner(item)?, *size),
            Type::Base(base) => Resolved::Base(*base),
            Type::Named(name) => match self.find(namespace, name, place)? {
                Item { kind: Kind::Service(_), name, .. } => {
                    return Err(Error::new(format!("{place}: {name} is a service and no type")));
                }
                item => Resolved::Item(item),
            },
            Type::String => Resolved::String,
            Type::Vector(item) => Resolved::Vector(inner(item)?),
        })
    }

    /// Bytes that a value takes in place, and what its position is a multiple of; none of what is referred to.
    ///
    /// # Errors
    /// Structs that hold themselves or what is referred to.
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

    /// Where the fields of a struct are.
    ///
    /// # Errors
    /// Those of [`layout`](Self::layout).
    pub(super) fn offsets_of(&self, item: &Item) -> Result<Offsets, Error> {
        self.offsets(item, STRUCTS_MAX)
    }

    fn offsets(&self, item: &Item, left: usize) -> Result<Offsets, Error> {
        let Kind::Struct { fields, align } = &item.kind else { return Ok(Offsets::default()) };
        if left == 0 {
            return Err(Error::new(format!("{}: struct {} holds itself", item.place, item.name)));
        }
        let mut offsets = Offsets { align: *align, ..Offsets::default() };
        for field in fields {
            if let Some(default) = &field.default {
                return Err(Error::new(format!("{}: a struct has no defaults: {default:?}", field.place)));
            }
            let ty = self.resolve(&item.namespace, &field.ty, &field.place)?;
            let Some((size, align)) = self.layout_within(&ty, left - 1)? else {
                return Err(Error::new(format!(
                    "{}: {} is no number, enum or struct, and {} is a struct: make it a table",
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
