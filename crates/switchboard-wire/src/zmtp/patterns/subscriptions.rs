//! Subscriptions to prefixes, in a compressed trie.
//!
//! A message visits the nodes along its first frame, so its cost depends on the length of the frame and on the number
//! of matching peers, but not on the number of subscriptions. A node is a place where prefixes end or part; its number
//! does not change while a peer subscribes to its prefix.

use std::{collections::BTreeMap, fmt};

/// Subscriptions of peers that are called `P`: those of the subscribers of a publisher, or of a subscriber itself with
/// `()` as its only peer.
#[derive(Debug)]
pub struct Subscriptions<P> {
    nodes: Vec<Node<P>>,
    /// Numbers of unused nodes.
    free: Vec<usize>,
    peers: BTreeMap<P, Topics>,
    subscriptions_max: u32,
}

#[derive(Debug)]
struct Node<P> {
    parent: usize,
    /// The part of the prefix after that of the parent; empty in the root alone.
    label: Box<[u8]>,
    /// Numbers of the children, sorted by the first byte of their label.
    children: Vec<(u8, usize)>,
    /// Subscribers and how often each has subscribed, sorted.
    peers: Vec<(P, u32)>,
}

/// Subscriptions of one peer.
#[derive(Debug, Default)]
struct Topics {
    /// Nodes with the number of subscriptions at each.
    nodes: BTreeMap<usize, u32>,
    count: u32,
}

const ROOT: usize = 0;

/// A peer has as many subscriptions as it may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooManySubscriptions {
    limit: u32,
}

impl fmt::Display for TooManySubscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        write!(f, "connection has {limit} subscriptions; the limit is {limit} (subscriptions_max)")
    }
}

impl std::error::Error for TooManySubscriptions {}

impl<P: Copy + Ord> Subscriptions<P> {
    /// Creates a trie in which each peer has at most `subscriptions_max` subscriptions, repeated ones included.
    pub fn new(subscriptions_max: u32) -> Subscriptions<P> {
        let root = Node { parent: ROOT, label: Box::default(), children: Vec::new(), peers: Vec::new() };
        Subscriptions { nodes: vec![root], free: Vec::new(), peers: BTreeMap::new(), subscriptions_max }
    }

    /// Adds a subscription; returns true if it is the first one to this topic. An XPUB reports those to its
    /// application.
    ///
    /// # Errors
    /// Fails if the peer has `subscriptions_max` subscriptions.
    pub fn subscribe(&mut self, topic: &[u8], peer: P) -> Result<bool, TooManySubscriptions> {
        let limit = self.subscriptions_max;
        if self.peers.get(&peer).map_or(0, |topics| topics.count) >= limit {
            return Err(TooManySubscriptions { limit });
        }
        let node = self.insert(topic);
        let topics = self.peers.entry(peer).or_default();
        *topics.nodes.entry(node).or_default() += 1;
        topics.count += 1;
        let peers = &mut self.nodes[node].peers;
        let is_first = peers.is_empty();
        match peers.binary_search_by_key(&peer, |(peer, _)| *peer) {
            Ok(at) => peers[at].1 += 1,
            Err(at) => peers.insert(at, (peer, 1)),
        }
        Ok(is_first)
    }

    /// Ends one subscription of the peer; returns true if none to this topic is left. Has no effect without one.
    pub fn cancel(&mut self, topic: &[u8], peer: P) -> bool {
        let Some(node) = self.find(topic) else { return false };
        let Some(topics) = self.peers.get_mut(&peer) else { return false };
        let Some(count) = topics.nodes.get_mut(&node) else { return false };
        *count -= 1;
        let left = *count;
        topics.count -= 1;
        if left == 0 {
            topics.nodes.remove(&node);
        }
        if topics.count == 0 {
            self.peers.remove(&peer);
        }
        let peers = &mut self.nodes[node].peers;
        if let Ok(at) = peers.binary_search_by_key(&peer, |(peer, _)| *peer) {
            peers[at].1 = left;
            if left == 0 {
                peers.remove(at);
            }
        }
        let is_last = peers.is_empty();
        if is_last {
            self.prune(node);
        }
        is_last
    }

    /// Ends all subscriptions of a peer; returns the topics that have none left.
    pub fn remove(&mut self, peer: P) -> Vec<Vec<u8>> {
        let topics = self.peers.remove(&peer).unwrap_or_default();
        let mut ended = Vec::new();
        for node in topics.nodes.into_keys() {
            let peers = &mut self.nodes[node].peers;
            peers.retain(|(subscriber, _)| *subscriber != peer);
            if peers.is_empty() {
                ended.push(self.topic(node));
                // Merges only nodes without peers, so the other nodes of this peer keep their numbers.
                self.prune(node);
            }
        }
        ended
    }

    /// Appends the peers that subscribe to a prefix of `first_frame`, each once.
    pub fn matching(&self, first_frame: &[u8], into: &mut Vec<P>) {
        let begin = into.len();
        let (mut node, mut rest, mut sources) = (ROOT, first_frame, 0);
        loop {
            let peers = &self.nodes[node].peers;
            into.extend(peers.iter().map(|(peer, _)| *peer));
            sources += usize::from(!peers.is_empty());
            let Some(child) = rest.first().and_then(|first| self.child(node, *first)) else { break };
            let Some(after) = rest.strip_prefix(&*self.nodes[child].label) else { break };
            (node, rest) = (child, after);
        }
        // The peers of one node are unique.
        if sources > 1 {
            into[begin..].sort_unstable();
            let mut kept = begin;
            for at in begin..into.len() {
                if kept == begin || into[kept - 1] != into[at] {
                    into[kept] = into[at];
                    kept += 1;
                }
            }
            into.truncate(kept);
        }
    }

    /// Returns true if any peer subscribes to a prefix of `first_frame`: the filter of a SUB on receipt.
    pub fn matches(&self, first_frame: &[u8]) -> bool {
        let (mut node, mut rest) = (ROOT, first_frame);
        while self.nodes[node].peers.is_empty() {
            let Some(child) = rest.first().and_then(|first| self.child(node, *first)) else { return false };
            let Some(after) = rest.strip_prefix(&*self.nodes[child].label) else { return false };
            (node, rest) = (child, after);
        }
        true
    }

    /// Returns the topics with a subscription, sorted: a SUB sends them on each new connection.
    pub fn topics(&self) -> Vec<Vec<u8>> {
        let nodes = (0..self.nodes.len()).filter(|node| !self.nodes[*node].peers.is_empty());
        let mut topics: Vec<_> = nodes.map(|node| self.topic(node)).collect();
        topics.sort_unstable();
        topics
    }

    /// Returns the number of subscriptions of a peer, repeated ones included.
    pub fn count(&self, peer: P) -> u32 {
        self.peers.get(&peer).map_or(0, |topics| topics.count)
    }

    /// Returns the child whose label begins with `first`.
    fn child(&self, node: usize, first: u8) -> Option<usize> {
        let children = &self.nodes[node].children;
        let at = children.binary_search_by_key(&first, |(first, _)| *first).ok()?;
        Some(children[at].1)
    }

    /// Returns the node at the end of exactly this prefix.
    fn find(&self, topic: &[u8]) -> Option<usize> {
        let (mut node, mut rest) = (ROOT, topic);
        while let Some(first) = rest.first() {
            node = self.child(node, *first)?;
            rest = rest.strip_prefix(&*self.nodes[node].label)?;
        }
        Some(node)
    }

    /// Returns the node at the end of this prefix; creates it if there is none.
    fn insert(&mut self, topic: &[u8]) -> usize {
        let (mut node, mut rest) = (ROOT, topic);
        while let Some(first) = rest.first() {
            let Some(child) = self.child(node, *first) else {
                return self.create(node, rest.into());
            };
            let label = &self.nodes[child].label;
            let shared = label.iter().zip(rest).take_while(|(one, other)| one == other).count();
            node = if shared == label.len() { child } else { self.part(child, shared) };
            rest = &rest[shared..];
        }
        node
    }

    /// Creates a child of `parent`, which has none that begins with the same byte.
    fn create(&mut self, parent: usize, label: Box<[u8]>) -> usize {
        let first = label[0];
        let node = Node { parent, label, children: Vec::new(), peers: Vec::new() };
        let number = match self.free.pop() {
            Some(number) => {
                self.nodes[number] = node;
                number
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        let children = &mut self.nodes[parent].children;
        let at = children.partition_point(|(other, _)| *other < first);
        children.insert(at, (first, number));
        number
    }

    /// Creates a node between `child` and its parent, with the first `shared` bytes of the label, which has more.
    fn part(&mut self, child: usize, shared: usize) -> usize {
        let Node { parent, label, .. } = &self.nodes[child];
        let (parent, upper, lower) = (*parent, Box::from(&label[..shared]), Box::from(&label[shared..]));
        self.detach(child);
        let between = self.create(parent, upper);
        self.attach(child, between, lower);
        between
    }

    /// Removes a node without peers, or merges it with its only child; then its parent if that became superfluous.
    fn prune(&mut self, node: usize) {
        let Node { parent, peers, children, .. } = &self.nodes[node];
        if node == ROOT || !peers.is_empty() {
            return;
        }
        let parent = *parent;
        match children[..] {
            [] => {
                self.detach(node);
                self.free.push(node);
                if self.nodes[parent].children.len() == 1 {
                    self.prune(parent);
                }
            }
            [(_, child)] => {
                let label = [&*self.nodes[node].label, &*self.nodes[child].label].concat();
                self.detach(node);
                self.attach(child, parent, label.into());
                self.nodes[node].children = Vec::new();
                self.free.push(node);
            }
            _ => {}
        }
    }

    fn detach(&mut self, node: usize) {
        let parent = self.nodes[node].parent;
        self.nodes[parent].children.retain(|(_, child)| *child != node);
    }

    fn attach(&mut self, node: usize, parent: usize, label: Box<[u8]>) {
        let children = &mut self.nodes[parent].children;
        let at = children.partition_point(|(other, _)| *other < label[0]);
        children.insert(at, (label[0], node));
        self.nodes[node].parent = parent;
        self.nodes[node].label = label;
    }

    /// Returns the whole prefix of a node.
    fn topic(&self, mut node: usize) -> Vec<u8> {
        let mut labels = Vec::new();
        while node != ROOT {
            labels.push(&*self.nodes[node].label);
            node = self.nodes[node].parent;
        }
        labels.reverse();
        labels.concat()
    }
}

#[cfg(test)]
mod tests;
