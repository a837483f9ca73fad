//! Random messages of any type, written and read for people and for programs.

use super::*;
use switchboard_build::flatbuffers_interface::Base;

/// Pseudo-random numbers from a seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = self.0 ^ (self.0 >> 29);
        mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ (mixed >> 32)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.roll() >> 11) as usize % end
    }

    /// Returns a value of a table, in the form of generated code; deeper values have fewer fields.
    pub(super) fn table(&mut self, interface: &Interface, at: usize, depth: usize) -> Value {
        let mut object = serde_json::Map::new();
        for field in &interface.tables[at].fields {
            if field.required || (depth < 4 && self.below(3) > 0) {
                object.insert(field.name.clone(), self.value(interface, &field.ty, depth));
            }
        }
        object.into()
    }

    fn value(&mut self, interface: &Interface, ty: &Type, depth: usize) -> Value {
        match ty {
            Type::Array(item, len) => (0..*len).map(|_| self.value(interface, item, depth)).collect(),
            Type::Base(base) => self.number(*base),
            Type::Enum(at) => {
                let item = &interface.enums[*at];
                match self.below(2) {
                    0 => item.members[self.below(item.members.len())].1.into(),
                    _ => self.number(item.base),
                }
            }
            Type::String => ["", "a", "h\u{e4}\"y\n", "\u{1f600}\0"][self.below(4)].into(),
            Type::Struct(at) => {
                let fields = interface.structs[*at].fields.iter();
                let fields =
                    fields.map(|field| (field.name.clone(), self.value(interface, &field.ty, depth)));
                Value::Object(fields.collect())
            }
            Type::Table(at) => self.table(interface, *at, depth + 1),
            Type::Union(at) => {
                let members = &interface.unions[*at].members;
                let member = &members[self.below(members.len())];
                json!({ member.variant.as_str(): self.table(interface, member.table, depth + 1) })
            }
            Type::Vector(item) => {
                let len = self.below(4);
                (0..len).map(|_| self.value(interface, item, depth)).collect()
            }
        }
    }

    fn number(&mut self, base: Base) -> Value {
        let any = self.roll();
        // The ends of the range are as frequent as the values between.
        let end = self.below(4);
        macro_rules! whole {
            ($number:ty) => {
                [<$number>::MIN, <$number>::MAX, any as $number, any as $number & 7][end].into()
            };
        }
        match base {
            Base::Bool => (any & 1 == 1).into(),
            Base::I8 => whole!(i8),
            Base::I16 => whole!(i16),
            Base::I32 => whole!(i32),
            Base::I64 => whole!(i64),
            Base::U8 => whole!(u8),
            Base::U16 => whole!(u16),
            Base::U32 => whole!(u32),
            Base::U64 => whole!(u64),
            Base::F32 => real(f32::from_bits(any as u32).into(), &f32::from_bits(any as u32).to_string()),
            Base::F64 => real(f64::from_bits(any), &f64::from_bits(any).to_string()),
        }
    }
}

/// Returns a number as it is read; 32-bit numbers differ from 64-bit numbers.
fn real(wide: f64, short: &str) -> Value {
    crate::call::json::name_of_double(wide).map_or_else(|| short.parse::<f64>().unwrap().into(), Value::from)
}

#[test]
fn any_message_of_any_type_is_the_same_behind_both_looks() {
    let procedure = kinds();
    let root = procedure.request();
    let read = |bytes: &[u8], look| -> Value {
        serde_json::from_str(&root.read(bytes, look, usize::MAX).unwrap()).unwrap()
    };
    for seed in 0..300 {
        let value = Dice(seed).table(root.interface, root.table, 0);
        let bytes = root.write(&value, For::People, usize::MAX).unwrap_or_else(|why| panic!("{seed}: {why}"));
        let programs = read(&bytes, Look::for_programs());
        // The written values are read, and besides them defaults and empty vectors.
        assert!(has_all_of(&programs, &value), "{seed}: {value} is read as {programs}");
        for look in [Look::for_programs(), COMPACT, Look::for_people(false, true), Look::for_protobuf()] {
            let shown = read(&bytes, look);
            let again = root
                .write(&shown, For::People, usize::MAX)
                .unwrap_or_else(|why| panic!("{seed}: {why}: {shown}"));
            assert_eq!(read(&again, Look::for_programs()), programs, "{seed} {look:?}");
        }
    }
}

/// Returns whether a value contains everything that another one contains.
fn has_all_of(value: &Value, said: &Value) -> bool {
    match (value, said) {
        (Value::Object(value), Value::Object(said)) => {
            said.iter().all(|(name, said)| value.get(name).is_some_and(|value| has_all_of(value, said)))
        }
        (Value::Array(value), Value::Array(said)) => {
            value.len() == said.len() && value.iter().zip(said).all(|(value, said)| has_all_of(value, said))
        }
        _ => value == said,
    }
}

#[test]
fn programs_have_defaults_numbers_and_variants() {
    let root = kinds().request().interface.clone();
    assert_eq!(root.unions[0].members[1].variant, "TwoLeaves");
    let kinds = kinds();
    let read = |value: &Value| -> Value {
        let bytes = kinds.request().write(value, For::People, usize::MAX).unwrap();
        serde_json::from_str(&kinds.request().read(&bytes, Look::for_programs(), usize::MAX).unwrap())
            .unwrap()
    };
    let leaf = json!({"text": "x", "count": 255});
    let value = read(&json!({
        "small": "Low", "bits": "A C", "either_type": "two_leaves", "either": {"left": {"text": "x"}},
        "eithers": [{"Leaf_again": {"text": "x"}}, {"LeafAgain": {"text": "x"}}], "u8s": "AP8=", "no_b": null,
    }));
    assert_eq!(value["either"], json!({"TwoLeaves": {"left": leaf}}));
    assert_eq!(value["eithers"], json!([{"LeafAgain": leaf}, {"LeafAgain": leaf}]));
    let numbers = [&value["small"], &value["bits"], &value["u8s"], &value["i16"], &value["f32"]];
    assert_eq!(json!(numbers), json!([-128, 2_147_483_649_u64, [0, 255], 300, 0.1]));
    assert_eq!((&value["texts"], value.get("text"), value.get("no_b")), (&json!([]), None, None));
    // Generated code omits empty vectors.
    let empty = json!({"texts": [], "u8s": [], "eithers": [], "eithers_type": []});
    let bytes = kinds.request().write(&empty, For::Programs, usize::MAX).unwrap();
    assert_eq!(kinds.request().read(&bytes, COMPACT, usize::MAX).unwrap(), "{}");
    let bytes = kinds.request().write(&json!({"eithers": []}), For::People, usize::MAX).unwrap();
    let text = kinds.request().read(&bytes, COMPACT, usize::MAX).unwrap();
    assert_eq!(text, r#"{"eithers_type":[],"eithers":[]}"#);
    // Unknown members are omitted for programs.
    let mut bytes = kinds
        .request()
        .write(
            &json!({"eithers": [{"Leaf": {"text": "a"}}, {"Leaf": {"text": "b"}}]}),
            For::People,
            usize::MAX,
        )
        .unwrap()
        .to_vec();
    let tags = bytes.windows(6).position(|window| window == [2, 0, 0, 0, 1, 1]).unwrap();
    bytes[tags + 4] = 9;
    let text = kinds.request().read(&bytes, Look::for_programs(), usize::MAX).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap()["eithers"],
        json!([{"Leaf": {"text": "b", "count": 255}}])
    );
}
