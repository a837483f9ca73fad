//! Options in the parentheses of the attributes.

use crate::http::Rule;
use syn::{Attribute, Expr, LitStr, Result, meta::ParseNestedMeta};

/// Options of `#[switchboard::service(...)]`.
#[derive(Default)]
pub(crate) struct ServiceOptions {
    pub(crate) name: Option<LitStr>,
}

/// Options of `#[switchboard::main(...)]`.
#[derive(Default)]
pub(crate) struct MainOptions {
    pub(crate) spin_us: Option<Expr>,
    pub(crate) workers: Option<Expr>,
}

/// Options of all `#[switchboard(...)]` on a method.
#[derive(Default)]
pub(crate) struct MethodOptions {
    pub(crate) http: Vec<Rule>,
    pub(crate) idempotent: bool,
    pub(crate) name: Option<LitStr>,
    pub(crate) oneway: bool,
    pub(crate) read_only: bool,
    pub(crate) spawn: bool,
}

impl ServiceOptions {
    pub(crate) fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if !meta.path.is_ident("name") {
            return Err(meta.error("unknown option; a service takes `name = \"package.Service\"`"));
        }
        let name: LitStr = meta.value()?.parse()?;
        let plain = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && part.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        if !name.value().split('.').all(plain) {
            return Err(syn::Error::new(
                name.span(),
                "a service's name is identifiers with dots between: `calc.v1.Calc`",
            ));
        }
        self.name = Some(name);
        Ok(())
    }
}

impl MainOptions {
    pub(crate) fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let option = match () {
            () if meta.path.is_ident("spin_us") => &mut self.spin_us,
            () if meta.path.is_ident("workers") => &mut self.workers,
            () => return Err(meta.error("unknown option; `main` takes `workers = 4` and `spin_us = 50`")),
        };
        *option = Some(meta.value()?.parse()?);
        Ok(())
    }
}

impl MethodOptions {
    pub(crate) fn read(&mut self, attribute: &Attribute) -> Result<()> {
        attribute.parse_nested_meta(|meta| {
            let flag = match () {
                () if meta.path.is_ident("http") => {
                    self.http.push(Rule::read(&meta)?);
                    return Ok(());
                }
                () if meta.path.is_ident("name") => return self.read_name(&meta),
                () if meta.path.is_ident("idempotent") => &mut self.idempotent,
                () if meta.path.is_ident("oneway") => &mut self.oneway,
                () if meta.path.is_ident("read_only") => &mut self.read_only,
                () if meta.path.is_ident("spawn") => &mut self.spawn,
                () => {
                    return Err(meta.error(
                        "unknown option; a method takes `http(get = \"/path\")`, `idempotent`, `name = \"Name\"`, `oneway`, `read_only` and `spawn`",
                    ));
                }
            };
            *flag = true;
            Ok(())
        })?;
        if self.idempotent && self.read_only {
            return Err(syn::Error::new_spanned(
                attribute,
                "`read_only` says more than `idempotent`; keep one of them",
            ));
        }
        Ok(())
    }

    fn read_name(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name: LitStr = meta.value()?.parse()?;
        if syn::parse_str::<syn::Ident>(&name.value()).is_err() || !name.value().is_ascii() {
            return Err(syn::Error::new(name.span(), "a method's name is an identifier: `Add`"));
        }
        self.name = Some(name);
        Ok(())
    }
}
