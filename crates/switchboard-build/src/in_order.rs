//! Lets views read their fields in the order of their numbers, in which encoders write them: one comparison for a tag
//! instead of a search, and one UTF-8 check for all texts of a message.
//!
//! `buffa-codegen` writes a function that reads any one field, `merge_view_field`, and buffa a loop that calls it. This
//! module adds the function `merge_into_view` to each view. It is made of the arms of that function, in the order of
//! the field numbers: the simplest arms are repeated with readers of `switchboard_core::codec::in_order`, and for all
//! other fields the arm itself is called. Fields in another order are left to the loop.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Arm, Expr, ExprAssign, ExprBinary, ImplItem, Item, ItemImpl, Lit, Member, Pat, Stmt, parse_quote};

/// Views with fewer text fields check each when it is read.
const TEXTS_MIN: usize = 3;

/// Text fields that are checked together; further ones are checked each.
const TEXTS_MAX: usize = 32;

/// Bytes that are reserved for a text, on average.
const TEXT_BYTES: usize = 64;

/// Adds the function to every view.
pub(crate) fn read_views(items: &mut [Item]) {
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    read_views(items);
                }
            }
            Item::Impl(implementation) => {
                if let Some(function) = function_of(implementation) {
                    implementation.items.push(function);
                }
            }
            _ => {}
        }
    }
}

/// Returns the function for an implementation of `MessageView`; `None` for other items, and for views without fields.
fn function_of(implementation: &ItemImpl) -> Option<ImplItem> {
    let (_, of, _) = implementation.trait_.as_ref()?;
    if of.segments.last()?.ident != "MessageView" {
        return None;
    }
    let mut fields = implementation.items.iter().find_map(fields_of)?;
    fields.sort_by_key(|field| field.number);
    let texts = fields.iter().filter(|field| field.is_text()).count();
    let joined = if texts < TEXTS_MIN { 0 } else { texts.min(TEXTS_MAX) };
    (!fields.is_empty()).then(|| function(&fields, joined))
}

/// One field of a view.
struct Field {
    number: u32,
    /// Its name and reader, if the field is of the simplest form.
    simple: Option<Simple>,
}

/// A field with a single value, which needs no more than to be read and stored.
struct Simple {
    name: Member,
    /// Name of the protobuf type, which is that of its reader; `str` for text.
    reader: String,
    /// The value is stored in an `Option`.
    optional: bool,
    /// Records that a required field was present.
    seen: Option<TokenStream>,
}

impl Field {
    fn is_text(&self) -> bool {
        self.simple.as_ref().is_some_and(|simple| simple.reader == "str")
    }
}

/// Returns the fields that the function `merge_view_field` reads; `None` for other functions.
fn fields_of(item: &ImplItem) -> Option<Vec<Field>> {
    let ImplItem::Fn(method) = item else { return None };
    if method.sig.ident != "merge_view_field" {
        return None;
    }
    let arms = method.block.stmts.iter().find_map(|stmt| match stmt {
        Stmt::Expr(Expr::Match(matched), _) => Some(&matched.arms),
        _ => None,
    })?;
    Some(arms.iter().filter_map(field).collect())
}

/// Reads an arm; the last one, for unknown fields, has no number.
fn field(arm: &Arm) -> Option<Field> {
    let Pat::Lit(pattern) = &arm.pat else { return None };
    let Lit::Int(number) = &pattern.lit else { return None };
    Some(Field { number: number.base10_parse().ok()?, simple: simple(&arm.body) })
}

/// Reads an arm that checks the wire type, assigns what it reads and records the presence of a required field, all of
/// it and no more.
fn simple(body: &Expr) -> Option<Simple> {
    let Expr::Block(block) = body else { return None };
    let (check, assign, seen) = match &block.block.stmts[..] {
        [Stmt::Expr(check, _), Stmt::Expr(Expr::Assign(assign), _)] => (check, assign, None),
        [Stmt::Expr(check, _), Stmt::Expr(Expr::Assign(assign), _), Stmt::Expr(Expr::Binary(seen), _)] => {
            (check, assign, Some(seen))
        }
        _ => return None,
    };
    if called(check)? != "check_wire_type" {
        return None;
    }
    let (value, optional) = match &*assign.right {
        Expr::Call(call) if call.func.to_token_stream().to_string() == "Some" => (call.args.first()?, true),
        value => (value, false),
    };
    let reader = called(value)?;
    let reader = match reader.strip_prefix("decode_").or_else(|| reader.strip_prefix("borrow_"))? {
        known if READERS.contains(&known) => known.to_owned(),
        _ => return None,
    };
    let seen = match seen {
        Some(seen) => Some(recorded(seen)?),
        None => None,
    };
    Some(Simple { name: member(assign)?, reader, optional, seen })
}

/// Types with a reader in `switchboard_core::codec::in_order`, and text.
const READERS: [&str; 15] = [
    "str", "bytes", "bool", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "sfixed32",
    "float", "fixed64", "sfixed64", "double",
];

/// Returns the name of the function that `f(…)?` calls.
fn called(expression: &Expr) -> Option<String> {
    let Expr::Try(tried) = expression else { return None };
    let Expr::Call(call) = &*tried.expr else { return None };
    let Expr::Path(path) = &*call.func else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

/// Returns the field of the view that is assigned.
fn member(assign: &ExprAssign) -> Option<Member> {
    match &*assign.left {
        Expr::Field(field) if is_view(&field.base) => Some(field.member.clone()),
        _ => None,
    }
}

/// Returns `self.seen |= bit` for `view.seen |= bit`.
fn recorded(seen: &ExprBinary) -> Option<TokenStream> {
    let Expr::Field(field) = &*seen.left else { return None };
    let (name, bit) = (&field.member, &seen.right);
    (is_view(&field.base) && matches!(seen.op, syn::BinOp::BitOrAssign(_)))
        .then(|| quote!(self.#name |= #bit;))
}

fn is_view(expression: &Expr) -> bool {
    matches!(expression, Expr::Path(path) if path.path.is_ident("view"))
}

/// Returns the function for these fields, of which the first `joined` texts are checked together.
fn function(fields: &[Field], joined: usize) -> ImplItem {
    let mut texts = Vec::new();
    let reads: Vec<_> = fields
        .iter()
        .map(|field| match &field.simple {
            Some(simple) if simple.reader == "str" && joined == 0 => read_text(field.number, simple),
            Some(simple) if simple.reader == "str" && texts.len() < joined => {
                texts.push(simple);
                read_joined(field.number, simple, texts.len() - 1)
            }
            Some(simple) if simple.reader != "str" => read_scalar(field.number, simple),
            _ => read_other(field.number, joined > 0),
        })
        .collect();
    let (begin, end) = around(&texts);
    // Only the value of a simple field can be another than expected.
    let is_left_early = fields.iter().any(|field| field.simple.is_some() && (joined > 0 || !field.is_text()));
    let reads = if is_left_early { quote!('in_order: { #(#reads)* }) } else { quote!(#(#reads)*) };
    let runtime = quote!(::switchboard::codegen::codec::in_order);
    parse_quote! {
        fn merge_into_view(
            &mut self,
            buf: &'a [u8],
            ctx: ::switchboard::codegen::buffa::DecodeContext<'_>,
        ) -> ::core::result::Result<(), ::switchboard::codegen::buffa::DecodeError> {
            use #runtime;
            let mut cur = buf;
            #begin
            #reads
            #end
            if cur.is_empty() {
                return ::core::result::Result::Ok(());
            }
            in_order::rest(self, cur, ctx)
        }
    }
}

/// Returns the statements before the fields and after them, for texts that are checked together.
fn around(texts: &[&Simple]) -> (TokenStream, TokenStream) {
    if texts.is_empty() {
        return (TokenStream::new(), TokenStream::new());
    }
    let count = texts.len();
    let bytes = count.next_power_of_two() * TEXT_BYTES;
    let names: Vec<_> = (0..count).map(|at| format_ident!("text{at}")).collect();
    let store = texts.iter().zip(&names).map(|(text, name)| {
        let (field, value) = (&text.name, stored(text, &quote!(text)));
        quote! {
            if let ::core::option::Option::Some(text) = #name {
                self.#field = #value;
            }
        }
    });
    (
        quote!(let mut texts = in_order::Texts::<#count, #bytes>::new();),
        quote! {
            let [#(#names),*] = texts.check()?;
            #(#store)*
        },
    )
}

/// Returns the value as its field has it.
fn stored(simple: &Simple, value: &TokenStream) -> TokenStream {
    if simple.optional { quote!(::core::option::Option::Some(#value)) } else { value.clone() }
}

fn read_scalar(number: u32, simple: &Simple) -> TokenStream {
    let tag = tag(number, wire_type(&simple.reader));
    let (name, reader, seen) = (&simple.name, format_ident!("{}", simple.reader), &simple.seen);
    let value = stored(simple, &quote!(value));
    quote! {
        if let ::core::option::Option::Some(rest) = in_order::after_tag(cur, #tag) {
            let ::core::option::Option::Some((value, rest)) = in_order::#reader(rest) else { break 'in_order };
            self.#name = #value;
            #seen
            cur = rest;
        }
    }
}

fn read_joined(number: u32, simple: &Simple, at: usize) -> TokenStream {
    let (tag, seen) = (tag(number, wire_type("str")), &simple.seen);
    quote! {
        if let ::core::option::Option::Some(rest) = in_order::after_tag(cur, #tag) {
            let ::core::option::Option::Some((text, rest)) = in_order::bytes(rest) else { break 'in_order };
            texts.push(#at, text)?;
            #seen
            cur = rest;
        }
    }
}

fn read_text(number: u32, simple: &Simple) -> TokenStream {
    let (tag, seen) = (tag(number, wire_type("str")), &simple.seen);
    let name = &simple.name;
    let value = stored(simple, &quote!(::switchboard::codegen::buffa::types::borrow_str(&mut rest)?));
    quote! {
        if let ::core::option::Option::Some(mut rest) = in_order::after_tag(cur, #tag) {
            self.#name = #value;
            #seen
            cur = rest;
        }
    }
}

/// Reads a field by its arm, as often as it repeats.
fn read_other(number: u32, joined: bool) -> TokenStream {
    let error = if joined { quote!(texts.error(error)) } else { quote!(error) };
    quote! {
        while let ::core::option::Option::Some((tag, rest)) = in_order::field(cur, #number) {
            cur = match self.merge_view_field(tag, rest, cur, ctx) {
                ::core::result::Result::Ok(rest) => rest,
                ::core::result::Result::Err(error) => return ::core::result::Result::Err(#error),
            };
        }
    }
}

/// Returns the number of the wire type, as the encoding of protobuf defines it.
fn wire_type(reader: &str) -> u32 {
    match reader {
        "fixed64" | "sfixed64" | "double" => 1,
        "str" | "bytes" => 2,
        "fixed32" | "sfixed32" | "float" => 5,
        _ => 0,
    }
}

/// Returns the bytes of a tag as an array.
fn tag(number: u32, wire_type: u32) -> TokenStream {
    let mut rest = u64::from(number) << 3 | u64::from(wire_type);
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(Literal::u8_suffixed(rest as u8 | 0x80));
        rest >>= 7;
    }
    bytes.push(Literal::u8_suffixed(rest as u8));
    quote!([#(#bytes),*])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_the_bytes_of_the_encoding() {
        let bytes = |number, wire_type| tag(number, wire_type).to_string().replace(' ', "");
        assert_eq!(bytes(1, 2), "[10u8]");
        assert_eq!(bytes(15, 0), "[120u8]");
        assert_eq!(bytes(16, 0), "[128u8,1u8]");
        assert_eq!(bytes((1 << 29) - 1, 5), "[253u8,255u8,255u8,255u8,15u8]");
    }
}
