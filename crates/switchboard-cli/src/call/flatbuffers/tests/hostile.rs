//! Malicious messages, and JSON that would grow without limit.

use super::{both_ways::Dice, *};
use switchboard_wire::flatbuffers::Writer;

#[test]
fn bytes_that_were_changed_are_refused_or_read_the_same_again() {
    let procedure = kinds();
    let root = procedure.request();
    let (mut read, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let value = dice.table(root.interface, root.table, 1);
        let good = root.write(&value, For::People, usize::MAX).unwrap();
        for _ in 0..60 {
            let mut bad = good.to_vec();
            for _ in 0..=dice.below(3) {
                let at = dice.below(bad.len());
                bad[at] = [0, 1, 4, 0x7F, 0x80, 0xFF, dice.roll() as u8][dice.below(7)];
            }
            bad.truncate(bad.len() - dice.below(4) * dice.below(bad.len() / 4 + 1));
            let Ok(text) = root.read(&bad, Look::for_programs(), 1 << 20) else {
                refused += 1;
                continue;
            };
            let value: Value = serde_json::from_str(&text).unwrap();
            match root.write(&value, For::People, 1 << 22) {
                Ok(again) => {
                    let again = root.read(&again, Look::for_programs(), 1 << 22).unwrap();
                    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), value, "{seed}: {bad:?}");
                    read += 1;
                }
                Err(why) => assert!(why.contains("would exceed"), "{seed}: {why}"),
            }
        }
    }
    assert!(read > 100 && refused > 100, "{read} read and {refused} refused");
}

#[test]
fn every_message_that_ends_early_is_refused() {
    let procedure = kinds();
    let root = procedure.request();
    // Ends with a text: every byte is needed.
    let good = root.write(&json!({"leaf": {"text": "all of it"}}), For::People, usize::MAX).unwrap();
    for end in 0..good.len() - 1 {
        let why = root.read(&good[..end], Look::for_programs(), usize::MAX);
        assert!(why.is_err(), "{end}: {why:?}");
    }
}

#[test]
fn depth_is_limited_both_ways() {
    let procedure = say();
    let deep = |tables: usize| (1..tables).fold(json!({}), |next, _| json!({"next": next}));
    assert!(procedure.write(&deep(64)).is_ok());
    let why = procedure.write(&deep(65)).unwrap_err();
    assert!(why.starts_with("field next.next.") && why.ends_with("deeper than 64 in one another"), "{why}");
    // A list of tables is not deeper than one table.
    assert!(kinds().write(&json!({"leaves": vec![json!({"text": ""}); 100]})).is_ok());

    let root = procedure.request();
    let fields = &root.interface.tables[root.table].fields;
    let next = fields.iter().find(|field| field.name == "next").unwrap().number;
    fn nest(out: &mut Writer, next: usize, tables: usize) -> usize {
        out.begin();
        let slot = out.refer(next, tables > 1);
        let at = out.end();
        if tables > 1 {
            let inner = nest(out, next, tables - 1);
            out.point_at(slot, inner);
        }
        at
    }
    let message =
        |tables| Writer::message(|out| Ok::<_, std::convert::Infallible>(nest(out, next, tables))).unwrap();
    assert!(root.read(&message(64), COMPACT, usize::MAX).is_ok());
    let why = root.read(&message(65), COMPACT, usize::MAX).unwrap_err().to_string();
    assert!(why.starts_with("field next.next.next"), "{why}");
    assert!(why.ends_with(": tables lie deeper than 64 in one another"), "{why}");
}

#[test]
fn json_that_would_be_far_larger_as_a_table_is_refused() {
    let root_of = kinds();
    let root = root_of.request();
    // 64 bytes each, from three.
    let structs = json!({"outers": vec![json!({}); 10_000]});
    for (bytes_max, fits) in [(700_000, true), (100_000, false)] {
        let written = root.write(&structs, For::People, bytes_max);
        assert_eq!(written.is_ok(), fits, "{bytes_max}");
        if let Err(why) = written {
            assert!(why.contains("as FlatBuffers it would exceed 100000 bytes"), "{why}");
        }
    }
    let nexts = json!({"leaves": vec![json!({"text": ""}); 10_000]});
    let why = root.write(&nexts, For::People, 100_000).unwrap_err();
    assert!(why.contains("would exceed 100000 bytes"), "{why}");
}

/// Offsets that lead to the same vector many times.
#[test]
fn omitted_items_count_too() {
    const SHARED: usize = 2_000;
    let procedure = kinds();
    let root = procedure.request();
    let fields = &root.interface.tables[root.table].fields;
    let number = |name: &str| fields.iter().find(|field| field.name == name).unwrap().number;
    let (eithers, next) = (number("eithers"), number("next"));
    // A vector of unknown unions, in a table without other fields.
    let message = Writer::message(|out| {
        let mut tables = Vec::new();
        for _ in 0..40 {
            out.begin();
            let slots = [out.refer(eithers - 1, true), out.refer(eithers, true), out.refer(next, true)];
            tables.push((out.end(), slots));
        }
        out.begin();
        let last = out.end();
        let tags = out.items(SHARED, 1, &[9; SHARED]);
        let values = out.referred_items(SHARED, |out, _| {
            out.begin();
            Ok::<_, std::convert::Infallible>(out.end())
        })?;
        for at in 0..tables.len() {
            let [kinds, unions, inner] = tables[at].1;
            out.point_at(kinds, tags);
            out.point_at(unions, values);
            out.point_at(inner, tables.get(at + 1).map_or(last, |(table, _)| *table));
        }
        Ok::<_, std::convert::Infallible>(tables[0].0)
    })
    .unwrap();
    assert!(root.read(&message, Look::for_programs(), 40 * SHARED + 200_000).is_ok());
    let why = root.read(&message, Look::for_programs(), 40 * SHARED).unwrap_err().to_string();
    assert!(why.contains("would exceed 80000 bytes"), "{why}");
}
