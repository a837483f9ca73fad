//! Model of a method of a service, and the errors in it.

use crate::{model::Errors, names::upper_camel, options::MethodOptions};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Attribute, FnArg, GenericArgument, Ident, Pat, PatType, PathArguments, PathSegment, ReturnType,
    Signature, TraitItemFn, Type, TypeImplTrait, TypeParamBound, ext::IdentExt, parse_quote,
};

/// A method as the trait declares it.
pub(crate) struct Method {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) ident: Ident,
    /// Name on the wire.
    pub(crate) name: String,
    pub(crate) options: MethodOptions,
    /// The `T` of the returned `Result<T, E>`; `()` if it is a stream.
    pub(crate) output: Type,
    /// The type of the messages of a returned `impl Stream`.
    pub(crate) returned_stream: Option<Type>,
    pub(crate) params: Vec<Param>,
    /// Name of the struct of its arguments.
    pub(crate) request: Ident,
    pub(crate) signature: Signature,
}

/// An argument after `&self`.
pub(crate) struct Param {
    pub(crate) name: Ident,
    pub(crate) role: Role,
    pub(crate) ty: Type,
}

/// Purpose of an argument.
pub(crate) enum Role {
    Context,
    /// The stream of requests, with the type of its messages; `Sender` has the type of the replies.
    Receiver(Type),
    Sender(Type),
    /// A value that is sent to the server.
    Value,
}

/// Functions that every client has.
const CLIENT_FUNCTIONS: [&str; 5] = ["channel", "connect", "local", "new", "with_codec"];

impl Method {
    /// Reads a method; `None` if errors left too little of it.
    pub(crate) fn read(function: TraitItemFn, errors: &mut Errors) -> Option<Method> {
        let signature = function.sig;
        check_signature(&signature, errors);
        if let Some(body) = &function.default {
            errors.add(body, "a service's methods have no body here; write it in the `impl`");
        }
        let mut options = MethodOptions::default();
        let (mut attributes, mut cfgs) = (Vec::new(), Vec::new());
        for attribute in function.attrs {
            if attribute.path().is_ident("switchboard") {
                options.read(&attribute).unwrap_or_else(|error| errors.push(error));
            } else if attribute.path().is_ident("cfg") {
                cfgs.push(attribute);
            } else {
                attributes.push(attribute);
            }
        }
        let params: Vec<Param> = signature
            .inputs
            .iter()
            .filter_map(|input| match input {
                FnArg::Receiver(_) => None,
                FnArg::Typed(typed) => Param::read(typed, errors),
            })
            .collect();
        let output = read_output(&signature, errors)?;
        let returned_stream = match &output {
            Type::ImplTrait(opaque) => stream_item(opaque, errors),
            _ => None,
        };
        let output = if returned_stream.is_some() { parse_quote!(()) } else { output };
        let ident = signature.ident.clone();
        let name =
            options.name.as_ref().map_or_else(|| upper_camel(&ident.unraw().to_string()), syn::LitStr::value);
        let request = Ident::new("Request", Span::call_site());
        let method = Method {
            attributes,
            cfgs,
            ident,
            name,
            options,
            output,
            params,
            request,
            returned_stream,
            signature,
        };
        method.check_streams(errors);
        method.options.http.iter().for_each(|rule| rule.check(&method, errors));
        Some(method)
    }

    /// Returns the arguments that are sent to the server.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| matches!(param.role, Role::Value))
    }

    /// Returns the type of the request messages, if they are a stream.
    pub(crate) fn receives(&self) -> Option<&Type> {
        self.params.iter().find_map(|param| match &param.role {
            Role::Receiver(item) => Some(item),
            _ => None,
        })
    }

    /// Returns the type of the reply messages, if they are a stream.
    pub(crate) fn sends(&self) -> Option<&Type> {
        self.returned_stream.as_ref().or_else(|| self.sender())
    }

    /// Returns the type of the messages of the `Sender`, if the method has one.
    fn sender(&self) -> Option<&Type> {
        self.params.iter().find_map(|param| match &param.role {
            Role::Sender(item) => Some(item),
            _ => None,
        })
    }

    /// Returns the result as the trait declares it. A returned stream is sent by whatever thread serves the call.
    pub(crate) fn declared_result(&self) -> Type {
        let ReturnType::Type(_, ty) = &self.signature.output else {
            unreachable!("a method without a result is refused when it is read");
        };
        let mut ty = (**ty).clone();
        if self.returned_stream.is_some()
            && let Some(Type::ImplTrait(opaque)) = last_segment_mut(&mut ty).and_then(first_argument_mut)
        {
            opaque.bounds.push(parse_quote!(::core::marker::Send));
        }
        ty
    }

    /// Returns the `#[cfg]` attributes as one condition.
    pub(crate) fn condition(&self) -> TokenStream {
        let conditions = self.cfgs.iter().filter_map(|cfg| Some(&cfg.meta.require_list().ok()?.tokens));
        quote!(all(#(#conditions),*))
    }

    /// Returns the attributes that apply wherever the method appears: documentation, deprecation, disabled lints.
    pub(crate) fn shared_attributes(&self) -> impl Iterator<Item = &Attribute> {
        const SHARED: [&str; 4] = ["allow", "cfg_attr", "deprecated", "doc"];
        self.attributes.iter().filter(|attribute| SHARED.iter().any(|name| attribute.path().is_ident(name)))
    }

    /// Returns `#[allow(deprecated)]` for generated code that uses the method, if it is needed.
    pub(crate) fn allow_deprecated(&self) -> Option<TokenStream> {
        let names = |attribute: &Attribute| attribute.to_token_stream().to_string().contains("deprecated");
        let deprecated = |attribute: &Attribute| !attribute.path().is_ident("doc") && names(attribute);
        self.attributes.iter().any(deprecated).then(|| quote!(#[allow(deprecated)]))
    }

    fn check_streams(&self, errors: &mut Errors) {
        let mut seen = [false; 3];
        for param in &self.params {
            let (at, what) = match param.role {
                Role::Context => (0, "&Cx"),
                Role::Receiver(_) => (1, "Receiver"),
                Role::Sender(_) => (2, "Sender"),
                Role::Value => continue,
            };
            if std::mem::replace(&mut seen[at], true) {
                errors.add(&param.ty, format!("a method has at most one `{what}`"));
            }
        }
        if self.receives().is_some()
            && let Some(value) = self.values().next()
        {
            errors.add(
                &PatText(&value.name, &value.ty),
                "a method with a `Receiver` takes no further arguments: put them into the first message or the metadata",
            );
        }
        let unit = matches!(&self.output, Type::Tuple(tuple) if tuple.elems.is_empty());
        if self.returned_stream.is_some() && self.sender().is_some() {
            errors.add(&self.ident, "a method replies by its `Sender` or returns a stream, not both");
        }
        if self.sends().is_some() && !unit {
            errors.add(&self.output, "a method with a `Sender` replies through it; return `Result<()>`");
        }
        if self.options.oneway {
            if !unit {
                errors.add(&self.output, "a `oneway` method has no reply; return `Result<()>`");
            }
            if self.receives().or(self.sends()).is_some() {
                errors.add(&self.ident, "a `oneway` method has one request and no reply; it cannot stream");
            }
        }
    }
}

/// Tokens `name: Type`, for an error span over both.
struct PatText<'a>(&'a Ident, &'a Type);

impl ToTokens for PatText<'_> {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.0.to_tokens(tokens);
        self.1.to_tokens(tokens);
    }
}

/// Checks all parts of the signature but arguments and result.
fn check_signature(signature: &Signature, errors: &mut Errors) {
    let name = &signature.ident;
    if signature.asyncness.is_none() {
        errors.add(
            &signature.fn_token,
            format!("`{name}` is called over the network: write `async fn {name}`"),
        );
    }
    if let Some(token) = &signature.constness {
        errors.add(token, "a service's methods cannot be const");
    }
    if let Some(token) = &signature.unsafety {
        errors.add(token, "a service's methods cannot be unsafe");
    }
    if let Some(token) = &signature.abi {
        errors.add(token, "a service's methods have no ABI of their own");
    }
    if let Some(token) = &signature.variadic {
        errors.add(token, "a service's methods cannot be variadic");
    }
    if !signature.generics.params.is_empty() {
        errors.add(
            &signature.generics,
            format!("`{name}` cannot be generic: its callers are other programs; name the types"),
        );
    }
    if let Some(clause) = &signature.generics.where_clause {
        errors.add(clause, format!("`{name}` cannot have a where clause"));
    }
    match signature.receiver() {
        None => errors.add(name, format!("`{name}` needs `&self` as its first argument")),
        Some(receiver) if receiver.mutability.is_some() && receiver.reference.is_some() => errors.add(
            receiver,
            "many calls run at once: take `&self` and keep mutable state in an atomic or a mutex",
        ),
        Some(receiver) if receiver.reference.is_none() || receiver.colon_token.is_some() => {
            errors.add(receiver, "many calls share the service: take `&self`");
        }
        Some(receiver) => {
            if let Some((_, Some(lifetime))) = &receiver.reference {
                errors.add(lifetime, "a service's methods have no lifetimes; take `&self`");
            }
        }
    }
    if CLIENT_FUNCTIONS.iter().any(|taken| name == taken) {
        errors.add(
            name,
            format!(
                "every client has a function `{name}`; choose another name and keep it on the wire with `#[switchboard(name = \"{}\")]`",
                upper_camel(&name.to_string()),
            ),
        );
    }
}

impl Param {
    fn read(typed: &PatType, errors: &mut Errors) -> Option<Param> {
        for attribute in &typed.attrs {
            errors.add(attribute, "a service's arguments have no attributes");
        }
        let name = match &*typed.pat {
            Pat::Ident(pat) if pat.by_ref.is_none() && pat.mutability.is_none() && pat.subpat.is_none() => {
                pat.ident.clone()
            }
            pattern => {
                errors.add(
                    pattern,
                    "an argument needs a plain name here: it is the name on the wire; patterns go into the `impl`",
                );
                return None;
            }
        };
        let ty = (*typed.ty).clone();
        let role = read_role(&ty, errors)?;
        Some(Param { name, role, ty })
    }
}

/// Returns the purpose of an argument of this type; `None` for types that are not allowed.
fn read_role(ty: &Type, errors: &mut Errors) -> Option<Role> {
    if let Type::Reference(reference) = ty
        && last_segment(&reference.elem).is_some_and(|segment| segment.ident == "Cx")
    {
        if reference.mutability.is_some() {
            errors.add(ty, "the context of a call is shared: take `&Cx`");
        }
        return Some(Role::Context);
    }
    if let Some(segment) = last_segment(ty) {
        let kind = segment.ident.to_string();
        if kind == "Cx" {
            errors.add(ty, "the context of a call belongs to the runtime: take `&Cx`");
            return None;
        }
        if kind == "Receiver" || kind == "Sender" {
            let Some(item) = first_argument(segment) else {
                errors.add(ty, format!("the type of the messages is missing: write `{kind}<T>`"));
                return None;
            };
            check_owned(item, "messages", errors);
            let item = item.clone();
            return Some(if kind == "Receiver" { Role::Receiver(item) } else { Role::Sender(item) });
        }
    }
    check_owned(ty, "arguments", errors);
    Some(Role::Value)
}

/// Returns the `T` of `Result<T>` or `Result<T, E>`.
fn read_output(signature: &Signature, errors: &mut Errors) -> Option<Type> {
    let ReturnType::Type(_, ty) = &signature.output else {
        errors.add(&signature.ident, "every call can fail: return `switchboard::Result<()>`");
        return None;
    };
    let output = last_segment(ty).filter(|segment| segment.ident == "Result").and_then(first_argument);
    let Some(output) = output else {
        let bare = last_segment(ty).is_some_and(|segment| segment.ident == "Result");
        let written = if bare { "T".to_owned() } else { source(ty) };
        errors.add(ty, format!("every call can fail: return `switchboard::Result<{written}>`"));
        return None;
    };
    if !matches!(output, Type::ImplTrait(opaque) if stream_bound(opaque).is_some()) {
        check_owned(output, "results", errors);
    }
    Some(output.clone())
}

/// Returns the bound `Stream<…>` of `impl Stream<…>`.
fn stream_bound(opaque: &TypeImplTrait) -> Option<&PathSegment> {
    let bounds = opaque.bounds.iter().filter_map(|bound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last(),
        _ => None,
    });
    bounds.into_iter().find(|segment| segment.ident == "Stream")
}

/// Returns the `T` of `impl Stream<Item = Result<T>>`; `None` for another `impl Trait`, and after an error.
fn stream_item(opaque: &TypeImplTrait, errors: &mut Errors) -> Option<Type> {
    let bound = stream_bound(opaque)?;
    let item = match &bound.arguments {
        PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::AssocType(item) if item.ident == "Item" => Some(&item.ty),
                _ => None,
            })
        }
        _ => None,
    };
    let message =
        item.and_then(last_segment).filter(|segment| segment.ident == "Result").and_then(first_argument);
    let Some(message) = message else {
        errors.add(bound, "every message can fail: return `impl Stream<Item = switchboard::Result<T>>`");
        return None;
    };
    check_owned(message, "messages", errors);
    Some(message.clone())
}

/// Checks that a type that is sent owns its parts and has a name on the other side.
fn check_owned(ty: &Type, what: &str, errors: &mut Errors) {
    if let Type::Reference(reference) = ty {
        let owned = match &*reference.elem {
            Type::Slice(slice) => format!("Vec<{}>", source(&slice.elem)),
            Type::Path(path) if path.path.is_ident("str") => "String".to_owned(),
            other => source(other),
        };
        errors.add(ty, format!("{what} are serialized and cannot borrow: take an owned type, `{owned}`"));
    } else if let Type::ImplTrait(_) = ty {
        errors.add(ty, format!("{what} are serialized: name the type instead of `impl Trait`"));
    } else if let Some((span, found)) = find_borrow(ty.to_token_stream()) {
        let message = match found {
            Found::Borrow => format!("{what} are serialized and cannot borrow: take an owned type"),
            Found::SelfType => {
                format!("{what} are serialized and the service is not: name the type instead of `Self`")
            }
        };
        errors.push(syn::Error::new(span, message));
    }
}

/// Formats a type as written in source code: printed tokens have a space between each.
fn source(ty: &Type) -> String {
    let mut text = ty.to_token_stream().to_string();
    for (spaced, close) in [(" < ", "<"), ("< ", "<"), (" >", ">"), (" ,", ","), (" :: ", "::"), ("& ", "&")]
    {
        text = text.replace(spaced, close);
    }
    text
}

enum Found {
    Borrow,
    SelfType,
}

/// Returns the first reference, lifetime other than `'static`, or `Self` anywhere in a type.
fn find_borrow(tokens: TokenStream) -> Option<(Span, Found)> {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                if let Some(found) = find_borrow(group.stream()) {
                    return Some(found);
                }
            }
            TokenTree::Ident(ident) if ident == "Self" => return Some((ident.span(), Found::SelfType)),
            TokenTree::Punct(punct) if punct.as_char() == '&' => return Some((punct.span(), Found::Borrow)),
            TokenTree::Punct(punct) if punct.as_char() == '\'' => {
                let name = tokens.next();
                if name.as_ref().is_none_or(|name| name.to_string() != "static") {
                    return Some((name.map_or(punct.span(), |name| name.span()), Found::Borrow));
                }
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
    None
}

fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Group(group) => last_segment(&group.elem),
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

fn last_segment_mut(ty: &mut Type) -> Option<&mut PathSegment> {
    match ty {
        Type::Group(group) => last_segment_mut(&mut group.elem),
        Type::Path(path) => path.path.segments.last_mut(),
        _ => None,
    }
}

fn first_argument_mut(segment: &mut PathSegment) -> Option<&mut Type> {
    match &mut segment.arguments {
        PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter_mut().find_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
        }
        _ => None,
    }
}

fn first_argument(segment: &PathSegment) -> Option<&Type> {
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
        }
        _ => None,
    }
}
