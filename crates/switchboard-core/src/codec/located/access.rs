//! Access to the parts of a value; each part keeps the path of its field.

use super::{Located, Track};
use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor},
};
use std::fmt;

/// Role of a value in its message.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// The name of a field or of a variant.
    Key,
    /// The value of a field, in a struct with these fields; none for maps and for types that do not say.
    Field {
        names: &'static [&'static str],
        /// Length of the path of the struct.
        parent: usize,
    },
    /// Another value.
    Value,
}

/// A visitor.
pub(super) struct Watch<'t, V> {
    pub(super) inner: V,
    pub(super) track: &'t Track,
    pub(super) is_key: bool,
    /// The fields of the struct, if it is one.
    pub(super) names: &'static [&'static str],
}

/// The fields of a map or struct.
struct Entries<'t, A> {
    inner: A,
    track: &'t Track,
    names: &'static [&'static str],
    parent: usize,
}

/// The items of a list, or the fields of a struct that is written without their names.
struct Items<'t, A> {
    inner: A,
    track: &'t Track,
    names: &'static [&'static str],
    index: usize,
    parent: usize,
}

macro_rules! scalars {
    ($($method:ident: $type:ty)*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            if self.is_key {
                self.track.enter_field(&value);
            }
            self.inner.$method(value)
        }
    )*};
}

macro_rules! others {
    ($($method:ident($($argument:ident: $type:ty)?))*) => {$(
        fn $method<E: serde::de::Error>(self $(, $argument: $type)?) -> Result<V::Value, E> {
            self.inner.$method($($argument)?)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Watch<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    scalars! {
        visit_bool: bool
        visit_i8: i8 visit_i16: i16 visit_i32: i32 visit_i64: i64 visit_i128: i128
        visit_u8: u8 visit_u16: u16 visit_u32: u32 visit_u64: u64 visit_u128: u128
        visit_f32: f32 visit_f64: f64
        visit_char: char
        visit_str: &str visit_borrowed_str: &'de str visit_string: String
    }

    others! {
        visit_bytes(value: &[u8])
        visit_borrowed_bytes(value: &'de [u8])
        visit_byte_buf(value: Vec<u8>)
        visit_none()
        visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Located { inner: from, track: self.track, role: Role::Value })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        // The name of a field may be of a type of its own.
        let role = if self.is_key { Role::Key } else { Role::Value };
        self.inner.visit_newtype_struct(Located { inner: from, track: self.track, role })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        let parent = self.track.len();
        self.inner.visit_seq(Items { inner: items, track: self.track, names: self.names, index: 0, parent })
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let parent = self.track.len();
        self.inner.visit_map(Entries { inner: entries, track: self.track, names: self.names, parent })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Located { inner: variant, track: self.track, role: Role::Value })
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Located<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Located { inner: from, track: self.track, role: self.role })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.track.back_to(self.parent);
        match self.names.get(self.index) {
            Some(name) => self.track.enter_field(name),
            None => self.track.enter_item(self.index),
        }
        self.index += 1;
        let seed = Located { inner: seed, track: self.track, role: Role::Value };
        let item = self.inner.next_element_seed(seed)?;
        self.track.back_to(self.parent);
        Ok(item)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.track.back_to(self.parent);
        let seed = Located { inner: seed, track: self.track, role: Role::Key };
        // The error for a name has the name.
        self.inner.next_key_seed(seed).inspect_err(|_| self.track.back_to(self.parent))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let role = Role::Field { names: self.names, parent: self.parent };
        let value = self.inner.next_value_seed(Located { inner: seed, track: self.track, role })?;
        self.track.back_to(self.parent);
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'t, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Located<'t, A> {
    type Error = A::Error;
    type Variant = Located<'t, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (track, parent) = (self.track, self.track.len());
        let seed = Located { inner: seed, track, role: Role::Key };
        let (name, inner) = self.inner.variant_seed(seed).inspect_err(|_| track.back_to(parent))?;
        Ok((name, Located { inner, track, role: Role::Value }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Located<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Located { inner: seed, track: self.track, role: Role::Value })
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.watch(visitor, &[]);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.watch(visitor, fields);
        self.inner.struct_variant(fields, visitor)
    }
}
