//! Who may read what is served: everybody who reaches it, or those who know a token.
//!
//! A program sends the token as `Authorization: Bearer TOKEN`. A browser sends it once, by a form, and gets a cookie that
//! says until when it may read; it is signed with a key that is made from the token, so nothing has to be kept, and another
//! token ends all sign-ins.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use blake3::Hash;

use super::{
    assets,
    guard::{Refusal, SIGN_IN},
};
use crate::Failure;

/// The least length of a token: what is shorter may be guessed.
const TOKEN_CHARS_MIN: usize = 20;
/// The maximum size of a token file and of the form, in bytes.
const TOKEN_BYTES_MAX: usize = 4 << 10;
/// The time in which the form must have come.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which a browser may read after the form.
const SESSION_S: u64 = 12 * 60 * 60;
const COOKIE: &str = "taskwork";
/// What is served to everybody: whether the process is well, and what a browser needs to show the form.
const FOR_ALL: [&str; 4] = ["/livez", "/readyz", "/style.css", "/icon.svg"];

/// A token that must be known to read anything.
pub(crate) struct Token {
    hash: Hash,
    /// What cookies are signed with.
    key: [u8; 32],
}

impl Token {
    /// Reads a token from a file.
    ///
    /// # Errors
    /// If it cannot be read, or can be guessed.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let refused = |why: String| {
            Failure::usage(format!(
                "--token-file {}: {why}.\n  Make one with: head -c 24 /dev/urandom | base64 > FILE; chmod 600 FILE",
                file.display()
            ))
        };
        let text = fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
        Self::of(text.trim()).map_err(|why| refused(why.to_owned()))
    }

    fn of(text: &str) -> Result<Self, &'static str> {
        if text.len() > TOKEN_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it does not hold one line of printable characters");
        }
        if text.len() < TOKEN_CHARS_MIN {
            return Err("its token has less than 20 characters, and could be guessed");
        }
        let key = blake3::derive_key("taskwork 2025 dashboard cookie", text.as_bytes());
        Ok(Self { hash: blake3::hash(text.as_bytes()), key })
    }

    /// Returns whether this is the token. Hashes are compared in constant time.
    fn is(&self, text: &str) -> bool {
        blake3::hash(text.as_bytes()) == self.hash
    }

    fn signature(&self, until_s: u64) -> Hash {
        blake3::keyed_hash(&self.key, &until_s.to_le_bytes())
    }

    fn cookie(&self, now_s: u64) -> String {
        let until_s = now_s + SESSION_S;
        let signature = self.signature(until_s).to_hex();
        format!(
            "{COOKIE}={until_s}.{signature}; Path=/; Max-Age={SESSION_S}; HttpOnly; SameSite=Strict; Secure"
        )
    }

    fn is_cookie(&self, value: &str, now_s: u64) -> bool {
        let Some((until_s, signature)) = value.split_once('.') else { return false };
        let (Ok(until_s), Ok(signature)) = (until_s.parse::<u64>(), Hash::from_hex(signature)) else {
            return false;
        };
        self.signature(until_s) == signature && now_s < until_s
    }

    fn lets(&self, headers: &HeaderMap, now_s: u64) -> bool {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some((scheme, token)) = bearer.and_then(|value| value.split_once(' ')) {
            return scheme.eq_ignore_ascii_case("bearer") && self.is(token.trim());
        }
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == COOKIE && self.is_cookie(value, now_s))
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Passes on the requests of those who know the token.
pub(super) async fn check(State(token): State<Arc<Token>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path == SIGN_IN {
        return match *request.method() {
            Method::POST => sign_in(&token, request).await,
            _ => form(StatusCode::OK, ""),
        };
    }
    if FOR_ALL.contains(&path) || token.lets(request.headers(), now_s()) {
        return next.run(request).await;
    }
    if path == "/" {
        return see_other(SIGN_IN);
    }
    let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"taskwork\""))];
    let what = "send the token as \"Authorization: Bearer TOKEN\", or sign in at /sign-in\n";
    (StatusCode::UNAUTHORIZED, challenge, what).into_response()
}

async fn sign_in(token: &Token, request: Request) -> Response {
    if !is_own(request.headers()) {
        return Refusal(StatusCode::FORBIDDEN, "the form is that of another site".to_owned()).into_response();
    }
    let reading = body::to_bytes(request.into_body(), TOKEN_BYTES_MAX);
    let sent = match tokio::time::timeout(FORM_TIMEOUT, reading).await {
        Ok(Ok(sent)) => sent,
        Ok(Err(_)) => {
            return Refusal(StatusCode::PAYLOAD_TOO_LARGE, "a token is shorter".to_owned()).into_response();
        }
        Err(_) => {
            return Refusal(StatusCode::REQUEST_TIMEOUT, "the form did not come".to_owned()).into_response();
        }
    };
    let given = form_urlencoded::parse(&sent).find(|(name, _)| name == "token");
    if !given.is_some_and(|(_, given)| token.is(given.trim())) {
        tracing::warn!("somebody has tried to sign in with another token");
        return form(StatusCode::UNAUTHORIZED, "<p role=\"alert\">That is not the token.</p>");
    }
    let mut answer = see_other("/");
    if let Ok(cookie) = HeaderValue::from_str(&token.cookie(now_s())) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    answer
}

/// Returns whether a form was not sent by a page of another site.
fn is_own(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(origin) = text(header::ORIGIN) else { return true };
    origin.split_once("://").map(|(_, host)| host) == text(header::HOST)
}

fn see_other(path: &'static str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, HeaderValue::from_static(path))]).into_response()
}

fn form(status: StatusCode, remark: &str) -> Response {
    let page = assets::SIGN_IN_PAGE.replace("<!-- remark -->", remark);
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))], page)
        .into_response()
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::web) const TOKEN: &str = "a-token-that-nobody-guesses";

    pub(in crate::web) fn token() -> Token {
        Token::of(TOKEN).unwrap()
    }

    #[test]
    fn a_token_that_could_be_guessed_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for (content, says) in
            [("short", "guessed"), ("two lines of\nprintable characters", "one line"), ("", "guessed")]
        {
            fs::write(&file, content).unwrap();
            let refused = Token::read(&file).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.contains("/dev/urandom"), "{refused}");
        }
        assert!(Token::read(&folder.path().join("none")).is_err());
        fs::write(&file, format!("{TOKEN}\n")).unwrap();
        assert!(Token::read(&file).unwrap().is(TOKEN));
    }

    #[test]
    fn a_cookie_lasts_for_a_time_and_cannot_be_made_up() {
        let token = token();
        let cookie = token.cookie(1_000);
        let value = cookie.split_once('=').unwrap().1.split_once(';').unwrap().0;
        assert!(token.is_cookie(value, 1_000) && token.is_cookie(value, 1_000 + SESSION_S - 1));
        assert!(!token.is_cookie(value, 1_000 + SESSION_S));
        let other = Token::of("another-token-nobody-guesses").unwrap();
        assert!(!other.is_cookie(value, 1_000));
        let (_, signature) = value.split_once('.').unwrap();
        for made_up in
            ["", "1", ".", "9999999999.", &format!("9999999999.{signature}"), &format!("x.{signature}")]
        {
            assert!(!token.is_cookie(made_up, 1_000), "{made_up}");
        }
        assert!(cookie.ends_with("HttpOnly; SameSite=Strict; Secure"));
    }

    #[test]
    fn a_bearer_or_a_cookie_is_enough() {
        let token = token();
        let lets = |name, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            token.lets(&headers, 1_000)
        };
        assert!(lets(header::AUTHORIZATION, &format!("Bearer {TOKEN}")));
        assert!(!lets(header::AUTHORIZATION, &format!("Basic {TOKEN}")));
        assert!(!lets(header::AUTHORIZATION, "Bearer "));
        let cookie = token.cookie(1_000);
        let (cookie, _) = cookie.split_once(';').unwrap();
        assert!(lets(header::COOKIE, cookie) && lets(header::COOKIE, &format!("a=b; {cookie}")));
        assert!(!lets(header::COOKIE, &format!("other{cookie}")));
        assert!(!token.lets(&HeaderMap::new(), 1_000));
    }
}
