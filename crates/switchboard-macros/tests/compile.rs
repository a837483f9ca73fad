//! Code that the macros accept, and their error messages.

#[test]
fn errors_are_reported_at_their_position() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

#[test]
fn unusual_services_compile() {
    trybuild::TestCases::new().pass("tests/pass/*.rs");
}
