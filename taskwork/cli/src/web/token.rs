//! Tokens: secrets that clients send with their requests, as `Authorization: Bearer TOKEN`.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{
    HeaderMap,
    header::{self, AsHeaderName},
};
use blake3::Hash;

/// The minimum length of a token; shorter ones may be guessed.
const TOKEN_CHARS_MIN: usize = 20;
/// The minimum time between two log lines about wrong tokens.
const TRIES_INTERVAL: Duration = Duration::from_secs(60);

/// The hash of a token. Two of them are compared in constant time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Secret(Hash);

impl Secret {
    /// Returns the hash of a token.
    ///
    /// # Errors
    /// The reason if the text is unsuitable or could be guessed.
    pub fn of(token: &str) -> Result<Self, &'static str> {
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it does not contain one line of printable ASCII characters without spaces");
        }
        if token.len() < TOKEN_CHARS_MIN {
            return Err("its token has less than 20 characters, and could be guessed");
        }
        Ok(Self(blake3::hash(token.as_bytes())))
    }

    /// Parses a hash in hexadecimal digits; `None` if it is none.
    pub fn from_hex(digits: &str) -> Option<Self> {
        Hash::from_hex(digits).ok().map(Self)
    }

    /// Returns the hash in hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.to_hex().to_string()
    }

    /// Returns whether the text is the token.
    pub fn is(&self, text: &str) -> bool {
        blake3::hash(text.as_bytes()) == self.0
    }
}

/// Counts requests with a wrong token.
#[derive(Debug, Default)]
pub struct Tries {
    told_at: Option<Instant>,
    untold: u64,
}

impl Tries {
    /// Counts a request. Returns the number of requests not logged yet, if a log line is due.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        let is_due = self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= TRIES_INTERVAL);
        is_due.then(|| {
            self.told_at = Some(now);
            std::mem::take(&mut self.untold)
        })
    }

    /// Counts a request, and logs if a line is due.
    pub fn note(tries: &Mutex<Self>, now: Instant, what: &str) {
        let untold = tries.lock().unwrap_or_else(PoisonError::into_inner).count(now);
        if let Some(tries) = untold {
            tracing::warn!(tries, "{what}");
        }
    }
}

/// Returns the bearer token of a request. Other schemes are for a proxy in front of this server: browsers send the
/// proxy's credentials with every request.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = text(headers, header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Returns a header as text.
pub fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tokens_are_logged_once_per_interval() {
        let mut tries = Tries::default();
        let begin = Instant::now();
        let at = |tries: &mut Tries, seconds| tries.count(begin + Duration::from_secs(seconds));
        assert_eq!(at(&mut tries, 0), Some(1));
        assert!((1..60).all(|second| at(&mut tries, second).is_none()));
        assert_eq!((at(&mut tries, 60), at(&mut tries, 61)), (Some(60), None));
    }
}
