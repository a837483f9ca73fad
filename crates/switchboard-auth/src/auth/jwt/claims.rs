//! Claims of a token.

use super::Caller;
use serde_json::Value;

/// Validity times of a token; all other claims go to the caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claims {
    expires: u64,
    not_before: u64,
}

impl Claims {
    pub(super) fn read(payload: &[u8]) -> Result<(Claims, Caller), &'static str> {
        let claims: Value = serde_json::from_slice(payload).map_err(|_| "the token is not a JWT")?;
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            // RFC 7519 allows fractions of seconds.
            Some(time) => {
                let seconds = time.as_f64().filter(|seconds| (0.0..1e15).contains(seconds));
                seconds.map(|seconds| Some(seconds as u64)).ok_or("a time in the token is not a valid number")
            }
        };
        let expires = time("exp")?.ok_or("the token has no exp: it would never expire")?;
        let not_before = time("nbf")?.unwrap_or(0);
        let name = claims.get("sub").and_then(Value::as_str).filter(|name| !name.is_empty());
        let mut caller = Caller::new(name.ok_or("the token has no sub: it names no caller")?);
        if let Some(scope) = claims.get("scope").and_then(Value::as_str) {
            caller.roles.extend(scope.split_ascii_whitespace().map(str::to_owned));
        }
        if let Some(roles) = claims.get("roles").and_then(Value::as_array) {
            caller.roles.extend(roles.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        caller.claims = claims;
        Ok((Claims { expires, not_before }, caller))
    }

    pub(super) fn check_time(self, now: u64, leeway: u64) -> Result<(), &'static str> {
        if now >= self.expires.saturating_add(leeway) {
            return Err("the token has expired");
        }
        if now.saturating_add(leeway) < self.not_before {
            return Err("the token is not valid yet");
        }
        Ok(())
    }

    pub(super) fn check(
        self,
        caller: &Caller,
        issuer: Option<&str>,
        audience: Option<&str>,
    ) -> Result<(), &'static str> {
        let claim = |name| caller.claims.get(name);
        if issuer.is_some() && claim("iss").and_then(Value::as_str) != issuer {
            return Err("the token is of another issuer");
        }
        let Some(audience) = audience else { return Ok(()) };
        let is_it = match claim("aud") {
            Some(Value::String(one)) => one == audience,
            Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(audience)),
            _ => false,
        };
        if is_it { Ok(()) } else { Err("the token is for another audience") }
    }
}
