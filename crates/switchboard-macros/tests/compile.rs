//! What the macros accept and what they say about mistakes.

#[test]
fn mistakes_are_explained_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

#[test]
fn unusual_services_compile() {
    trybuild::TestCases::new().pass("tests/pass/*.rs");
}
