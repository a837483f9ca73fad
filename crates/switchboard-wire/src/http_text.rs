//! Conversion of text in paths and queries to arguments of methods of Rust traits.
//!
//! Protobuf descriptors define the type of each field; traits have no descriptor. Each argument has a [`TextParam`]
//! instead, which the compiler derives from the argument's type by [`HttpText`].

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    num::{
        NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
        NonZeroU64, NonZeroUsize,
    },
};

/// A type of arguments that HTTP paths and queries can fill.
///
/// Numbers, `bool`, `char`, text, addresses, and `Option` of these implement it; a query can also fill a `Vec` of them.
/// Implement it for your own types whose serde form is a single value:
///
/// ```
/// # use switchboard_wire as switchboard;
/// use switchboard::{HttpText, TextKind};
///
/// #[derive(serde::Deserialize, serde::Serialize)]
/// struct OrderId(u64);
///
/// impl HttpText for OrderId {
///     const KIND: TextKind = TextKind::Uint64;
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "text in an HTTP path or query cannot fill a `{Self}`",
    label = "it can fill numbers, `bool`, `char`, text, addresses, `Option` of these, and types that implement `HttpText`",
    note = "leave it out of the path and let the rule have `body = \"*\"`, or implement `switchboard::HttpText` for the type"
)]
pub trait HttpText {
    /// JSON type that the text is converted to; the type must deserialize from it.
    const KIND: TextKind;
    /// True if the argument may be missing.
    const IS_OPTIONAL: bool = false;
}

/// JSON type that text of a path or a query is converted to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: generated code declares the types of JSON and of protobuf
pub enum TextKind {
    /// `true` or `false`.
    Bool,
    /// A number.
    Float,
    /// A whole number of up to 32 bits.
    Int32,
    /// A whole number of up to 64 bits.
    Int64,
    /// The text itself, as a string.
    String,
    /// A non-negative whole number of up to 32 bits.
    Uint32,
    /// A non-negative whole number of up to 64 bits.
    Uint64,
}

/// Conversion of text to one argument.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextParam {
    /// JSON type of the argument, or of each item of a list.
    pub kind: TextKind,
    /// The argument may occur any number of times, including zero.
    pub is_list: bool,
    /// The argument may be missing.
    pub is_optional: bool,
}

const KINDS: [TextKind; 7] = [
    TextKind::Bool,
    TextKind::Float,
    TextKind::Int32,
    TextKind::Int64,
    TextKind::String,
    TextKind::Uint32,
    TextKind::Uint64,
];
const LIST: u32 = 1 << 3;
const OPTIONAL: u32 = 1 << 4;

impl TextParam {
    /// Number of the field option that reflection uses for arguments of Rust traits. It is in the range for private
    /// use.
    #[doc(hidden)]
    pub const OPTION: u32 = 73_127;

    /// Encodes the value of that option.
    #[doc(hidden)]
    pub fn number(self) -> u32 {
        let flags = if self.is_list { LIST } else { 0 } | if self.is_optional { OPTIONAL } else { 0 };
        KINDS.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u32 | flags
    }

    /// Decodes such a value; `None` for values of later versions.
    #[doc(hidden)]
    pub fn of_number(number: u32) -> Option<TextParam> {
        let kind = *KINDS.get((number & !(LIST | OPTIONAL)) as usize)?;
        Some(TextParam { kind, is_list: number & LIST != 0, is_optional: number & OPTIONAL != 0 })
    }
}

/// A type of arguments that queries can fill: every [`HttpText`] and lists of them. Used by generated code only.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "an HTTP query cannot fill a `{Self}`",
    label = "neither path nor body of the rule has it; queries can fill numbers, `bool`, `char`, text, addresses, `Option` and `Vec` of these, and types that implement `HttpText`",
    note = "let the rule have `body = \"*\"`, or implement `switchboard::HttpText` for the type"
)]
pub trait HttpQuery {
    const PARAM: TextParam;
}

impl<T: HttpText> HttpQuery for T {
    const PARAM: TextParam = TextParam { kind: T::KIND, is_list: false, is_optional: T::IS_OPTIONAL };
}

impl<T: HttpText> HttpQuery for Vec<T> {
    const PARAM: TextParam = TextParam { kind: T::KIND, is_list: true, is_optional: false };
}

impl<T: HttpText> HttpText for Option<T> {
    const KIND: TextKind = T::KIND;
    const IS_OPTIONAL: bool = true;
}

/// `OfType::<T>::PARAM` is the conversion of text to a `T`, or `None` if there is none: its inherent constant takes
/// precedence over that of [`OfAnyType`]. Used by generated code only.
#[doc(hidden)]
#[derive(Debug)]
pub struct OfType<T>(std::marker::PhantomData<T>);

impl<T: HttpQuery> OfType<T> {
    pub const PARAM: Option<TextParam> = Some(T::PARAM);
}

/// See [`OfType`].
#[doc(hidden)]
pub trait OfAnyType {
    const PARAM: Option<TextParam> = None;
}

impl<T> OfAnyType for OfType<T> {}

macro_rules! texts {
    ($($kind:ident: $($of:ty),+;)+) => {
        $($(impl HttpText for $of {
            const KIND: TextKind = TextKind::$kind;
        })+)+
    };
}

texts! {
    Bool: bool;
    Float: f32, f64;
    Int32: i8, i16, i32, NonZeroI8, NonZeroI16, NonZeroI32;
    Int64: i64, isize, NonZeroI64, NonZeroIsize;
    String: char, String, Box<str>, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6;
    Uint32: u8, u16, u32, NonZeroU8, NonZeroU16, NonZeroU32;
    Uint64: u64, usize, NonZeroU64, NonZeroUsize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_define_their_conversion_from_text() {
        let param = |kind, is_list, is_optional| Some(TextParam { kind, is_list, is_optional });
        assert_eq!(OfType::<u8>::PARAM, param(TextKind::Uint32, false, false));
        assert_eq!(OfType::<Option<f64>>::PARAM, param(TextKind::Float, false, true));
        assert_eq!(OfType::<Vec<String>>::PARAM, param(TextKind::String, true, false));
        type Alias = i64;
        assert_eq!(OfType::<Alias>::PARAM, param(TextKind::Int64, false, false));
        assert_eq!(OfType::<(u8, u8)>::PARAM, None);
        assert_eq!(OfType::<Vec<Vec<u8>>>::PARAM, None);
        assert_eq!(OfType::<Option<Vec<u8>>>::PARAM, None);
    }
}
