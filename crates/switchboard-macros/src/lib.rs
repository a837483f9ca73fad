//! `#[switchboard::service]` and `#[switchboard::main]`.
//!
//! Use them through the crate `switchboard`, which the generated code names. In reading order: `model` turns a trait
//! into a service or into errors, `method` handles one method of it, `options` the attributes, `http` the paths;
//! `plain` reduces a trait with an error to one that compiles, `server` and `client` write the two halves of the
//! generated code from the model, `schema` computes the fingerprints, `main_attr` is the other macro.

mod client;
mod http;
mod main_attr;
mod method;
mod model;
mod names;
mod options;
mod plain;
mod schema;
mod server;

use proc_macro::TokenStream;
use quote::quote;
use syn::parse_macro_input;

/// Makes a service from a trait: a server, a client, and a trait for fakes of the client.
///
/// ```
/// use switchboard::{Cx, Result, Sender};
///
/// /// Sums.
/// #[switchboard::service(name = "calc.v1.Calc")]
/// pub trait Calc {
///     /// The sum of both.
///     #[switchboard(read_only)]
///     async fn add(&self, a: i64, b: i64) -> Result<i64>;
///
///     /// Counts from `from` on.
///     async fn count(&self, from: u64, cx: &Cx, out: Sender<u64>) -> Result<()>;
/// }
///
/// struct Abacus;
///
/// impl Calc for Abacus {
///     async fn add(&self, a: i64, b: i64) -> Result<i64> {
///         Ok(a + b)
///     }
///
///     async fn count(&self, from: u64, _: &Cx, out: Sender<u64>) -> Result<()> {
///         for number in from.. {
///             out.send(number).await?;
///         }
///         Ok(())
///     }
/// }
///
/// #[switchboard::main]
/// async fn main() -> Result<()> {
///     let calc = CalcClient::local(Abacus);
///     assert_eq!(*calc.add(1, 2).await?, 3);
///     Ok(())
/// }
/// ```
///
/// `trait Calc` generates these items, each with the visibility of the trait:
/// - `Calc` itself, its methods as functions that return futures which are `Send`; implement them with `async fn`.
/// - `CalcServer<T>`, which serves a `T: Calc`.
/// - `CalcClient`, which calls it, and `CalcApi`, which fakes of the client implement in tests.
/// - `CALC`, the name and methods. Each method has a schema id, which changes with the names and types of its arguments
///   and result: postcard bytes do not describe themselves, so callers built from another trait are rejected.
///
/// # Methods
/// Arguments and results are owned serde types. They are sent as postcard between Rust programs and as JSON to all
/// other peers: the arguments as an object with their names, the result without a wrapper. Three arguments are special:
/// - `&Cx` is the context of the call; callers do not see it.
/// - `Receiver<T>` makes a stream of the requests; it allows no further arguments.
/// - `Sender<T>` makes a stream of the replies; the method then returns `Result<()>`. Instead, a method may return
///   `Result<impl Stream<Item = Result<T>>>`, with the trait of the crates `futures` and `futures-core`: for a caller,
///   there is no difference.
///
/// A method returns `Result<T, E>`, and `Status` must be `From<E>`.
///
/// # Options
/// On the trait: `name = "calc.v1.Calc"`, the name on the wire; the default is the name of the trait.
/// On a method, in `#[switchboard(...)]`:
/// - `name = "Add"`: the name on the wire; the default is the name of the method in upper camel case.
/// - `read_only`: a call has no effect. `idempotent`: a repeated call has no further effect.
/// - `http(get = "/calc/{a}/add/{b}")`: an HTTP path, with templates as those of `google.api.http`; verbs are `get`,
///   `put`, `post`, `delete` and `patch`. Arguments that the path does not name come from the query, or from the body:
///   all of them with `body = "*"`, one of them with `body = "argument"`. Types in paths and queries must implement
///   `HttpText`. Repeat the option for a further path. A method with `get` should be `read_only`: otherwise the server
///   rejects a GET without a header that pages of other sites cannot send.
/// - `oneway`: no reply is sent or waited for.
/// - `spawn`: the handler runs on its own task, so that a long computation does not block its connection.
#[proc_macro_attribute]
pub fn service(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut service_options = options::ServiceOptions::default();
    let parser = syn::meta::parser(|meta| service_options.read(&meta));
    parse_macro_input!(options with parser);
    let item = parse_macro_input!(item as syn::ItemTrait);
    let declared = item.clone();
    match model::Service::read(item, service_options) {
        Ok(service) => {
            let (server, client) = (server::items(&service), client::items(&service));
            let requests = server::requests(&service);
            let (service_impl, client_impl) =
                (server::service_impl(&service), client::method_impls(&service));
            let cfgs = &service.cfgs;
            quote! {
                #server
                #client
                #(#cfgs)*
                const _: () = {
                    #requests
                    #service_impl
                    #client_impl
                };
            }
            .into()
        }
        Err(error) => {
            let error = error.into_compile_error();
            let plain = plain::plain(declared);
            quote!(#plain #error).into()
        }
    }
}

/// Runs an async `main` on Switchboard's pinned workers.
///
/// ```no_run
/// #[switchboard::main]
/// async fn main() -> switchboard::Result<()> {
///     let channel = switchboard::Channel::connect("tcp://127.0.0.1:8080").await?;
///     println!("connected: {channel:?}");
///     Ok(())
/// }
/// ```
///
/// `#[switchboard::main(workers = 4, spin_us = 0)]` sets the number of threads (default: number of cores) and the time
/// in microseconds that each of them polls after traffic before it sleeps (default: 100).
///
/// If `main` returns an error of any type with [`Display`](std::fmt::Display), such as `Box<dyn Error>` or
/// `anyhow::Error`, the error is printed with `Display` and the process exits with status 1.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut main_options = options::MainOptions::default();
    let parser = syn::meta::parser(|meta| main_options.read(&meta));
    parse_macro_input!(options with parser);
    let item = parse_macro_input!(item as syn::ItemFn);
    main_attr::expand(item, &main_options).unwrap_or_else(syn::Error::into_compile_error).into()
}
