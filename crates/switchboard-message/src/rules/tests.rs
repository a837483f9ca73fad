use super::*;
use switchboard_wire::{Code, Codec};

fn rules(rules: impl IntoIterator<Item = TopicRule>) -> TopicRules {
    TopicRules::new(rules).unwrap()
}

fn code<T>(result: Result<T>) -> Code {
    result.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[test]
fn the_first_rule_of_a_topic_and_its_operation_applies() {
    let rules = rules([
        TopicRule::topics("a/public").public(),
        TopicRule::topics("a/*").to_publish().callers(["alice"]),
        TopicRule::topics("a/*").roles(["reader", "admin"]),
        TopicRule::topics("secret/>").deny(),
    ]);
    let (alice, bob) = (Caller::new("alice"), Caller::new("bob").role("reader"));
    for (topic, caller, publish, subscribe) in [
        ("a/public", None, Code::Ok, Code::Ok),
        ("a/x", None, Code::Unauthenticated, Code::Unauthenticated),
        ("a/x", Some(&alice), Code::Ok, Code::PermissionDenied),
        ("a/x", Some(&bob), Code::PermissionDenied, Code::Ok),
        ("secret/x/y", Some(&alice), Code::PermissionDenied, Code::PermissionDenied),
        ("other", None, Code::Ok, Code::Ok),
    ] {
        assert_eq!(code(rules.may_publish(topic, caller)), publish, "{topic}");
        assert_eq!(code(rules.may_subscribe(topic, caller)), subscribe, "{topic}");
    }
    assert!(TopicRules::default().may_subscribe(">", None).is_ok());
}

#[test]
fn a_pattern_that_includes_a_denied_topic_is_refused() {
    let rules = rules([TopicRule::topics("a/open/>").public(), TopicRule::topics("a/>").roles(["admin"])]);
    let admin = Caller::new("root").role("admin");
    for (pattern, expected) in [
        ("a/open/x", Code::Ok),
        ("a/open/*", Code::Ok),
        ("a/open/>", Code::Ok),
        ("b/>", Code::Ok),
        ("a/*", Code::Unauthenticated),
        ("a/open/#", Code::Unauthenticated),
        (">", Code::Unauthenticated),
        ("*/open", Code::Unauthenticated),
        ("*/*/x", Code::Unauthenticated),
    ] {
        assert_eq!(code(rules.may_subscribe(pattern, None)), expected, "{pattern}");
        assert_eq!(code(rules.may_subscribe(pattern, Some(&admin))), Code::Ok, "{pattern}");
    }
    for (prefix, expected) in [
        ("a/open/", Code::Ok),
        ("a/open/x", Code::Ok),
        ("b", Code::Ok),
        ("a/open", Code::Unauthenticated),
        ("", Code::Unauthenticated),
    ] {
        assert_eq!(code(rules.may_subscribe(Pattern::prefix(prefix), None)), expected, "{prefix}");
    }
}

#[test]
fn entries_are_limited_in_size_and_rate() {
    let rules = rules([TopicRule::topics("t").public().rate(0.001).burst(3).entry_bytes_max(4)]);
    let entries = |texts: &[&'static str]| -> Vec<Publication> {
        texts.iter().map(|text| Publication::new(Codec::Raw, *text)).collect()
    };
    let large = rules.admit("t", None, &entries(&["12345"])).unwrap_err();
    assert!(large.message().contains("entry_bytes_max=4"), "{large}");
    let batch = rules.admit("t", None, &entries(&["1", "2", "3", "4"])).unwrap_err();
    assert!(batch.message().contains("burst of 3"), "{batch}");
    rules.admit("t", None, &entries(&["1", "2"])).unwrap();
    let many = rules.admit("t", None, &entries(&["3", "4"])).unwrap_err();
    assert!(many.message().contains("0.001 entries a second"), "{many}");
    assert!(matches!(many.retry(), Retry::After(pause) if pause > Duration::from_secs(900)), "{many}");
    rules.admit("t", None, &entries(&["3"])).unwrap();
    assert!(rules.admit("t", None, &entries(&["4"])).is_err());
    // Another caller, and another topic.
    rules.admit("t", Some(&Caller::new("alice")), &entries(&["1", "2", "3"])).unwrap();
    rules.admit("u", None, &entries(&["12345"])).unwrap();
}

#[test]
fn refused_rules_say_why() {
    for (rule, text) in [
        (TopicRule::topics("a/>/b"), "before its last level"),
        (TopicRule::topics("a").rate(0.0), "not a valid rate"),
        (TopicRule::topics("a").rate(f64::NAN), "not a valid rate"),
        (TopicRule::topics("a").public().roles(["admin"]), "is public and names callers or roles"),
        (TopicRule::topics("a").public().callers(["ann"]), "is public and names callers or roles"),
    ] {
        let refused = TopicRules::new([rule]).unwrap_err();
        assert!(refused.message().contains(text), "{refused}");
    }
}
