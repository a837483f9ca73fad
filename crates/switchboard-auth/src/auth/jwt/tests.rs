use super::*;
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use serde_json::{Value, json};

const NOW: u64 = 1_800_000_000;
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn hs256(header: &Value, claims: &Value) -> String {
    let signed = format!("{}.{}", encode(header), encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn good() -> Value {
    json!({
        "sub": "alice",
        "exp": NOW + 60,
        "iss": "me",
        "aud": ["chat", "x"],
        "scope": "read write",
        "roles": ["admin"],
    })
}

#[test]
fn claims_are_checked() {
    let jwt = Jwt::secret(SECRET).unwrap().issuer("me").audience("chat");
    let header = json!({"alg": "HS256", "typ": "JWT"});
    let caller = jwt.verify(&hs256(&header, &good()), NOW).unwrap();
    assert_eq!(
        (&caller.name[..], &caller.roles[..]),
        ("alice", &["read", "write", "admin"].map(String::from)[..])
    );
    assert_eq!(caller.claims["iss"], "me");
    // The second check uses the cache until the token expires.
    assert_eq!(jwt.verify(&hs256(&header, &good()), NOW + 89).unwrap(), caller);
    assert_eq!(jwt.verify(&hs256(&header, &good()), NOW + 90), Err("the token has expired"));
    for (name, value, expected) in [
        ("sub", Value::Null, "no sub"),
        ("exp", Value::Null, "a time"),
        ("exp", json!(NOW - 60), "expired"),
        ("exp", json!("soon"), "a time"),
        ("nbf", json!(NOW + 60), "not valid yet"),
        ("iss", json!("you"), "another issuer"),
        ("aud", json!("other"), "another audience"),
        ("aud", json!(["other"]), "another audience"),
    ] {
        let mut claims = good();
        claims[name] = value;
        let error = jwt.verify(&hs256(&header, &claims), NOW).unwrap_err();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn tokens_cannot_choose_how_they_are_verified() {
    let jwt = Jwt::secret(SECRET).unwrap();
    for header in [json!({"alg": "none"}), json!({"alg": "RS256"}), json!({"alg": "hs256"}), json!({})] {
        let token = hs256(&header, &good());
        assert!(jwt.verify(&token, NOW).unwrap_err().contains("unknown"), "{header}");
        let (signed, _) = token.rsplit_once('.').unwrap();
        assert!(jwt.verify(&format!("{signed}."), NOW).is_err());
    }
    let token = hs256(&json!({"alg": "HS256", "crit": ["x"]}), &good());
    assert!(jwt.verify(&token, NOW).unwrap_err().contains("extensions"));
    let token = hs256(&json!({"alg": "HS256"}), &good());
    for at in [3, token.len() / 2, token.len() - 3] {
        let mut broken = token.clone().into_bytes();
        broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
        assert!(jwt.verify(&String::from_utf8(broken).unwrap(), NOW).is_err(), "{at}");
    }
    for odd in ["", ".", "..", "a.b.c", &"a".repeat(TOKEN_MAX + 1)] {
        assert!(jwt.verify(odd, NOW).is_err());
    }
    assert!(Jwt::secret(b"short").unwrap_err().to_string().contains("too short"));
}

#[test]
fn key_sets_verify_with_the_key_that_is_named() {
    let random = SystemRandom::new();
    let ed = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let ec = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let ec = EcdsaKeyPair::from_pkcs8(algorithm, ec.as_ref(), &random).unwrap();
    let point = ec.public_key().as_ref();
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let set = json!({"keys": [
        {"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": part(ed.public_key().as_ref())},
        {"kty": "EC", "crv": "P-256", "kid": "two", "use": "sig", "x": part(&point[1..33]), "y": part(&point[33..])},
        {"kty": "EC", "crv": "P-521", "kid": "three", "x": "AA", "y": "AA"},
        {"kty": "RSA", "kid": "four", "use": "enc", "n": "AA", "e": "AQAB"},
    ]});
    let path = std::env::temp_dir().join(format!("switchboard-jwks-{}.json", std::process::id()));
    std::fs::write(&path, set.to_string()).unwrap();
    let jwt = Jwt::jwks_file(&path).unwrap();
    std::fs::write(&path, r#"{"keys": []}"#).unwrap();
    assert!(Jwt::jwks_file(&path).unwrap_err().to_string().contains("no key for RS256"));
    std::fs::remove_file(&path).unwrap();
    assert!(Jwt::jwks_file(&path).unwrap_err().is_config());
    let token = |header: Value, sign: &dyn Fn(&[u8]) -> Vec<u8>| {
        let signed = format!("{}.{}", encode(&header), encode(&good()));
        format!("{signed}.{}", part(&sign(signed.as_bytes())))
    };
    let by_ed = |signed: &[u8]| ed.sign(signed).as_ref().to_vec();
    let by_ec = |signed: &[u8]| ec.sign(&random, signed).unwrap().as_ref().to_vec();
    jwt.verify(&token(json!({"alg": "EdDSA", "kid": "one"}), &by_ed), NOW).unwrap();
    jwt.verify(&token(json!({"alg": "ES256", "kid": "two"}), &by_ec), NOW).unwrap();
    jwt.verify(&token(json!({"alg": "ES256"}), &by_ec), NOW).unwrap();
    for (header, sign) in [
        (json!({"alg": "ES256", "kid": "one"}), &by_ec as &dyn Fn(&[u8]) -> Vec<u8>),
        (json!({"alg": "EdDSA", "kid": "one"}), &by_ec),
        (json!({"alg": "RS256", "kid": "four"}), &by_ec),
    ] {
        assert!(jwt.verify(&token(header.clone(), sign), NOW).is_err(), "{header}");
    }
}

/// Generated with openssl: one public key as a key set and as PEM, and a token for alice that is valid until
/// the year 2286.
const RSA_N: &str = "z2bu8Pmkhck6LppWDxlBcHZYrPc8cmEOBHdEh3ZpvMZvv8kpcKA8hEFMTK2M9VlVCD4MowR-8ca2TIodrkHtD_fXL5\
     3vB4Kts4XMzTE8DsNOa0Bzl-0eNxfjaO6Rf7OnwpjNVIllC9OCa5CGOyYC9RmeYf_gCNlDIssxUMaDHFM_yaDRyPsD\
     v2hszp-MJUfp_Zmlsgfs_bjidDpYrLqzQzLOqW_3qX-1lXuPw8B2ocRIJlTL7CpOGZW_WiOF_BHZS6YeK9Z8DXx_4-\
     W5P7YKqRUcNzyw6cl5SHIdxie14DLz9Ox_Cc68UJjBznYqt607NJAAxF-7RJwoTbUy7JO3Gw";
const RSA_PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAz2bu8Pmkhck6LppWDxlB\n\
cHZYrPc8cmEOBHdEh3ZpvMZvv8kpcKA8hEFMTK2M9VlVCD4MowR+8ca2TIodrkHt\n\
D/fXL53vB4Kts4XMzTE8DsNOa0Bzl+0eNxfjaO6Rf7OnwpjNVIllC9OCa5CGOyYC\n\
9RmeYf/gCNlDIssxUMaDHFM/yaDRyPsDv2hszp+MJUfp/Zmlsgfs/bjidDpYrLqz\n\
QzLOqW/3qX+1lXuPw8B2ocRIJlTL7CpOGZW/WiOF/BHZS6YeK9Z8DXx/4+W5P7YK\n\
qRUcNzyw6cl5SHIdxie14DLz9Ox/Cc68UJjBznYqt607NJAAxF+7RJwoTbUy7JO3\n\
GwIDAQAB\n\
-----END PUBLIC KEY-----\n";
const RSA_TOKEN: &str = "eyJhbGciOiAiUlMyNTYiLCAia2lkIjogInIifQ.eyJzdWIiOiAiYWxpY2UiLCAiZXhwIjogOTk5OTk5OTk5OX0.VXk\
     mPz0pDvPI-T8FEBTYycAHw9BQ-W2QoPhZFx0j1QFpRaoaPbR9mXqJUG5U1kzBjeBdclkZvrhHgwkvvyi8FGqbeNYH5\
     O7YUGcZK4lVjD1MxZD24gkVFGw5mul6CgncdUQ13xdqR5KW6VIUKvBGHlS-ysjwNT0io2YoSC5cTAH_2ukhf3SlhGH\
     -0kdduhJnJASvzAgBy7Z80I5KZke6hc04brFax_k6bFoZuN-TQbq2NiWniA1-39254aL60CnTsVUjqEkBQbt8Oy8UV\
     zRZxreCD2-nI8sY6p80sZ_bpHSb8SB117iIoVL9g6EYprFjRFxBaXKW7AGwMta7fgCGWQ";

/// A temporary file, removed on drop.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("switchboard-jwt-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The test may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn keys_of_foreign_tools_verify() {
    let pem = File::new("rsa.pem", RSA_PEM);
    let set = json!({"keys": [{"kty": "RSA", "alg": "RS256", "kid": "r", "n": RSA_N, "e": "AQAB"}]});
    let set = File::new("rsa.json", &set.to_string());
    for jwt in [Jwt::key_file(&pem.0).unwrap(), Jwt::jwks_file(&set.0).unwrap()] {
        assert_eq!(jwt.verify(RSA_TOKEN, NOW).unwrap().name, "alice");
        let (signed, signature) = RSA_TOKEN.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        let other = format!("{header}.{}.{signature}", encode(&good()));
        assert_eq!(jwt.verify(&other, NOW), Err("the signature of the token is wrong"));
        // A public key is not secret: a token that is signed with it as an HMAC secret is rejected.
        let forged = format!("{}.{}", encode(&json!({"alg": "HS256"})), encode(&good()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, RSA_PEM.as_bytes()), forged.as_bytes());
        assert!(jwt.verify(&format!("{forged}.{}", URL_SAFE_NO_PAD.encode(tag)), NOW).is_err());
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = File::new("ec.pem", &key.public_key_pem());
    let jwt = Jwt::key_file(&pem.0).unwrap();
    let random = SystemRandom::new();
    let ec =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der(), &random).unwrap();
    let signed = format!("{}.{}", encode(&json!({"alg": "ES256"})), encode(&good()));
    let signature = URL_SAFE_NO_PAD.encode(ec.sign(&random, signed.as_bytes()).unwrap());
    jwt.verify(&format!("{signed}.{signature}"), NOW).unwrap();
    let none = File::new("none.pem", "no key");
    let error = Jwt::key_file(&none.0).unwrap_err().to_string();
    assert!(error.contains("none.pem: it has no public key in PEM"), "{error}");
}
