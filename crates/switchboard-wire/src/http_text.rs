//! Text in paths and queries as arguments of methods of Rust traits.
//!
//! Protobuf's descriptors say which type each field has; traits have none. What stands in their place is a
//! [`TextParam`] for each argument, made by the compiler from the argument's type by [`HttpText`].

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    num::{
        NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
        NonZeroU64, NonZeroUsize,
    },
};

/// A type of arguments that HTTP paths and queries can fill.
///
/// Numbers, `bool`, `char`, text, addresses, and `Option` of these have it; a query can also fill a `Vec` of them. Give
/// it to types of your own whose serde form is one value:
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
    /// The JSON that the text becomes; the type must be read from it.
    const KIND: TextKind;
    /// Whether it may be missing.
    const IS_OPTIONAL: bool = false;
}

/// What text of a path or a query becomes in JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
    /// A whole number from 0 on, of up to 32 bits.
    Uint32,
    /// A whole number from 0 on, of up to 64 bits.
    Uint64,
}

/// What text does for one argument.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextParam {
    /// What it becomes, or what each of a list becomes.
    pub kind: TextKind,
    /// It may come several times, and not at all.
    pub is_list: bool,
    /// It may be missing.
    pub is_optional: bool,
}

/// A type of arguments that queries can fill: every [`HttpText`] and lists of them. Not for use by hand.
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

/// `OfType::<T>::PARAM` is what text does for a `T`, none if nothing: its own constant goes before that of
/// [`OfAnyType`]. Not for use by hand.
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
    fn types_say_what_text_does_for_them() {
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
