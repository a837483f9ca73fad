//! Servers that devices may connect to, as goim's logic lists them.

use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Nodes in one response, as in goim.
const LISTED_MAX: usize = 5;

/// Servers that devices may connect to, with the settings that `/goim/nodes/weighted` reports.
///
/// Without nodes, devices get the domain alone, as in goim.
#[derive(Debug)]
#[must_use = "nodes have no effect before they are given to the interface"]
pub struct Nodes {
    domain: String,
    host_domain: String,
    ports: [u16; 3],
    heartbeat: Duration,
    heartbeats_max: u32,
    back_off: BackOff,
    nodes: Vec<Node>,
    /// Responses in which each node was first.
    chosen: Mutex<Vec<u64>>,
}

/// A server that devices may connect to.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Node {
    /// Its name, which `platform=web` gets with the domain of hosts.
    pub hostname: String,
    /// Its address, which other platforms get.
    pub address: String,
    /// Share of the devices in proportion to that of other nodes; 0 counts as 1.
    pub weight: u32,
    /// New devices do not get it.
    pub is_offline: bool,
    /// Region and zone, for the list of instances.
    pub region: String,
    /// Zone of the region.
    pub zone: String,
}

impl Node {
    /// Creates a node with the weight 10.
    pub fn new(hostname: impl Into<String>, address: impl Into<String>) -> Node {
        let (region, zone) = (String::new(), String::new());
        Node {
            hostname: hostname.into(),
            address: address.into(),
            weight: 10,
            is_offline: false,
            region,
            zone,
        }
    }

    /// Sets the weight.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Node {
        self.weight = weight;
        self
    }

    /// Sets that new devices do not get it.
    #[must_use]
    pub fn offline(mut self) -> Node {
        self.is_offline = true;
        self
    }

    /// Sets the region and the zone.
    #[must_use]
    pub fn located(mut self, region: impl Into<String>, zone: impl Into<String>) -> Node {
        (self.region, self.zone) = (region.into(), zone.into());
        self
    }
}

/// Pauses of devices before they connect again. Defaults are those of goim.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BackOff {
    /// Longest pause in seconds; default 300.
    pub max_delay: u32,
    /// First pause in seconds; default 3.
    pub base_delay: u32,
    /// Factor from one pause to the next; default 1.8.
    pub factor: f32,
    /// Random part; default 1.3.
    pub jitter: f32,
}

impl Default for BackOff {
    fn default() -> BackOff {
        BackOff { max_delay: 300, base_delay: 3, factor: 1.8, jitter: 1.3 }
    }
}

/// The response of `/goim/nodes/weighted`. Members that are zero or empty are left out, as in goim.
#[derive(Debug, Serialize)]
pub(super) struct Weighted<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    tcp_port: u32,
    #[serde(skip_serializing_if = "is_zero")]
    ws_port: u32,
    #[serde(skip_serializing_if = "is_zero")]
    wss_port: u32,
    #[serde(skip_serializing_if = "is_zero")]
    heartbeat: u32,
    nodes: Vec<String>,
    backoff: BackOff,
    #[serde(skip_serializing_if = "is_zero")]
    heartbeat_max: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A node in the list of instances, as bilibili's discovery describes it.
#[derive(Debug, Serialize)]
pub(super) struct Instance<'a> {
    region: &'a str,
    zone: &'a str,
    env: &'static str,
    appid: &'static str,
    hostname: &'a str,
    addrs: Vec<String>,
    version: &'static str,
    latest_timestamp: i64,
    metadata: BTreeMap<&'static str, String>,
    status: i64,
}

impl Instance<'_> {
    fn new(node: &Node) -> Instance<'_> {
        let metadata = [
            ("addrs", node.address.clone()),
            ("offline", node.is_offline.to_string()),
            ("weight", node.weight.max(1).to_string()),
        ];
        Instance {
            region: &node.region,
            zone: &node.zone,
            env: "",
            appid: "goim.comet",
            hostname: &node.hostname,
            addrs: vec![node.address.clone()],
            version: "",
            latest_timestamp: 0,
            metadata: metadata.into(),
            status: 1,
        }
    }
}

impl Nodes {
    /// Creates an empty list. `domain` is what devices get when there is no node.
    pub fn new(domain: impl Into<String>) -> Nodes {
        Nodes {
            domain: domain.into(),
            host_domain: String::new(),
            ports: [3101, 3102, 3103],
            heartbeat: Duration::from_secs(240),
            heartbeats_max: 2,
            back_off: BackOff::default(),
            nodes: Vec::new(),
            chosen: Mutex::default(),
        }
    }

    /// Sets what follows the name of a node for `platform=web`, such as `.goim.io`.
    pub fn host_domain(mut self, domain: impl Into<String>) -> Nodes {
        self.host_domain = domain.into();
        self
    }

    /// Sets the ports for TCP, WebSockets, and WebSockets with TLS; defaults 3101, 3102 and 3103, and 0 leaves one out.
    pub fn ports(mut self, tcp: u16, websocket: u16, websocket_tls: u16) -> Nodes {
        self.ports = [tcp, websocket, websocket_tls];
        self
    }

    /// Sets the interval of heartbeats, and after how many of them without one a device is disconnected; defaults
    /// 4 minutes and 2.
    pub fn heartbeat(mut self, interval: Duration, max: u32) -> Nodes {
        (self.heartbeat, self.heartbeats_max) = (interval, max);
        self
    }

    /// Sets the pauses before a device connects again.
    pub fn back_off(mut self, back_off: BackOff) -> Nodes {
        self.back_off = back_off;
        self
    }

    /// Adds a node.
    pub fn node(mut self, node: Node) -> Nodes {
        self.nodes.push(node);
        self.chosen.get_mut().unwrap_or_else(PoisonError::into_inner).push(0);
        self
    }

    /// Returns the nodes for a device, the one with the fewest devices for its weight first.
    pub(super) fn weighted(&self, platform: &str) -> Weighted<'_> {
        let [tcp_port, ws_port, wss_port] = self.ports.map(u32::from);
        let mut nodes: Vec<String> =
            self.choose().into_iter().map(|node| self.name_for(node, platform)).collect();
        if nodes.is_empty() {
            nodes.push(self.domain.clone());
        }
        Weighted {
            domain: &self.domain,
            tcp_port,
            ws_port,
            wss_port,
            heartbeat: u32::try_from(self.heartbeat.as_secs()).unwrap_or(u32::MAX),
            nodes,
            backoff: self.back_off,
            heartbeat_max: self.heartbeats_max,
        }
    }

    fn name_for(&self, node: &Node, platform: &str) -> String {
        match platform {
            "web" => format!("{}{}", node.hostname, self.host_domain),
            _ => node.address.clone(),
        }
    }

    fn choose(&self) -> Vec<&Node> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut online: Vec<usize> =
            (0..self.nodes.len()).filter(|index| !self.nodes[*index].is_offline).collect();
        // Compares the devices that each would have per weight, in whole numbers.
        online.sort_by(|a, b| {
            let load = |index: usize, other: usize| {
                u128::from(chosen[index] + 1) * u128::from(self.nodes[other].weight.max(1))
            };
            load(*a, *b).cmp(&load(*b, *a))
        });
        if let Some(first) = online.first() {
            chosen[*first] += 1;
        }
        online.into_iter().take(LISTED_MAX).map(|index| &self.nodes[index]).collect()
    }

    /// Returns all nodes.
    pub(super) fn instances(&self) -> Vec<Instance<'_>> {
        self.nodes.iter().map(Instance::new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_spread_by_weight() {
        let nodes = Nodes::new("conn.example.org")
            .host_domain(".example.org")
            .node(Node::new("a", "10.0.0.1").weight(30))
            .node(Node::new("b", "10.0.0.2").weight(10))
            .node(Node::new("c", "10.0.0.3").weight(1000).offline());
        let mut first = BTreeMap::new();
        for _ in 0..400 {
            *first.entry(nodes.weighted("android").nodes[0].clone()).or_insert(0) += 1;
        }
        assert_eq!(first, [("10.0.0.1".to_owned(), 300), ("10.0.0.2".to_owned(), 100)].into());
        assert_eq!(nodes.weighted("web").nodes.len(), 2);
        assert!(nodes.weighted("web").nodes.contains(&"a.example.org".to_owned()));
    }

    #[test]
    fn the_response_has_the_bytes_of_goim() {
        let nodes = Nodes::new("conn.goim.io");
        assert_eq!(
            serde_json::to_string(&nodes.weighted("web")).unwrap(),
            r#"{"domain":"conn.goim.io","tcp_port":3101,"ws_port":3102,"wss_port":3103,"heartbeat":240,"#
                .to_owned()
                + r#""nodes":["conn.goim.io"],"backoff":{"max_delay":300,"base_delay":3,"factor":1.8,"jitter":1.3},"#
                + r#""heartbeat_max":2}"#
        );
        let nodes = Nodes::new("").ports(0, 3102, 0).node(Node::new("a", "10.0.0.1").located("sh", "sh001"));
        let text = serde_json::to_string(&nodes.weighted("")).unwrap();
        assert!(text.starts_with(r#"{"ws_port":3102,"heartbeat":240,"nodes":["10.0.0.1"],"#), "{text}");
        assert_eq!(
            serde_json::to_string(&nodes.instances()).unwrap(),
            r#"[{"region":"sh","zone":"sh001","env":"","appid":"goim.comet","hostname":"a","#.to_owned()
                + r#""addrs":["10.0.0.1"],"#
                + r#""version":"","latest_timestamp":0,"#
                + r#""metadata":{"addrs":"10.0.0.1","offline":"false","weight":"10"},"#
                + r#""status":1}]"#
        );
    }
}
