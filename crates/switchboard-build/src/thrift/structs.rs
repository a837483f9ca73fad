//! Emits structs, unions and exceptions with their encoding and decoding.

use super::{
    ast::{Field, Requiredness, Struct, StructKind},
    constants,
    interface::TEXTS,
    schema::Resolved,
    types::{Types, field_ident, type_ident},
};
use crate::{Error, docs};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};

/// A field of the generated struct.
pub(super) struct Plan<'a> {
    pub(super) ident: Ident,
    pub(super) resolved: Resolved<'a>,
    field: &'a Field,
    /// Type without the `Option`.
    inner: TokenStream,
    boxed: bool,
    optional: bool,
    /// A message without the field is rejected.
    required: bool,
    /// Value of the field if a message does not have it.
    default: Option<TokenStream>,
}

impl<'a> Plan<'a> {
    /// Creates the plan of a struct field.
    pub(super) fn new(
        types: &Types<'a>,
        file: usize,
        item: &Struct,
        field: &'a Field,
    ) -> Result<Plan<'a>, Error> {
        let resolved = types.schema.resolve(file, &field.ty, field.line)?;
        let boxed = types.holds(&resolved, item);
        let optional = match field.requiredness {
            Requiredness::Optional => true,
            Requiredness::Required => false,
            // Fields without a default, and fields that would make the type infinite, may be missing.
            Requiredness::Default => boxed || !types.has_default(&resolved),
        };
        Plan::finish(types, file, field, resolved, boxed, optional)
    }

    /// Creates the plan of an argument, which is never optional.
    pub(super) fn of_argument(types: &Types<'a>, file: usize, field: &'a Field) -> Result<Plan<'a>, Error> {
        let resolved = types.schema.resolve(file, &field.ty, field.line)?;
        Plan::finish(types, file, field, resolved, false, false)
    }

    fn finish(
        types: &Types<'a>,
        file: usize,
        field: &'a Field,
        resolved: Resolved<'a>,
        boxed: bool,
        optional: bool,
    ) -> Result<Plan<'a>, Error> {
        let mut inner = types.rust(&resolved, false)?;
        if boxed {
            inner = quote!(::std::boxed::Box<#inner>);
        }
        let required =
            !optional && (field.requiredness == Requiredness::Required || !types.has_default(&resolved));
        let ident = field_ident(&field.name);
        let mut plan = Plan { ident, resolved, field, inner, boxed, optional, required, default: None };
        if let Some(value) = &field.default {
            let value = constants::expression(types, file, value, &plan.resolved, field.line, false)?;
            plan.default = Some(plan.wrap(value));
        }
        Ok(plan)
    }

    /// Wraps a value in the type of the field.
    pub(super) fn wrap(&self, value: TokenStream) -> TokenStream {
        let value = if self.boxed { quote!(::std::boxed::Box::new(#value)) } else { value };
        if self.optional { quote!(::core::option::Option::Some(#value)) } else { value }
    }

    pub(super) fn ty(&self) -> TokenStream {
        let inner = &self.inner;
        if self.optional { quote!(::core::option::Option<#inner>) } else { quote!(#inner) }
    }

    /// Returns the name in JSON.
    pub(super) fn json_name(&self) -> String {
        self.field.name.clone()
    }

    fn default_name(&self) -> Ident {
        format_ident!("default_{}", super::types::snake(&self.field.name))
    }

    fn declaration(&self, owner: &Ident, visibility: &TokenStream) -> TokenStream {
        let (ident, ty) = (&self.ident, self.ty());
        let doc = self.field.doc.as_deref().map(|doc| docs::attributes(&docs::escape_comment(doc)));
        let name = &self.field.name;
        let bare = ident.to_string();
        let rename = (bare.trim_start_matches("r#") != name).then(|| quote!(rename = #name));
        let default = match (&self.default, self.required) {
            (_, true) => None,
            (Some(_), false) => {
                let path = format!("{owner}::{}", self.default_name());
                Some(quote!(default = #path))
            }
            (None, false) => Some(quote!(default)),
        };
        let options: Vec<_> = rename.into_iter().chain(default).collect();
        let serde = (!options.is_empty()).then(|| quote!(#[serde(#(#options),*)]));
        quote!(#doc #serde #visibility #ident: #ty)
    }

    fn default_value(&self) -> TokenStream {
        match &self.default {
            Some(_) => {
                let name = self.default_name();
                quote!(Self::#name())
            }
            None => quote!(::core::default::Default::default()),
        }
    }

    fn write(&self) -> TokenStream {
        let (ident, id) = (&self.ident, Literal::i16_unsuffixed(self.field.id));
        if self.optional {
            quote! {
                if let ::core::option::Option::Some(value) = &self.#ident {
                    ::switchboard::codegen::thrift::field(out, #id, value);
                }
            }
        } else {
            quote!(::switchboard::codegen::thrift::field(out, #id, &self.#ident);)
        }
    }

    /// Returns the field value from a variable of the same name.
    fn read(&self, owner: &str) -> TokenStream {
        let ident = &self.ident;
        let missing = format!("{owner} has no {}, which is required", self.field.name);
        let value = match (self.required, self.optional, &self.default) {
            (true, ..) => quote! {
                #ident.ok_or(::switchboard::codegen::thrift::Malformed(::std::borrow::Cow::Borrowed(#missing)))?
            },
            (false, true, None) => quote!(#ident),
            (false, true, Some(_)) => {
                let default = self.default_value();
                quote!(#ident.or_else(|| #default))
            }
            (false, false, None) => quote!(#ident.unwrap_or_default()),
            (false, false, Some(_)) => {
                let name = self.default_name();
                quote!(#ident.unwrap_or_else(Self::#name))
            }
        };
        quote!(#ident: #value)
    }
}

/// Emits a struct, union or exception.
pub(super) fn emit(types: &Types<'_>, file: usize, item: &Struct) -> Result<TokenStream, Error> {
    if item.kind == StructKind::Union {
        return union(types, file, item);
    }
    let ident = type_ident(&item.name);
    let plans = item.fields.iter().map(|field| Plan::new(types, file, item, field));
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    let doc = docs::attributes(
        &item.doc.as_deref().map_or_else(|| format!("`{}`.", item.name), docs::escape_comment),
    );
    let resolved = Resolved::Struct(file, item);
    let ordered = !types.has_double(&resolved);
    let definition =
        structure(&ident, &item.name, &plans, &doc, &quote!(pub), ordered, types.has_default(&resolved));
    let exception = match item.kind {
        StructKind::Exception => Some(exception(types, file, item, &plans)?),
        _ => None,
    };
    Ok(quote!(#definition #exception))
}

/// Emits a struct with these fields; also used for the arguments of methods.
pub(super) fn structure(
    ident: &Ident,
    name: &str,
    plans: &[Plan<'_>],
    doc: &TokenStream,
    visibility: &TokenStream,
    ordered: bool,
    has_default: bool,
) -> TokenStream {
    let order = ordered.then(|| quote!(Eq, Hash, Ord, PartialOrd,));
    let plain_default = has_default && plans.iter().all(|plan| plan.default.is_none());
    let default = plain_default.then(|| quote!(Default,));
    let declarations = plans.iter().map(|plan| plan.declaration(ident, visibility));
    let functions: Vec<_> = plans
        .iter()
        .filter_map(|plan| {
            let (name, ty, value) = (plan.default_name(), plan.ty(), plan.default.as_ref()?);
            Some(quote!(fn #name() -> #ty { #value }))
        })
        .collect();
    let functions = (!functions.is_empty()).then(|| quote!(impl #ident { #(#functions)* }));
    let own_default = (has_default && !plain_default).then(|| default_impl(ident, plans));
    let writes = plans.iter().map(Plan::write);
    let variables = plans.iter().map(|plan| {
        let (ident, inner) = (&plan.ident, &plan.inner);
        quote!(let mut #ident = ::core::option::Option::<#inner>::None;)
    });
    let sole = match plans {
        [plan] if !plan.optional && matches!(plan.resolved, Resolved::Struct(..)) => {
            let id = Literal::i16_unsuffixed(plan.field.id);
            Some(quote!(const SOLE: ::core::option::Option<i16> = ::core::option::Option::Some(#id);))
        }
        _ => None,
    };
    let reads = plans.iter().map(|plan| plan.read(name));
    let step = read_fields(plans);
    quote! {
        #doc
        #[derive(Clone, Debug, #default #order PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        #visibility struct #ident {
            #(#declarations,)*
        }

        #functions
        #own_default

        impl ::switchboard::codegen::thrift::Value for #ident {
            const TYPE: ::switchboard::codegen::thrift::Type = ::switchboard::codegen::thrift::Type::STRUCT;
            #sole

            fn write(&self, out: &mut ::std::vec::Vec<u8>) {
                #(#writes)*
                ::switchboard::codegen::thrift::stop(out);
            }

            fn read(
                input: &mut ::switchboard::codegen::thrift::Reader<'_>,
            ) -> ::core::result::Result<Self, ::switchboard::codegen::thrift::Malformed> {
                #(#variables)*
                input.enter()?;
                #step
                input.leave();
                ::core::result::Result::Ok(Self { #(#reads),* })
            }
        }
    }
}

fn default_impl(ident: &Ident, plans: &[Plan<'_>]) -> TokenStream {
    let values = plans.iter().map(|plan| {
        let (ident, value) = (&plan.ident, plan.default_value());
        quote!(#ident: #value)
    });
    quote! {
        impl ::core::default::Default for #ident {
            fn default() -> Self {
                Self { #(#values),* }
            }
        }
    }
}

/// Emits the loop that reads fields into variables.
fn read_fields(plans: &[Plan<'_>]) -> TokenStream {
    if plans.is_empty() {
        return quote!(while let ::core::option::Option::Some((kind, _)) = input.field()? {
            input.skip(kind)?;
        });
    }
    let arms = plans.iter().map(|plan| {
        let (ident, id) = (&plan.ident, Literal::i16_unsuffixed(plan.field.id));
        quote!(#id => input.known(kind, &mut #ident)?,)
    });
    quote! {
        while let ::core::option::Option::Some((kind, id)) = input.field()? {
            match id {
                #(#arms)*
                _ => input.skip(kind)?,
            }
        }
    }
}

fn union(types: &Types<'_>, file: usize, item: &Struct) -> Result<TokenStream, Error> {
    let ident = type_ident(&item.name);
    if item.fields.is_empty() {
        return Err(Error::new(format!(
            "{}: union {} has no member",
            types.schema.place(file, item.line),
            item.name
        )));
    }
    let doc = docs::attributes(
        &item.doc.as_deref().map_or_else(|| format!("`{}`.", item.name), docs::escape_comment),
    );
    let order =
        (!types.has_double(&Resolved::Struct(file, item))).then(|| quote!(Eq, Hash, Ord, PartialOrd,));
    let (mut variants, mut writes, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for field in &item.fields {
        let plan = Plan::new(types, file, item, field)?;
        let (variant, inner) = (type_ident(&field.name), &plan.inner);
        let (name, id) = (&field.name, Literal::i16_unsuffixed(field.id));
        let doc = docs::attributes(
            &field.doc.as_deref().map_or_else(|| format!("`{name}`."), docs::escape_comment),
        );
        let rename = (variant != name.as_str()).then(|| quote!(#[serde(rename = #name)]));
        variants.push(quote!(#doc #rename #variant(#inner)));
        writes.push(quote!(Self::#variant(value) => ::switchboard::codegen::thrift::field(out, #id, value),));
        reads.push(quote! {
            #id => {
                let mut value = ::core::option::Option::<#inner>::None;
                input.known(kind, &mut value)?;
                member = value.map(Self::#variant).or(member);
            }
        });
    }
    let missing = format!("union {} has no known member", item.name);
    Ok(quote! {
        #doc
        #[derive(Clone, Debug, #order PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        // closed: the schema has its members
        pub enum #ident {
            #(#variants,)*
        }

        impl ::switchboard::codegen::thrift::Value for #ident {
            const TYPE: ::switchboard::codegen::thrift::Type = ::switchboard::codegen::thrift::Type::STRUCT;

            fn write(&self, out: &mut ::std::vec::Vec<u8>) {
                match self {
                    #(#writes)*
                }
                ::switchboard::codegen::thrift::stop(out);
            }

            fn read(
                input: &mut ::switchboard::codegen::thrift::Reader<'_>,
            ) -> ::core::result::Result<Self, ::switchboard::codegen::thrift::Malformed> {
                let mut member = ::core::option::Option::<Self>::None;
                input.enter()?;
                while let ::core::option::Option::Some((kind, id)) = input.field()? {
                    match id {
                        #(#reads)*
                        _ => input.skip(kind)?,
                    }
                }
                input.leave();
                member.ok_or(::switchboard::codegen::thrift::Malformed(::std::borrow::Cow::Borrowed(#missing)))
            }
        }
    })
}

const CODES: [(&str, &str); 16] = [
    ("aborted", "Aborted"),
    ("already_exists", "AlreadyExists"),
    ("canceled", "Canceled"),
    ("data_loss", "DataLoss"),
    ("deadline_exceeded", "DeadlineExceeded"),
    ("failed_precondition", "FailedPrecondition"),
    ("internal", "Internal"),
    ("invalid_argument", "InvalidArgument"),
    ("not_found", "NotFound"),
    ("out_of_range", "OutOfRange"),
    ("permission_denied", "PermissionDenied"),
    ("resource_exhausted", "ResourceExhausted"),
    ("unauthenticated", "Unauthenticated"),
    ("unavailable", "Unavailable"),
    ("unimplemented", "Unimplemented"),
    ("unknown", "Unknown"),
];

/// Emits the conversions between an exception and a status.
fn exception(
    types: &Types<'_>,
    file: usize,
    item: &Struct,
    plans: &[Plan<'_>],
) -> Result<TokenStream, Error> {
    let ident = type_ident(&item.name);
    let requested = item.annotations.iter().find(|(name, _)| name == "switchboard.code");
    let requested = requested.map_or("failed_precondition", |(_, code)| code);
    let Some((_, code)) = CODES.iter().find(|(name, _)| *name == requested) else {
        let known: Vec<_> = CODES.iter().map(|(name, _)| *name).collect();
        return Err(Error::new(format!(
            "{}: {requested:?} is not a status code; use one of {}",
            types.schema.place(file, item.line),
            known.join(", ")
        )));
    };
    let code = Ident::new(code, Span::call_site());
    let name = crate::names::qualified(types.package, &item.name);
    let is_text = |plan: &&Plan<'_>| {
        TEXTS.contains(&plan.field.name.as_str())
            && matches!(plan.resolved, Resolved::Base(super::ast::Base::String))
    };
    let short = &item.name;
    let text = match plans.iter().find(is_text) {
        None => quote!(#short),
        Some(Plan { ident, optional: true, .. }) => quote!(self.#ident.as_deref().unwrap_or(#short)),
        Some(Plan { ident, .. }) => quote!(if self.#ident.is_empty() { #short } else { &self.#ident }),
    };
    Ok(quote! {
        impl ::core::fmt::Display for #ident {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(#text)
            }
        }

        impl ::core::error::Error for #ident {}

        impl ::core::convert::From<#ident> for ::switchboard::Status {
            fn from(exception: #ident) -> Self {
                let text = ::std::string::ToString::to_string(&exception);
                ::switchboard::codegen::thrift::status(&exception, ::switchboard::Code::#code, &text)
            }
        }

        impl ::switchboard::codegen::thrift::Exception for #ident {
            const NAME: &'static str = #name;
        }
    })
}
