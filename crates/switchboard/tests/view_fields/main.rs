//! Views that read their fields in the order of their numbers give the same as buffa's loop, for any bytes.

#![allow(clippy::unwrap_used)]

mod generated {
    #[allow(clippy::all, missing_docs, unreachable_pub, unused_imports, rustdoc::all)]
    pub(crate) mod every {
        include!("generated/every.v1.rs");
    }
    #[allow(clippy::all, missing_docs, unreachable_pub, unused_imports, rustdoc::all)]
    pub(crate) mod old {
        include!("generated/old.v1.rs");
    }
}

use generated::{
    every::{__buffa::view as every_view, Color, Every, Lists, Two},
    old::{__buffa::view as old_view, Old},
};
use std::{cell::Cell, fmt::Debug};
use switchboard::{
    Codec,
    codegen::{
        Bytes,
        buffa::{DecodeContext, DecodeError, Message, MessageView, encoding::Tag},
        codec::proto,
    },
};

/// Reads a view by buffa's loop.
fn by_loop<'a, V: MessageView<'a> + Default>(bytes: &'a [u8]) -> Result<V, DecodeError> {
    let (unknown, elements) = (Cell::new(1_000_000), Cell::new(64 << 20));
    let ctx = DecodeContext::new(100, &unknown).with_element_memory(&elements);
    let (mut view, mut cur) = (V::default(), bytes);
    while !cur.is_empty() {
        let before_tag = cur;
        let tag = Tag::decode(&mut cur)?;
        cur = view.merge_view_field(tag, cur, before_tag, ctx)?;
    }
    Ok(view)
}

/// Compares the view that `V` reads in the order of its fields with the one that the loop reads.
fn same<'a, V: MessageView<'a> + Default + Debug>(bytes: &'a [u8]) {
    let shown = |read: Result<V, DecodeError>| read.map(|view| format!("{view:?}"));
    assert_eq!(shown(V::decode_view(bytes)), shown(by_loop(bytes)), "{bytes:02x?}");
}

fn all_same(bytes: &[u8]) {
    same::<every_view::EveryView<'_>>(bytes);
    same::<every_view::TwoView<'_>>(bytes);
    same::<every_view::ListsView<'_>>(bytes);
    same::<every_view::EmptyView<'_>>(bytes);
    same::<old_view::OldView<'_>>(bytes);
}

fn two(name: &str) -> Two {
    Two { name: name.into(), age: 7, city: "Z\u{fc}rich".into(), ..Two::default() }
}

fn every() -> Every {
    let simple = Every {
        first: "\u{8bb8}\u{591a}\u{5f80}\u{4e8b}".into(),
        flag: true,
        small: -1,
        wide: Some(i64::MIN),
        count: u32::MAX,
        total: u64::MAX,
        delta: i32::MIN,
        shift: -3,
        hash: 1,
        key: 2,
        left: -4,
        right: Some(-5),
        ratio: 1.5,
        exact: -2.5,
        blob: Bytes::from_static(b"\xff\x00"),
        second: Some("x".repeat(260)),
        third: String::from("third"),
        fourth: "\u{1f600}".repeat(5),
        far: Some(Bytes::from_static(b"far")),
        last: "last".into(),
        ..Every::default()
    };
    let inner = Every { first: "i".into(), third: "\u{e9}".into(), ..Every::default() };
    let mut whole = simple;
    whole.numbers = vec![1, -1, i32::MAX];
    whole.names = vec!["a".into(), String::new(), "\u{e9}".into()];
    whole.inner = Some(inner.clone()).into();
    whole.items = vec![inner.clone(), Every::default(), inner];
    whole.color = Color::COLOR_RED.into();
    whole.totals.insert("k".into(), 3);
    whole.choice = Some(generated::every::__buffa::oneof::every::Choice::Text("t".into()));
    whole
}

fn old() -> Vec<u8> {
    let message = Old {
        name: "name".into(),
        age: 3,
        city: Some("Gen\u{e8}ve".into()),
        keys: vec![1, 2],
        note: Some("n".into()),
        flag: Some(false),
        ..Old::default()
    };
    message.encode_to_vec()
}

/// Messages, valid and in many wrong forms: each is the start of many more.
fn samples() -> Vec<Vec<u8>> {
    let lists = Lists { people: vec![two("a"), two("")], weights: vec![0.5], ..Lists::default() };
    let whole = every().encode_to_vec();
    let reversed = [&Every { last: "z".into(), ..Every::default() }.encode_to_vec()[..], &whole].concat();
    let group = [&old()[..], b"\x23\x28\x07\x32\x01\xff\x24", b"\x4a\x01b"].concat();
    let unknown = [&two("x").encode_to_vec()[..], b"\xf8\x7f\x01", &two("y").encode_to_vec()].concat();
    let invalid = b"\x0a\x02\xe4\xb8\x12\x01a\x1a\x01\xad".to_vec();
    vec![
        Vec::new(),
        whole.clone(),
        reversed,
        Every { second: Some(String::new()), ..Every::default() }.encode_to_vec(),
        lists.encode_to_vec(),
        two("\u{4e00}").encode_to_vec(),
        old(),
        group,
        unknown,
        invalid,
    ]
}

#[test]
fn every_prefix_of_a_message_is_read_as_the_loop_reads_it() {
    for sample in samples() {
        for end in 0..=sample.len() {
            all_same(&sample[..end]);
        }
    }
}

#[test]
fn every_changed_byte_is_read_as_the_loop_reads_it() {
    for sample in samples() {
        for (at, &byte) in sample.iter().enumerate() {
            for other in [0x80, 0xff, byte ^ 1, byte ^ 8] {
                let mut changed = sample.clone();
                changed[at] = other;
                all_same(&changed);
            }
        }
    }
}

#[test]
fn fields_of_any_order_and_number_are_read_as_the_loop_reads_them() {
    // A linear congruential generator: the same messages in each run.
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let fields = [
        &b"\x0a\x01a"[..],
        b"\x10\x01",
        b"\x18\xac\x02",
        b"\x1a\x02\xc3\xa9",
        b"\x20\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x82\x01\x01b",
        b"\x8a\x01\x02\x05\x06",
        b"\x88\x01\x07",
        b"\x92\x01\x01c",
        b"\x9a\x01\x03\x0a\x01d",
        b"\xa2\x01\x02\x0a\x00",
        b"\xf2\x01\x02\xe4\xb8",
        b"\xfa\x01\x01e",
        b"\xc2\xbb\x01\x01f",
        b"\xca\xbb\x01\x01g",
        b"\xff",
    ];
    for _ in 0..20_000 {
        let len = next(12);
        let bytes: Vec<u8> = (0..len).flat_map(|_| fields[next(fields.len())]).copied().collect();
        all_same(&bytes);
    }
}

#[test]
fn a_view_has_what_the_message_has() {
    let (message, bytes) = (every(), every().encode_to_vec());
    let view = proto::view::<every_view::EveryView<'_>>(&bytes).unwrap();
    assert_eq!(view.to_owned_message().unwrap(), message);
    assert_eq!(view.second.map(str::len), Some(260));
    assert_eq!(proto::decode::<Every>(Codec::Proto, bytes.into()).unwrap(), message);
}

#[test]
fn a_required_field_is_seen() {
    let bytes = old();
    let view = proto::view::<old_view::OldView<'_>>(&bytes).unwrap();
    assert!(view.has_name() && view.has_age() && view.has_blob());
    let view = proto::view::<old_view::OldView<'_>>(b"\x10\x05").unwrap();
    assert!(!view.has_name() && view.has_age());
}

#[test]
fn errors_name_the_field_although_texts_are_checked_together() {
    for (bytes, place) in [
        (&b"\x0a\x01a\x82\x01\x01\xff\xf2\x01\x01b"[..], "field 16 at byte 3"),
        (b"\x0a\x01a\xf2\x01\x01b\xfa\x01\x01\xff", "field 31 at byte 7"),
        // The text comes before the truncated field.
        (b"\x0a\x01\xff\xfa\x01\x05b", "field 1 at byte 0"),
    ] {
        let Err(status) = proto::view::<every_view::EveryView<'_>>(bytes) else { panic!("{bytes:02x?}") };
        assert!(status.message().contains(place), "{status}");
    }
}
