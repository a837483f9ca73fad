//! The cases of Thrift's cross tests, from our client to any server.

use crate::generated::thrift::test::{
    CrazyNesting, Defaults, Insanity, Numberz, SecondServiceClient, SomeUnion, ThriftTestClient, Tree,
    Xception, Xception2, Xtruct, Xtruct2,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};
use switchboard::{
    Code, Result, Status,
    codec::thrift::{Exception, Uuid},
    codegen::Bytes,
};

/// Which of the services the server has under one address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Served {
    /// Methods by their bare names.
    One,
    /// `Service:method`.
    Multiplexed,
}

/// Calls everything, and says how many cases there were.
///
/// # Errors
/// The first answer that is not the expected one.
pub async fn run(url: &str, served: Served) -> Result<usize, String> {
    let url = match served {
        Served::One => url.to_owned(),
        Served::Multiplexed => format!("{url}&multiplexed=true"),
    };
    let client = ThriftTestClient::connect(&url).await.map_err(|status| format!("{url}: {status}"))?;
    let mut cases = Cases { count: 0 };
    numbers(&client, &mut cases).await?;
    containers(&client, &mut cases).await?;
    structs(&client, &mut cases).await?;
    failures(&client, &mut cases).await?;
    if served == Served::Multiplexed {
        let second = SecondServiceClient::new(client.channel().clone());
        cases.same(
            "secondtestString",
            second.secondtest_string("foo".into()).await,
            "testString(\"foo\")".into(),
        )?;
        cases.same("second testString", second.test_string("foo".into()).await, "second foo".into())?;
    }
    Ok(cases.count)
}

struct Cases {
    count: usize,
}

impl Cases {
    fn same<T: Debug + PartialEq>(
        &mut self,
        name: &str,
        answer: Result<switchboard::Response<T>>,
        expected: T,
    ) -> Result<(), String> {
        let answer = answer.map_err(|status| format!("{name}: {status}"))?.into_inner();
        self.holds(name, answer == expected, &(answer, expected))
    }

    fn holds(&mut self, name: &str, holds: bool, seen: &dyn Debug) -> Result<(), String> {
        self.count += 1;
        if holds { Ok(()) } else { Err(format!("{name}: {seen:?}")) }
    }
}

async fn numbers(client: &ThriftTestClient, cases: &mut Cases) -> Result<(), String> {
    cases.same("ping", client.ping("x".into()).await, "pong: x".into())?;
    cases.same("testVoid", client.test_void().await, ())?;
    for text in ["", "Python", "Ελληνικά, 日本語, \" \\ \0", &"x".repeat(100_000)] {
        cases.same("testString", client.test_string(text.to_owned()).await, text.to_owned())?;
    }
    for thing in [true, false] {
        cases.same("testBool", client.test_bool(thing).await, thing)?;
    }
    for thing in [0, 63, i8::MIN, i8::MAX] {
        cases.same("testByte", client.test_byte(thing).await, thing)?;
    }
    for thing in [0, -1, i32::MIN, i32::MAX] {
        cases.same("testI32", client.test_i32(thing).await, thing)?;
    }
    for thing in [1, -34_359_738_368, i64::MIN, i64::MAX] {
        cases.same("testI64", client.test_i64(thing).await, thing)?;
        cases.same("testTypedef", client.test_typedef(thing).await, thing)?;
    }
    for thing in [5.235_098_235, 0.0, -1.5e300, f64::INFINITY] {
        cases.same("testDouble", client.test_double(thing).await, thing)?;
    }
    for thing in [Bytes::new(), Bytes::from_iter(0..=255)] {
        cases.same("testBinary", client.test_binary(thing.clone()).await, thing)?;
    }
    let uuid: Uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f".parse().map_err(|error| format!("{error}"))?;
    cases.same("testUuid", client.test_uuid(uuid).await, uuid)?;
    for thing in [Numberz::FIVE, Numberz(77)] {
        cases.same("testEnum", client.test_enum(thing).await, thing)?;
    }
    Ok(())
}

async fn containers(client: &ThriftTestClient, cases: &mut Cases) -> Result<(), String> {
    for thing in [BTreeMap::from([(0, 1), (-1, i32::MAX)]), BTreeMap::new()] {
        cases.same("testMap", client.test_map(thing.clone()).await, thing)?;
    }
    let texts = BTreeMap::from([("a".to_owned(), "2".to_owned()), (String::new(), "blah".to_owned())]);
    cases.same("testStringMap", client.test_string_map(texts.clone()).await, texts)?;
    for thing in [BTreeSet::from([8, 1, 42]), BTreeSet::new()] {
        cases.same("testSet", client.test_set(thing.clone()).await, thing)?;
    }
    for thing in [vec![1, 4, 9, -42], vec![], (0..100).collect()] {
        cases.same("testList", client.test_list(thing.clone()).await, thing)?;
    }
    let four = |sign: i32| (1..5).map(|n| (n * sign, n * sign)).collect::<BTreeMap<_, _>>();
    let maps = BTreeMap::from([(-4, four(-1)), (4, four(1))]);
    cases.same("testMapMap", client.test_map_map(42).await, maps)
}

fn xtruct(text: &str, number: i8) -> Xtruct {
    let (i32_thing, i64_thing) = (number.into(), number.into());
    Xtruct { string_thing: text.to_owned(), byte_thing: number, i32_thing, i64_thing }
}

async fn structs(client: &ThriftTestClient, cases: &mut Cases) -> Result<(), String> {
    let thing = xtruct("Zero", -3);
    cases.same("testStruct", client.test_struct(thing.clone()).await, thing.clone())?;
    let nest = Xtruct2 { byte_thing: 1, struct_thing: thing.clone(), i32_thing: 5 };
    cases.same("testNest", client.test_nest(nest.clone()).await, nest)?;
    let user_map = BTreeMap::from([(Numberz::ONE, 1), (Numberz::FIVE, 5)]);
    let argument = Insanity { user_map, xtructs: vec![xtruct("Goodbye4", 4), xtruct("Hello2", 2)] };
    let first = BTreeMap::from([(Numberz::TWO, argument.clone()), (Numberz::THREE, argument.clone())]);
    let second = BTreeMap::from([(Numberz::SIX, Insanity::default())]);
    let insane = BTreeMap::from([(1, first), (2, second)]);
    cases.same("testInsanity", client.test_insanity(argument.clone()).await, insane)?;
    let multi = client.test_multi(
        74,
        0x00FF_00FF,
        0x000F_FFFF_FFFF_D0D0,
        BTreeMap::from([(0, "abc".into())]),
        Numberz::FIVE,
        0xF0_F0F0,
    );
    let expected = Xtruct {
        string_thing: "Hello2".into(),
        byte_thing: 74,
        i32_thing: 0x00FF_00FF,
        i64_thing: 0x000F_FFFF_FFFF_D0D0,
    };
    cases.same("testMulti", multi.await, expected)?;
    let nesting = CrazyNesting {
        string_field: "x".into(),
        set_field: Some(BTreeSet::from([argument])),
        list_field: vec![BTreeMap::from([(BTreeSet::from([1, 2]), BTreeMap::new())])],
        binary_field: Bytes::from_static(&[0, 255]),
        uuid_field: Uuid([7; 16]),
    };
    // The maps of Python have no keys that are sets: its server can take the empty one alone.
    let plain = CrazyNesting { list_field: vec![BTreeMap::new()], set_field: None, ..nesting.clone() };
    cases.same("testNesting", client.test_nesting(plain.clone()).await, plain)?;
    let inner = SomeUnion::I32Thing(-1);
    for thing in [
        SomeUnion::MapThing(BTreeMap::from([(Numberz::ONE, 1)])),
        SomeUnion::XtructThing(thing),
        SomeUnion::Several(vec![inner.clone(), SomeUnion::Several(vec![inner])]),
    ] {
        cases.same("testUnion", client.test_union(thing.clone()).await, thing)?;
    }
    let leaf = Tree { item: 1, ..Tree::default() };
    let tree =
        Tree { item: 0, left: Some(leaf.clone().into()), right: None, children: vec![leaf.clone(), leaf] };
    cases.same("testTree", client.test_tree(tree.clone()).await, tree)?;
    let answer = client
        .test_defaults(Defaults::default())
        .await
        .map_err(|status| format!("testDefaults: {status}"))?;
    let numbers = (answer.number, answer.flag, answer.numberz, answer.xtruct.i32_thing);
    cases.holds("testDefaults", numbers == (16, true, Numberz::FIVE, 7), &answer)
}

async fn failures(client: &ThriftTestClient, cases: &mut Cases) -> Result<(), String> {
    cases.same("testException, safe", client.test_exception("Safe".into()).await, ())?;
    let status = failed(client.test_exception("Xception".into()).await.map(drop))?;
    let expected = Xception { error_code: 1001, message: "Xception".into() };
    cases.holds("testException", Xception::of(&status) == Some(expected), &status)?;
    cases.holds("its text", status.message() == "Xception", &status)?;
    let status = failed(client.test_exception("TException".into()).await.map(drop))?;
    let is_text = status.message().contains("an undeclared error");
    cases.holds("an undeclared exception", is_text && Xception::of(&status).is_none(), &status)?;
    let status = failed(client.test_multi_exception("Xception".into(), String::new()).await.map(drop))?;
    let text = Xception::of(&status).map(|exception| exception.message);
    cases.holds("testMultiException", text.as_deref() == Some("This is an Xception"), &status)?;
    let status = failed(client.test_multi_exception("Xception2".into(), String::new()).await.map(drop))?;
    let second =
        Xception2::of(&status).map(|exception| (exception.error_code, exception.struct_thing.string_thing));
    let is_second = second == Some((2002, "This is an Xception2".to_owned()));
    cases.holds("testMultiException, the second", is_second && status.code() == Code::NotFound, &status)?;
    let success = client.test_multi_exception("success".into(), "foobar".into()).await;
    cases.same(
        "testMultiException, none",
        success,
        Xtruct { string_thing: "foobar".into(), ..Xtruct::default() },
    )?;
    let count = async || client.count_oneway().await.map(switchboard::Response::into_inner);
    let before = count().await.map_err(|status| format!("countOneway: {status}"))?;
    client.test_oneway(0).await.map_err(|status| format!("testOneway: {status}"))?;
    cases.same("testOneway", client.count_oneway().await, before + 1)
}

fn failed(outcome: Result<()>) -> Result<Status, String> {
    match outcome {
        Ok(()) => Err("a call that was to fail succeeded".to_owned()),
        Err(status) => Ok(status),
    }
}
