use super::*;

/// Subscriptions as a plain list, which is slow and simple.
#[derive(Default)]
struct Model(BTreeMap<(Vec<u8>, u8), u32>);

impl Model {
    fn has(&self, topic: &[u8]) -> bool {
        self.0.keys().any(|(known, _)| known == topic)
    }

    fn matching(&self, frame: &[u8]) -> Vec<u8> {
        let found = self.0.keys().filter(|(topic, _)| frame.starts_with(topic));
        let mut peers: Vec<u8> = found.map(|(_, peer)| *peer).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    fn topics(&self) -> Vec<Vec<u8>> {
        let mut topics: Vec<_> = self.0.keys().map(|(topic, _)| topic.clone()).collect();
        topics.dedup();
        topics
    }
}

fn matching<P: Copy + Ord>(subscriptions: &Subscriptions<P>, frame: &[u8]) -> Vec<P> {
    let mut peers = Vec::new();
    subscriptions.matching(frame, &mut peers);
    peers
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[test]
fn random_changes_agree_with_a_plain_list() {
    for seed in 0..200 {
        let mut state = seed;
        let (mut trie, mut model) = (Subscriptions::new(1000), Model::default());
        for step in 0..200 {
            // Few letters and short topics, so that prefixes are shared.
            let len = random(&mut state) % 6;
            let topic: Vec<u8> = (0..len).map(|_| b'a' + (random(&mut state) % 3) as u8).collect();
            let peer = (random(&mut state) % 4) as u8;
            match random(&mut state) % 16 {
                0 => {
                    let before = model.topics();
                    model.0.retain(|(_, subscriber), _| *subscriber != peer);
                    let mut ended = trie.remove(peer);
                    ended.sort_unstable();
                    let expected: Vec<_> = before.into_iter().filter(|topic| !model.has(topic)).collect();
                    assert_eq!(ended, expected, "{seed} {step}");
                }
                1..=8 => {
                    let is_first = !model.has(&topic);
                    assert_eq!(trie.subscribe(&topic, peer), Ok(is_first), "{seed} {step}");
                    *model.0.entry((topic.clone(), peer)).or_default() += 1;
                }
                _ => {
                    let key = (topic.clone(), peer);
                    let had = model.0.get_mut(&key).map(|count| *count -= 1).is_some();
                    model.0.retain(|_, count| *count > 0);
                    assert_eq!(trie.cancel(&topic, peer), had && !model.has(&topic), "{seed} {step}");
                }
            }
            let expected = model.matching(&topic);
            assert_eq!(matching(&trie, &topic), expected, "{seed} {step}");
            assert_eq!(trie.matches(&topic), !expected.is_empty());
            assert_eq!(trie.topics(), model.topics(), "{seed} {step}");
            let of_peer = model.0.iter().filter(|((_, subscriber), _)| *subscriber == peer);
            assert_eq!(trie.count(peer), of_peer.map(|(_, count)| count).sum::<u32>());
            check_form(&trie);
        }
        (0..4).for_each(|peer| drop(trie.remove(peer)));
        assert_eq!(trie.nodes.len() - trie.free.len(), 1, "only the root is left");
    }
}

/// Checks that no node is superfluous, and that parents and children agree.
fn check_form(trie: &Subscriptions<u8>) {
    let mut open = vec![ROOT];
    let mut used = 0;
    while let Some(number) = open.pop() {
        used += 1;
        let node = &trie.nodes[number];
        assert!(number == ROOT || !node.peers.is_empty() || node.children.len() > 1);
        for (first, child) in &node.children {
            assert_eq!((trie.nodes[*child].parent, trie.nodes[*child].label[0]), (number, *first));
            open.push(*child);
        }
    }
    assert_eq!(used + trie.free.len(), trie.nodes.len());
}

#[test]
fn subscriptions_are_counted_and_limited() {
    let mut trie = Subscriptions::new(3);
    assert_eq!(trie.subscribe(b"top", 1), Ok(true));
    assert_eq!(trie.subscribe(b"top", 1), Ok(false));
    assert_eq!(trie.subscribe(b"", 1), Ok(true));
    let error = trie.subscribe(b"more", 1).unwrap_err();
    assert_eq!(error.to_string(), "connection has 3 subscriptions; the limit is 3 (subscriptions_max)");
    assert_eq!(trie.subscribe(b"top", 2), Ok(false), "the limit is for each peer");
    assert!(!trie.cancel(b"top", 1) && !trie.cancel(b"never", 1) && !trie.cancel(b"to", 1));
    assert_eq!(matching(&trie, b"topic"), [1, 2]);
    assert!(!trie.cancel(b"top", 1), "of another peer");
    assert_eq!(matching(&trie, b"topic"), [1, 2], "the empty prefix");
    assert!(trie.cancel(b"", 1) && trie.cancel(b"top", 2) && !trie.cancel(b"top", 2));
    assert!(matching(&trie, b"topic").is_empty() && trie.topics().is_empty());
}

#[test]
fn deep_tries_need_no_deep_stack() {
    let topic = vec![b'x'; 2_000];
    let mut trie = Subscriptions::new(u32::MAX);
    for len in (0..topic.len()).rev() {
        trie.subscribe(&topic[..len], ()).unwrap();
    }
    assert_eq!(matching(&trie, &topic), [()]);
    assert_eq!(trie.remove(()).len(), topic.len());
    assert_eq!(trie.nodes.len() - trie.free.len(), 1);
}
