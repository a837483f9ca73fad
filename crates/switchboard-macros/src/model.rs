//! Model of a trait as a service, or all its errors at once.

use crate::{
    http,
    method::Method,
    names::{shouting_snake, upper_camel},
    options::ServiceOptions,
};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use std::{collections::HashSet, fmt::Display};
use syn::{
    Attribute, Ident, ItemTrait, Token, TraitItem, TypeParamBound, Visibility, punctuated::Punctuated,
};

/// A service as its trait describes it.
pub(crate) struct Service {
    /// Attributes of the trait except for `#[cfg]`.
    pub(crate) attributes: Vec<Attribute>,
    /// `#[cfg]` attributes of the trait, which apply to every generated item.
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) ident: Ident,
    pub(crate) methods: Vec<Method>,
    /// Name on the wire.
    pub(crate) name: String,
    pub(crate) supertraits: Punctuated<TypeParamBound, Token![+]>,
    pub(crate) visibility: Visibility,
}

impl Service {
    /// Reads the trait.
    ///
    /// # Errors
    /// Returns all errors, combined.
    pub(crate) fn read(item: ItemTrait, options: ServiceOptions) -> syn::Result<Service> {
        let mut errors = Errors::default();
        check_head(&item, &mut errors);
        let mut methods = Vec::new();
        for member in item.items {
            match member {
                TraitItem::Fn(function) => methods.extend(Method::read(function, &mut errors)),
                TraitItem::Const(constant) => errors.add(
                    &constant.ident,
                    "a service has methods only: callers in other programs cannot see associated constants",
                ),
                TraitItem::Type(ty) => errors.add(
                    &ty.ident,
                    "a service has methods only: callers need concrete types, name them in the methods",
                ),
                other => errors.add(&other, "a service has methods only"),
            }
        }
        check_names(&methods, &mut errors);
        http::check_paths(&methods, &mut errors);
        if methods.len() > usize::from(u16::MAX) {
            errors.add(&item.ident, "a service has at most 65535 methods");
        }
        name_requests(&item.ident, &mut methods);
        let name = options.name.map_or_else(|| item.ident.to_string(), |name| name.value());
        let (cfgs, attributes) =
            item.attrs.into_iter().partition(|attribute| attribute.path().is_ident("cfg"));
        errors.into_result(Service {
            attributes,
            cfgs,
            ident: item.ident,
            methods,
            name,
            supertraits: item.supertraits,
            visibility: item.vis,
        })
    }

    /// `CALC`.
    pub(crate) fn info(&self) -> Ident {
        format_ident!("{}", shouting_snake(&self.ident.to_string()), span = self.ident.span())
    }

    /// `CalcServer`.
    pub(crate) fn server(&self) -> Ident {
        format_ident!("{}Server", self.ident)
    }

    /// `CalcClient`.
    pub(crate) fn client(&self) -> Ident {
        format_ident!("{}Client", self.ident)
    }

    /// `CalcApi`.
    pub(crate) fn api(&self) -> Ident {
        format_ident!("{}Api", self.ident)
    }

    /// Returns the index of a method in the service: a number, unless methods before it depend on `#[cfg]`.
    pub(crate) fn index(&self, at: usize) -> TokenStream {
        let (always, sometimes): (Vec<_>, Vec<_>) =
            self.methods[..at].iter().partition(|method| method.cfgs.is_empty());
        let always = proc_macro2::Literal::usize_unsuffixed(always.len());
        let conditions = sometimes.iter().map(|method| method.condition());
        quote!(#always #(+ ::core::cfg!(#conditions) as u16)*)
    }
}

/// Collected errors, so that one compilation shows all of them.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds an error at these tokens.
    pub(crate) fn add(&mut self, tokens: &impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            None => self.0 = Some(error),
            Some(all) => all.combine(error),
        }
    }

    fn into_result<T>(self, value: T) -> syn::Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

/// Checks the part of the trait before the braces.
fn check_head(item: &ItemTrait, errors: &mut Errors) {
    if let Some(token) = &item.unsafety {
        errors.add(token, "a service cannot be an unsafe trait");
    }
    if let Some(token) = &item.auto_token {
        errors.add(token, "a service cannot be an auto trait");
    }
    if !item.generics.params.is_empty() {
        errors.add(
            &item.generics,
            "a service cannot be generic: its callers are other programs; write one trait for each type",
        );
    }
    if let Some(clause) = &item.generics.where_clause {
        errors.add(clause, "a service cannot have a where clause");
    }
}

/// Checks that no two methods share a name, in Rust or on the wire.
fn check_names(methods: &[Method], errors: &mut Errors) {
    for (at, method) in methods.iter().enumerate() {
        // Only rustc evaluates the conditions of two conditional methods; it reports duplicates itself.
        let rival = |other: &&Method| other.cfgs.is_empty() || method.cfgs.is_empty();
        let mut before = methods[..at].iter().filter(rival);
        if before.clone().any(|other| other.ident == method.ident) {
            errors.add(
                &method.ident,
                format!("method `{}` is defined twice; rename one of them", method.ident),
            );
        } else if let Some(other) = before.find(|other| other.name == method.name) {
            let (first, second, name) = (&other.ident, &method.ident, &method.name);
            errors.add(
                second,
                format!(
                    "`{first}` and `{second}` are both `{name}` on the wire; rename one with `#[switchboard(name = \"...\")]`",
                ),
            );
        }
    }
}

/// Sets the name of each method's argument struct to one that hides no type of the arguments.
fn name_requests(service: &Ident, methods: &mut [Method]) {
    let mut taken = HashSet::new();
    for param in methods.iter().flat_map(|method| &method.params) {
        collect_idents(param.ty.to_token_stream(), &mut taken);
    }
    for method in methods {
        let mut name = format!("{service}{}Request", upper_camel(&method.name));
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        method.request = Ident::new(&name, Span::call_site());
    }
}

fn collect_idents(tokens: TokenStream, into: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_idents(group.stream(), into),
            TokenTree::Ident(ident) => {
                into.insert(ident.to_string());
            }
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
}
