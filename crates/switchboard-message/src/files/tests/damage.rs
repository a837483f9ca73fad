//! Segments that were cut off, and damaged ones.

use super::*;
use crate::{
    bus::Bus,
    files::{
        log_segment,
        segment::{End, HEAD_BYTES},
    },
    log::{GapReason, Storage, TopicOptions},
};
use std::time::Duration;

fn open(folder: &TestFolder) -> Result<Bus> {
    let options = TopicOptions::new().history(100, Duration::MAX);
    let builder = Bus::builder().topics("file/>", options.storage(Storage::File))?;
    builder.topics("synced/>", options.storage(Storage::Synced))?.open(FileOptions::new(folder.path()))
}

fn offsets(bytes: &[u8], number: u64) -> (Vec<u64>, usize, End) {
    let mut offsets = Vec::new();
    let (whole, end) = segment::read(bytes, number, |record| match record {
        record::Record::Entry(entry) => {
            assert_eq!(
                (entry.entry.bytes(), entry.time),
                (&Bytes::from("abc"), 1_000 + entry.position.offset)
            );
            assert_eq!(entry.entry.headers().text("source"), Some("abc"));
            offsets.push(entry.position.offset);
        }
        other => panic!("{other:?}"),
    });
    (offsets, whole, end)
}

#[test]
fn a_segment_that_is_cut_anywhere_has_its_whole_batches() {
    let (bytes, ends) = ten_entries(3);
    for length in 0..=bytes.len() {
        let (offsets, whole, end) = offsets(&bytes[..length], 3);
        let whole_records = ends.iter().filter(|end| **end <= length).count();
        // The last three records are one batch.
        let expected = if (7..10).contains(&whole_records) { 7 } else { whole_records };
        assert_eq!(offsets, (1..=expected as u64).collect::<Vec<_>>(), "{length}");
        let last = if expected == 0 { HEAD_BYTES } else { ends[expected - 1] };
        assert_eq!(whole, if length < HEAD_BYTES { 0 } else { last }, "{length}");
        assert_eq!(end, if whole == length && length > 0 { End::Complete } else { End::Torn }, "{length}");
    }
}

#[test]
fn a_damaged_byte_anywhere_is_noticed() {
    let (bytes, ends) = ten_entries(3);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let (offsets, _, end) = offsets(&damaged, 3);
        let before = ends.iter().filter(|end| **end <= at).count();
        let before = if at < HEAD_BYTES { 0 } else { before.min(7) };
        assert_eq!(offsets, (1..=before as u64).collect::<Vec<_>>(), "{at}");
        assert_eq!(end, End::Damaged, "{at}");
    }
    assert_eq!(offsets(&bytes, 4).2, End::Damaged, "another number");
}

#[test]
fn zeros_at_the_end_are_a_cut() {
    let (mut bytes, ends) = ten_entries(3);
    bytes.resize(bytes.len() + 5_000, 0);
    let (offsets, whole, end) = offsets(&bytes, 3);
    assert_eq!((offsets.len(), whole, end), (10, ends[9], End::Torn));
}

/// Writes a segment into a folder whose last bus was killed.
fn killed(folder: &TestFolder, number: u64, bytes: &[u8]) {
    drop(open(folder).unwrap());
    let locked = Folder::lock(folder.path()).unwrap();
    locked.begin().unwrap();
    for old in locked.segments().unwrap() {
        fs::remove_file(locked.segment(old)).unwrap();
    }
    fs::remove_file(folder.path().join("topics")).unwrap();
    fs::write(locked.segment(number), bytes).unwrap();
}

async fn received(bus: &Bus) -> Vec<u64> {
    let page = bus.history_with("file/a", |_, bytes| Ok(bytes)).await.unwrap();
    let offset = |delivery: &crate::Delivery<Bytes>| match delivery {
        crate::Delivery::Entry(entry) => entry.position().offset,
        other => panic!("{other:?}"),
    };
    page.deliveries.iter().map(offset).collect()
}

#[tokio::test]
async fn a_cut_at_each_byte_leaves_a_log_that_continues() {
    let (bytes, ends) = ten_entries(1);
    let folder = TestFolder::new("cut");
    // Cuts inside of a record are alike for a folder; `segment::read` is tested with each byte above.
    let borders = [0, HEAD_BYTES].into_iter().chain(ends.iter().copied());
    for length in borders.flat_map(|end| [end, end + 1, end + 12]).filter(|length| *length <= bytes.len()) {
        killed(&folder, 1, &bytes[..length]);
        let whole = ends.iter().filter(|end| **end <= length).count();
        let expected = if (7..10).contains(&whole) { 7 } else { whole } as u64;
        let bus = open(&folder).unwrap();
        if expected > 0 {
            assert_eq!(received(&bus).await, (1..=expected).collect::<Vec<_>>(), "{length}");
            let head = bus.topic_stats("file/a").unwrap().head;
            assert_eq!(head, Position { epoch: 7, offset: expected }, "{length}: the epoch stays");
        } else {
            assert!(bus.topic_stats("file/a").is_none());
        }
        assert_eq!(bus.publish("file/a", &1).await.unwrap().offset, expected + 1);
    }
}

#[tokio::test]
async fn damage_in_the_middle_begins_new_epochs() {
    let (bytes, ends) = ten_entries(1);
    let folder = TestFolder::new("middle");
    for at in [0, 20, ends[0] + 3, ends[0] + 9, ends[3] + 40, ends[9] - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        killed(&folder, 1, &damaged);
        let before = ends.iter().filter(|end| **end <= at).count().min(7) as u64;
        let mut known = None;
        for _ in 0..2 {
            let bus = open(&folder).unwrap();
            if before == 0 {
                assert!(bus.topic_stats("file/a").is_none(), "{at}");
                continue;
            }
            assert_eq!(received(&bus).await, (1..=before).collect::<Vec<_>>(), "{at}");
            let head = bus.topic_stats("file/a").unwrap().head;
            assert_ne!(head.epoch, 7, "{at}");
            assert_eq!(*known.get_or_insert(head), head, "{at}: once");
            let mut reader =
                bus.subscribe::<u64>("file/a").after(Position { epoch: 7, offset: 9 }).await.unwrap();
            let gap = reader.next().await.unwrap();
            assert!(
                matches!(&gap, Some(crate::Delivery::Gap(gap)) if gap.reason == GapReason::Epoch),
                "{gap:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_hole_between_segments_is_a_gap() {
    let folder = TestFolder::new("hole");
    let (bytes, _) = ten_entries(1);
    let mut damaged = bytes.clone();
    let middle = bytes.len() / 2;
    damaged[middle] ^= 1;
    killed(&folder, 1, &damaged);
    let mut second = segment::head(2).to_vec();
    for offset in 11..=12 {
        let position = Position { epoch: 7, offset };
        record::write_entry(&mut second, &topic("file/a"), position, 2_000 + offset, &entry("abc"), false);
    }
    fs::write(folder.path().join(format!("{:020}.log", 2)), second).unwrap();
    let bus = open(&folder).unwrap();
    let mut reader = bus.subscribe_with("file/a", |_, bytes| Ok(bytes)).last(100).await.unwrap();
    let mut seen = Vec::new();
    loop {
        match reader.next().await.unwrap().unwrap() {
            crate::Delivery::Entry(entry) => seen.push(entry.position().offset),
            crate::Delivery::Gap(gap) => {
                assert_eq!((gap.range.clone(), gap.missing), (5..11, Some(6)), "{gap:?}");
                seen.push(0);
            }
            crate::Delivery::Recovered => {}
        }
        if seen.last() == Some(&12) {
            break;
        }
    }
    assert_eq!(seen, [1, 2, 3, 4, 0, 11, 12]);
    assert_ne!(bus.topic_stats("file/a").unwrap().head.epoch, 7);
}

#[tokio::test]
async fn a_missing_or_shortened_segment_begins_new_epochs() {
    for case in ["missing", "shortened", "topics"] {
        let folder = TestFolder::new(case);
        let options = TopicOptions::new().history(1_000, Duration::MAX).storage(Storage::Synced);
        let open = || {
            let mut files = FileOptions::new(folder.path());
            files.segment_bytes = 4 << 10;
            Bus::builder().topics("synced/>", options)?.open(files)
        };
        let bus = open().unwrap();
        let mut last = Position::default();
        for number in 0..300 {
            last = bus.publish("synced/a", &number).await.unwrap();
        }
        drop(bus);
        let segment = |number: u64| folder.path().join(format!("{number:020}.log"));
        match case {
            "missing" => fs::remove_file(segment(2)).unwrap(),
            "shortened" => {
                let newest = (1..).take_while(|number| segment(*number).exists()).last().unwrap();
                let bytes = fs::read(segment(newest)).unwrap();
                fs::write(segment(newest), &bytes[..HEAD_BYTES]).unwrap();
            }
            _ => fs::write(folder.path().join("topics"), "not a file of topics").unwrap(),
        }
        let bus = open().unwrap();
        let head = bus.topic_stats("synced/a").unwrap().head;
        assert_ne!(head.epoch, last.epoch, "{case}");
        drop(bus);
        assert_eq!(open().unwrap().topic_stats("synced/a").unwrap().head, head, "{case}: once");
    }
}

#[test]
fn the_inputs_of_the_fuzz_target_hold() {
    let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/log_segment"));
    let inputs: Vec<_> = fs::read_dir(corpus).unwrap().collect();
    assert!(inputs.len() >= 4, "{}", inputs.len());
    for input in inputs {
        log_segment(&fs::read(input.unwrap().path()).unwrap());
    }
}

/// Any bytes: the readers do not panic, and records that they find are written as they were read.
#[test]
fn any_bytes_are_read() {
    let mut random = fastrand::Rng::with_seed(7);
    let (sample, _) = ten_entries(1);
    for _ in 0..20_000 {
        let mut bytes = sample.clone();
        for _ in 0..random.usize(1..5) {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(0..=bytes.len()));
        log_segment(&bytes);
        let noise: Vec<u8> = (0..random.usize(0..64)).map(|_| random.u8(..)).collect();
        log_segment(&noise);
    }
}
