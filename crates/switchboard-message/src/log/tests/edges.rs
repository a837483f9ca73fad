//! Cases at the edges: other shards, positions from outside, members that left.

use super::*;

#[test]
fn a_start_after_any_offset_is_a_gap() {
    let fixture = log(&[]);
    let _keeper = fixture.subscribe("t", Start::Head);
    let first = fixture.publish("t", "1");
    for offset in [u64::MAX, u64::MAX - 1, u64::MAX] {
        let subscriber = fixture.subscribe("t", Start::After(Position { offset, ..first }));
        let gap = &subscriber.gaps[0];
        assert_eq!((gap.reason, gap.range.start, gap.missing), (GapReason::Lost, 2, Some(gap.range.end - 2)));
    }
    fixture.publish("t", "2");
}
