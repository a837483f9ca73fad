//! Where calls go: the URLs of `--to`, and channels to what they name.

use super::ProxyArgs;
use bytes::Bytes;
use switchboard::{Channel, ChannelBuilder, Codec, Status, client::Cut};

/// One or several servers, or a registry that knows them.
#[derive(Debug)]
pub(super) struct Upstream {
    /// That of a channel or a registry.
    url: String,
    headers: Vec<(String, Bytes)>,
    /// Ends the connections of all its channels.
    cut: Cut,
}

impl Upstream {
    /// What the command line names; nothing is connected to.
    ///
    /// # Errors
    /// URLs that cannot be used together, and one that is none.
    pub(super) fn new(args: &ProxyArgs) -> Result<Upstream, String> {
        if args.to.is_empty() {
            return Err("no server to hand calls on to: name one with --to".to_owned());
        }
        let upstream = Upstream { url: joined(&args.to)?, headers: args.headers.clone(), cut: Cut::new() };
        drop(upstream.builder("service")?);
        Ok(upstream)
    }

    pub(super) fn is_registry(&self) -> bool {
        switchboard_registry::is_registry(&self.url)
    }

    /// A channel to the servers of this service; all have one to the same servers, but with a registry.
    ///
    /// # Errors
    /// A URL that cannot be.
    pub(super) fn channel(&self, service: &str) -> Result<Channel, String> {
        self.builder(service)?.lazy().map_err(|status| said(&status))
    }

    /// A channel for asking about the schema, which takes gRPC whatever calls take.
    ///
    /// # Errors
    /// A URL that cannot be.
    pub(super) fn reflecting(&self, service: &str) -> Result<Channel, String> {
        const OF_CHANNELS: [&str; 4] = ["ca", "cert", "key", "server_name"];
        let (address, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let kept = |option: &&str| {
            let name = option.split_once('=').map_or(*option, |(name, _)| name);
            // Those of a registry are its own.
            self.is_registry() && name != "wire" || OF_CHANNELS.contains(&name)
        };
        let options: String = query.split('&').filter(kept).map(|option| format!("&{option}")).collect();
        let url = format!("{address}?wire=grpc{options}");
        let upstream = Upstream { url, headers: self.headers.clone(), cut: self.cut.clone() };
        upstream.channel(service)
    }

    /// What servers on this wire are best sent of what there is a schema for, whatever a caller writes; none if that is
    /// as good. Ours read all that their wires say, and Connect has JSON in its specification; kiss-rpc has FlatBuffers
    /// alone. Channels on wires that have no name for FlatBuffers make JSON of them.
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
        let builder = builder.cut_by(&self.cut);
        Ok(self.headers.iter().fold(builder, |builder, (name, value)| builder.meta(name, value.clone())))
    }

    pub(super) fn cut(&self) -> Cut {
        self.cut.clone()
    }
}

fn said(status: &Status) -> String {
    status.message().to_owned()
}

/// One URL of all addresses, with the options that one of them has, or all.
fn joined(urls: &[String]) -> Result<String, String> {
    let is_registry = |url: &String| switchboard_registry::is_registry(url);
    if let [url] = urls
        && is_registry(url)
    {
        return Ok(url.clone());
    }
    if let Some(registry) = urls.iter().find(|url| is_registry(url)) {
        return Err(format!("--to {registry} is a registry, and there is another --to: give one of them"));
    }
    let mut addresses = Vec::new();
    let mut options: Option<&str> = None;
    for url in urls {
        let (address, query) =
            url.split_once('?').map_or((&**url, None), |(address, query)| (address, Some(query)));
        match (options, query) {
            (Some(one), Some(other)) if one != other => {
                return Err(format!("--to has the options {one:?} and {other:?}: all servers have the same"));
            }
            (_, None) => {}
            (_, given) => options = given,
        }
        addresses.push(with_scheme(address));
    }
    Ok(format!("{}{}", addresses.join(","), options.map(|options| format!("?{options}")).unwrap_or_default()))
}

/// `localhost:8080` is TCP.
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
            (&["a:1?retries=1", "b:2?retries=2"][..], "all servers have the same"),
            (&["a:1", "etcd://b:2"], "is a registry"),
        ] {
            assert!(of(urls).unwrap_err().contains(why), "{urls:?}");
        }
    }

    #[test]
    fn servers_are_sent_what_their_wire_has_a_name_for() {
        let upstream = |url: &str| Upstream { url: url.to_owned(), headers: Vec::new(), cut: Cut::new() };
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
    fn reflection_takes_grpc_with_the_same_certificates() {
        let upstream = |url: &str| Upstream { url: url.to_owned(), headers: Vec::new(), cut: Cut::new() };
        let channel = upstream("tcp://a:1?wire=rpcx&codec=json&names=short").reflecting("x").unwrap();
        assert!(format!("{channel:?}").contains("tcp://a:1"), "{channel:?}");
    }
}
