//! HTTP paths of methods, `#[switchboard(http(get = "/calc/{a}"))]`, and their errors.

use crate::{
    method::{Method, Param},
    model::Errors,
};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use std::collections::HashMap;
use switchboard_wire::http_rule::Template;
use syn::{LitStr, Result, ext::IdentExt, meta::ParseNestedMeta, spanned::Spanned};

/// An HTTP path of a method.
pub(crate) struct Rule {
    /// HTTP method in upper case: `GET`.
    verb: &'static str,
    path: LitStr,
    template: Template,
    body: Option<LitStr>,
}

/// Verbs as in the attribute, and as in HTTP.
const VERBS: [(&str, &str); 5] =
    [("delete", "DELETE"), ("get", "GET"), ("patch", "PATCH"), ("post", "POST"), ("put", "PUT")];

impl Rule {
    /// Parses the content of the parentheses of `http(...)`.
    pub(crate) fn read(meta: &ParseNestedMeta<'_>) -> Result<Rule> {
        let (mut path, mut body) = (None, None);
        meta.parse_nested_meta(|part| {
            if part.path.is_ident("body") {
                body = Some(part.value()?.parse::<LitStr>()?);
                return Ok(());
            }
            let Some((_, verb)) = VERBS.iter().find(|(verb, _)| part.path.is_ident(verb)) else {
                return Err(part.error(
                    "unknown verb; a path has `get`, `put`, `post`, `delete` or `patch`, and may have `body`",
                ));
            };
            let text: LitStr = part.value()?.parse()?;
            if path.is_some() {
                return Err(part.error("one verb and path in each `http(...)`: write another `http(...)`"));
            }
            path = Some((*verb, text));
            Ok(())
        })?;
        let Some((verb, path)) = path else {
            return Err(meta.error("a path is missing; write `http(get = \"/calc/{a}/add/{b}\")`"));
        };
        let template = Template::parse(&path.value()).map_err(|what| syn::Error::new(path.span(), what))?;
        let body = body.filter(|body| !body.value().is_empty());
        Ok(Rule { verb, path, template, body })
    }

    /// Checks that the rule fits its method.
    pub(crate) fn check(&self, method: &Method, errors: &mut Errors) {
        for variable in &self.template.variables {
            let field = &variable.field;
            if field.contains('.') {
                errors.add(
                    &self.path,
                    format!("`{field}`: paths name whole arguments, not fields inside them"),
                );
            } else if self.argument(method, field, &self.path, errors)
                && self.body.as_ref().is_some_and(|body| body.value() == *field)
            {
                errors.add(&self.body, format!("`{field}` is both in the path and the body"));
            }
        }
        if let Some(body) = &self.body {
            if self.verb == "GET" {
                errors.add(body, "a GET has no body: remove `body`, the query carries the arguments");
            } else if body.value() != "*" {
                self.argument(method, &body.value(), body, errors);
            }
        }
        if method.receives().is_some() && (!self.takes_all() || !self.template.variables.is_empty()) {
            errors.add(&self.path, "a stream of requests needs `body = \"*\"` and a path without variables");
        }
        for value in method.values() {
            let name = value.name.unraw().to_string();
            if !name.is_ascii() {
                errors.add(
                    &value.name,
                    format!("paths and queries have ASCII names; give `{name}` one, or the method no path"),
                );
            }
        }
    }

    /// Returns a key that is equal for rules that match the same requests.
    fn shape(&self) -> (&'static str, String) {
        (self.verb, self.template.to_string())
    }

    fn takes_all(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.value() == "*")
    }

    /// Returns true if the method has the argument `name`; reports an error at `text` otherwise.
    fn argument(&self, method: &Method, name: &str, text: &LitStr, errors: &mut Errors) -> bool {
        let names: Vec<_> = method.values().map(|value| value.name.unraw().to_string()).collect();
        if names.iter().any(|known| known == name) {
            return true;
        }
        let known = match names.is_empty() {
            true => "there are none".to_owned(),
            false => format!("there are `{}`", names.join("`, `")),
        };
        errors.add(text, format!("`{name}` is not an argument of `{}`; {known}", method.ident));
        false
    }

    /// Generates assertions that reject types that text cannot fill, for arguments that only text fills.
    fn assertions<'a>(&'a self, method: &'a Method) -> impl Iterator<Item = TokenStream> + 'a {
        method.values().filter_map(move |Param { name, ty, .. }| {
            let name = name.unraw().to_string();
            let in_path = self.template.variables.iter().any(|variable| variable.field == name);
            let in_body = self.takes_all() || self.body.as_ref().is_some_and(|body| body.value() == name);
            if in_path {
                Some(quote_spanned!(ty.span()=> <#ty as ::switchboard::HttpText>::KIND))
            } else if !in_body {
                Some(quote_spanned!(ty.span()=> <#ty as ::switchboard::codegen::http_text::HttpQuery>::PARAM))
            } else {
                None
            }
        })
    }
}

/// Rejects the same path for two methods.
pub(crate) fn check_paths(methods: &[Method], errors: &mut Errors) {
    let mut known = HashMap::new();
    // Only rustc evaluates the conditions of conditional methods; the server checks these when it starts.
    for method in methods.iter().filter(|method| method.cfgs.is_empty()) {
        for rule in &method.options.http {
            if let Some(first) = known.insert(rule.shape(), &method.ident) {
                let (verb, path) = rule.shape();
                errors.add(&rule.path, format!("{verb} {path} is a path of `{first}` already"));
            }
        }
    }
}

/// Generates the part of a method's table entry for paths: the rules, and the conversion of text to each argument.
pub(crate) fn entry(method: &Method) -> TokenStream {
    let rules = method.options.http.iter().map(|Rule { verb, path, body, .. }| {
        let body = body.as_ref().map_or_else(String::new, LitStr::value);
        quote!(::switchboard::HttpRule { verb: #verb, path: #path, body: #body, response_body: "" })
    });
    let rules = (!method.options.http.is_empty()).then(|| quote!(.http(&[#(#rules),*])));
    let types = method.values().map(|value| &value.ty);
    let texts = method.values().next().is_some().then(|| {
        quote! {
            .texts(const {
                #[allow(unused_imports)]
                use ::switchboard::codegen::http_text::OfAnyType as _;
                &[#(::switchboard::codegen::http_text::OfType::<#types>::PARAM),*]
            })
        }
    });
    quote!(#rules #texts)
}

/// Generates assertions that reject arguments that no request could fill.
pub(crate) fn assertions(method: &Method) -> TokenStream {
    let cfgs = &method.cfgs;
    let assertions: Vec<_> = method.options.http.iter().flat_map(|rule| rule.assertions(method)).collect();
    if assertions.is_empty() {
        return TokenStream::new();
    }
    quote! {
        #(#cfgs)*
        const _: () = { #(_ = #assertions;)* };
    }
}
