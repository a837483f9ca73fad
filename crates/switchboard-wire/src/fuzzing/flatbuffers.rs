//! FlatBuffers messages.

use super::Choices;
use crate::flatbuffers::{
    DEPTH_MAX, read,
    sample::{Either, Node},
    write,
};

/// Checks that a written message is read unchanged, that a message that can be read is written so that it reads the
/// same, and that no bytes cause a panic.
///
/// # Panics
/// If the property does not hold.
pub fn flatbuffers_message(data: &[u8]) {
    let mut choices = Choices::new(data);
    let tree = node(&mut choices, DEPTH_MAX);
    let mut bytes = write(&tree);
    assert_eq!(read::<Node>(&bytes).as_ref(), Ok(&tree));
    for _ in 0..=choices.byte() % 4 {
        let at = usize::from(choices.short()) % bytes.len();
        bytes[at] ^= choices.byte();
    }
    survives(&bytes);
    survives(choices.rest());
}

fn survives(bytes: &[u8]) {
    let Ok(mut message) = read::<Node>(bytes) else { return };
    // NaN is not equal to itself.
    clear(&mut message);
    let again = write(&message);
    // A value that several offsets referred to is now written several times, and may exceed the limit.
    if let Ok(back) = read::<Node>(&again) {
        assert_eq!(back, message);
    }
}

fn clear(node: &mut Node) {
    node.wide = if node.wide.is_nan() { 0.0 } else { node.wide };
    node.next.iter_mut().for_each(|next| clear(next));
    node.children.iter_mut().for_each(clear);
    node.some.iter_mut().for_each(|Either::Node(node)| clear(node));
}

fn node(choices: &mut Choices<'_>, depth: u32) -> Node {
    let mut node = Node { number: choices.short().cast_signed(), ..Node::default() };
    if choices.one_in(2) {
        node.name = Some(String::from_utf8_lossy(choices.bytes(20)).into_owned());
    }
    if choices.one_in(3) {
        node.bytes = choices.bytes(20).to_vec();
    }
    if choices.one_in(3) {
        node.wide = f64::from(choices.long());
    }
    if depth > 1 && choices.one_in(2) {
        node.next = Some(Box::new(self::node(choices, depth - 1)));
    }
    if depth > 1 && choices.one_in(3) {
        node.children = (0..choices.byte() % 4).map(|_| self::node(choices, depth - 1)).collect();
    }
    if depth > 1 && choices.one_in(3) {
        let count = choices.byte() % 4;
        node.some = (0..count).map(|_| Either::Node(Box::new(self::node(choices, depth - 1)))).collect();
    }
    node
}
