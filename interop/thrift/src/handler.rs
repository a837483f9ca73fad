//! The service of the test server: most methods return their argument.

use crate::generated::thrift::test::{
    CrazyNesting, Defaults, Insanity, Numberz, SecondService, SomeUnion, ThriftTest, Tree, Xception,
    Xception2, Xtruct, Xtruct2,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicI32, Ordering},
};
use switchboard::{
    Cx, Result, Status,
    codec::thrift::{Double, Uuid},
    codegen::Bytes,
};

/// Handles `ThriftTest`.
#[derive(Debug, Default)]
pub struct Answers {
    oneway: AtomicI32,
}

/// Handles `SecondService`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second;

impl ThriftTest for Answers {
    async fn ping(&self, text: String, _cx: &Cx) -> Result<String> {
        Ok(format!("pong: {text}"))
    }

    async fn test_void(&self, _cx: &Cx) -> Result<()> {
        Ok(())
    }

    async fn test_string(&self, thing: String, cx: &Cx) -> Result<String> {
        if let Some(tenant) = cx.metadata().text("tenant") {
            cx.reply_metadata("served-for", tenant.to_owned())?;
        }
        Ok(thing)
    }

    async fn test_bool(&self, thing: bool, _cx: &Cx) -> Result<bool> {
        Ok(thing)
    }

    async fn test_byte(&self, thing: i8, _cx: &Cx) -> Result<i8> {
        Ok(thing)
    }

    async fn test_i32(&self, thing: i32, _cx: &Cx) -> Result<i32> {
        Ok(thing)
    }

    async fn test_i64(&self, thing: i64, _cx: &Cx) -> Result<i64> {
        Ok(thing)
    }

    async fn test_double(&self, thing: f64, _cx: &Cx) -> Result<f64> {
        Ok(thing)
    }

    async fn test_binary(&self, thing: Bytes, _cx: &Cx) -> Result<Bytes> {
        Ok(thing)
    }

    async fn test_uuid(&self, thing: Uuid, _cx: &Cx) -> Result<Uuid> {
        Ok(thing)
    }

    async fn test_struct(&self, thing: Xtruct, _cx: &Cx) -> Result<Xtruct> {
        Ok(thing)
    }

    async fn test_nest(&self, thing: Xtruct2, _cx: &Cx) -> Result<Xtruct2> {
        Ok(thing)
    }

    async fn test_map(&self, thing: BTreeMap<i32, i32>, _cx: &Cx) -> Result<BTreeMap<i32, i32>> {
        Ok(thing)
    }

    async fn test_string_map(
        &self,
        thing: BTreeMap<String, String>,
        _cx: &Cx,
    ) -> Result<BTreeMap<String, String>> {
        Ok(thing)
    }

    async fn test_set(&self, thing: BTreeSet<i32>, _cx: &Cx) -> Result<BTreeSet<i32>> {
        Ok(thing)
    }

    async fn test_list(&self, thing: Vec<i32>, _cx: &Cx) -> Result<Vec<i32>> {
        Ok(thing)
    }

    async fn test_enum(&self, thing: Numberz, _cx: &Cx) -> Result<Numberz> {
        Ok(thing)
    }

    async fn test_typedef(&self, thing: i64, _cx: &Cx) -> Result<i64> {
        Ok(thing)
    }

    /// Returns the same two maps for every argument.
    async fn test_map_map(&self, _hello: i32, _cx: &Cx) -> Result<BTreeMap<i32, BTreeMap<i32, i32>>> {
        let four = |sign: i32| (1..5).map(|n| (n * sign, n * sign)).collect();
        Ok(BTreeMap::from([(-4, four(-1)), (4, four(1))]))
    }

    async fn test_insanity(
        &self,
        argument: Insanity,
        _cx: &Cx,
    ) -> Result<BTreeMap<i64, BTreeMap<Numberz, Insanity>>> {
        let first = BTreeMap::from([(Numberz::TWO, argument.clone()), (Numberz::THREE, argument)]);
        let second = BTreeMap::from([(Numberz::SIX, Insanity::default())]);
        Ok(BTreeMap::from([(1, first), (2, second)]))
    }

    async fn test_multi(
        &self,
        arg0: i8,
        arg1: i32,
        arg2: i64,
        _arg3: BTreeMap<i16, String>,
        _arg4: Numberz,
        _arg5: i64,
        _cx: &Cx,
    ) -> Result<Xtruct> {
        Ok(Xtruct { string_thing: "Hello2".to_owned(), byte_thing: arg0, i32_thing: arg1, i64_thing: arg2 })
    }

    async fn test_exception(&self, arg: String, _cx: &Cx) -> Result<()> {
        match arg.as_str() {
            "Xception" => Err(Xception { error_code: 1001, message: arg }.into()),
            "TException" => Err(Status::not_found("an undeclared error")),
            "panic" => panic!("as requested"),
            _ => Ok(()),
        }
    }

    async fn test_multi_exception(&self, arg0: String, arg1: String, _cx: &Cx) -> Result<Xtruct> {
        match arg0.as_str() {
            "Xception" => {
                let message = "This is an Xception".to_owned();
                Err(Xception { error_code: 1001, message }.into())
            }
            "Xception2" => {
                let string_thing = "This is an Xception2".to_owned();
                let struct_thing = Xtruct { string_thing, ..Xtruct::default() };
                Err(Xception2 { error_code: 2002, struct_thing }.into())
            }
            _ => Ok(Xtruct { string_thing: arg1, ..Xtruct::default() }),
        }
    }

    async fn test_oneway(&self, _seconds_to_sleep: i32, _cx: &Cx) -> Result<()> {
        self.oneway.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn test_nesting(&self, thing: CrazyNesting, _cx: &Cx) -> Result<CrazyNesting> {
        Ok(thing)
    }

    async fn test_union(&self, thing: SomeUnion, _cx: &Cx) -> Result<SomeUnion> {
        Ok(thing)
    }

    async fn test_tree(&self, thing: Tree, _cx: &Cx) -> Result<Tree> {
        Ok(thing)
    }

    async fn test_defaults(&self, mut thing: Defaults, _cx: &Cx) -> Result<Defaults> {
        thing.doubles.insert(Double(-0.0));
        Ok(thing)
    }

    async fn count_oneway(&self, _cx: &Cx) -> Result<i32> {
        Ok(self.oneway.load(Ordering::SeqCst))
    }
}

impl SecondService for Second {
    async fn secondtest_string(&self, thing: String, _cx: &Cx) -> Result<String> {
        Ok(format!("testString(\"{thing}\")"))
    }

    async fn test_string(&self, thing: String, _cx: &Cx) -> Result<String> {
        Ok(format!("second {thing}"))
    }
}
