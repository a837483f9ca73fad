//! The upstream servers: the URLs of `--to`, and channels to them.

use super::ProxyArgs;
use bytes::Bytes;
use switchboard::{Channel, ChannelBuilder, Codec, Status, client::ConnectionAborter};

/// One or several servers, or a registry.
#[derive(Debug)]
pub(super) struct Upstream {
    /// URL of a channel or a registry.
    url: String,
    headers: Vec<(String, Bytes)>,
    /// Closes the connections of all its channels.
    aborter: ConnectionAborter,
}

impl Upstream {
    /// Reads the command line; nothing is connected.
    ///
    /// # Errors
    /// URLs that cannot be combined, and invalid ones.
    pub(super) fn new(args: &ProxyArgs) -> Result<Upstream, String> {
        if args.to.is_empty() {
            return Err("no server to forward calls to: name one with --to".to_owned());
        }
        let upstream = Upstream {
            url: joined(&args.to)?,
            headers: args.headers.clone(),
            aborter: ConnectionAborter::new(),
        };
        drop(upstream.builder("service")?);
        Ok(upstream)
    }

    pub(super) fn is_registry(&self) -> bool {
        switchboard_registry::is_registry(&self.url)
    }

    /// Returns a channel to the servers of this service; without a registry, all services share the servers.
    ///
    /// # Errors
    /// An invalid URL.
    pub(super) fn channel(&self, service: &str) -> Result<Channel, String> {
        self.builder(service)?.lazy().map_err(|status| said(&status))
    }

    /// Returns a channel for reflection, which uses gRPC regardless of the wire of calls.
    ///
    /// # Errors
    /// An invalid URL.
    pub(super) fn reflecting(&self, service: &str) -> Result<Channel, String> {
        const OF_CHANNELS: [&str; 4] = ["ca", "cert", "key", "server_name"];
        let (address, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let kept = |option: &&str| {
            let name = option.split_once('=').map_or(*option, |(name, _)| name);
            // A registry has its own options.
            self.is_registry() && name != "wire" || OF_CHANNELS.contains(&name)
        };
        let options: String = query.split('&').filter(kept).map(|option| format!("&{option}")).collect();
        let url = format!("{address}?wire=grpc{options}");
        let upstream = Upstream { url, headers: self.headers.clone(), aborter: self.aborter.clone() };
        upstream.channel(service)
    }

    /// Returns the best codec for servers on this wire if there is a schema, regardless of the caller's codec; `None`
    /// if the caller's codec is as good. Our servers support all codecs of their wires, and the specification of
    /// Connect requires JSON; kiss-rpc has only FlatBuffers. Channels on wires without a name for FlatBuffers convert
    /// it to JSON.
    pub(super) fn best_of(&self, codecs: &[Codec]) -> Option<Codec> {
        let query = self.url.split_once('?').map_or("", |(_, query)| query);
        let wire = query.split('&').filter_map(|option| option.strip_prefix("wire=")).next_back();
        let tables = codecs.contains(&Codec::FlatBuffers).then_some(Codec::FlatBuffers);
        let proto = codecs.contains(&Codec::Proto).then_some(Codec::Proto);
        match wire {
            None | Some("native") => None,
            Some("kiss") => tables.or(proto),
            Some("connect" | "jsonrpc") => tables.filter(|_| proto.is_none()),
            Some(_) => proto.or(tables),
        }
    }

    fn builder(&self, service: &str) -> Result<ChannelBuilder, String> {
        let builder = match self.is_registry() {
            true => switchboard_registry::fleet(&self.url, service).map_err(|status| said(&status))?,
            false => Channel::builder(&self.url),
        };
        let builder = builder.aborted_by(&self.aborter);
        Ok(self.headers.iter().fold(builder, |builder, (name, value)| builder.meta(name, value.clone())))
    }

    pub(super) fn aborter(&self) -> ConnectionAborter {
        self.aborter.clone()
    }
}

fn said(status: &Status) -> String {
    status.message().to_owned()
}

/// Joins all addresses to one URL, with the options that one of them has, or all.
fn joined(urls: &[String]) -> Result<String, String> {
    let is_registry = |url: &String| switchboard_registry::is_registry(url);
    if let [url] = urls
        && is_registry(url)
    {
        return Ok(url.clone());
    }
    if let Some(registry) = urls.iter().find(|url| is_registry(url)) {
        return Err(format!("--to {registry} is a registry, and another --to is given: give only one"));
    }
    let mut addresses = Vec::new();
    let mut options: Option<&str> = None;
    for url in urls {
        let (address, query) =
            url.split_once('?').map_or((&**url, None), |(address, query)| (address, Some(query)));
        match (options, query) {
            (Some(one), Some(other)) if one != other => {
                return Err(format!(
                    "--to has the options {one:?} and {other:?}: all servers must have the same"
                ));
            }
            (_, None) => {}
            (_, given) => options = given,
        }
        addresses.push(with_scheme(address));
    }
    Ok(format!("{}{}", addresses.join(","), options.map(|options| format!("?{options}")).unwrap_or_default()))
}

/// Adds the scheme: `localhost:8080` is TCP.
fn with_scheme(address: &str) -> String {
    match address.contains("://") || address.starts_with("unix:") {
        true => address.to_owned(),
        false => format!("tcp://{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(urls: &[&str]) -> Result<String, String> {
        joined(&urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn several_urls_become_that_of_one_channel() {
        for (urls, wanted) in [
            (&["a:1"][..], "tcp://a:1"),
            (&["a:1?wire=grpc"], "tcp://a:1?wire=grpc"),
            (&["a:1,b:2?wire=rpcx"], "tcp://a:1,b:2?wire=rpcx"),
            (&["a:1", "tls://b:2?ca=x.pem"], "tcp://a:1,tls://b:2?ca=x.pem"),
            (&["a:1?retries=1", "b:2?retries=1"], "tcp://a:1,tcp://b:2?retries=1"),
            (&["unix:/run/a"], "unix:/run/a"),
            (&["etcd://a:1/x?wire=grpc"], "etcd://a:1/x?wire=grpc"),
        ] {
            assert_eq!(of(urls).as_deref(), Ok(wanted));
        }
        for (urls, why) in [
            (&["a:1?retries=1", "b:2?retries=2"][..], "all servers must have the same"),
            (&["a:1", "etcd://b:2"], "is a registry"),
        ] {
            assert!(of(urls).unwrap_err().contains(why), "{urls:?}");
        }
    }

    #[test]
    fn messages_use_a_codec_that_the_wire_supports() {
        let upstream = |url: &str| Upstream {
            url: url.to_owned(),
            headers: Vec::new(),
            aborter: ConnectionAborter::new(),
        };
        let (proto, tables) = (Some(Codec::Proto), Some(Codec::FlatBuffers));
        for (url, wanted) in [
            ("tcp://a:1", [None; 3]),
            ("tcp://a:1?wire=connect", [None, tables, None]),
            ("tcp://a:1?wire=grpc", [proto, tables, proto]),
            ("tcp://a:1?retries=1&wire=rpcx", [proto, tables, proto]),
            ("tcp://a:1?wire=kiss&function=a.B/C:7", [proto, tables, tables]),
        ] {
            let known = [&[Codec::Proto][..], &[Codec::FlatBuffers], &[Codec::Proto, Codec::FlatBuffers]];
            assert_eq!(known.map(|codecs| upstream(url).best_of(codecs)), wanted, "{url}");
        }
    }

    #[test]
    fn reflection_uses_grpc_with_the_same_certificates() {
        let upstream = |url: &str| Upstream {
            url: url.to_owned(),
            headers: Vec::new(),
            aborter: ConnectionAborter::new(),
        };
        let channel = upstream("tcp://a:1?wire=rpcx&codec=json&names=short").reflecting("x").unwrap();
        assert!(format!("{channel:?}").contains("tcp://a:1"), "{channel:?}");
    }
}
