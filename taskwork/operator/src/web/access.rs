//! Read access: open to all clients, or restricted to those that present a token.
//!
//! Programs send the token as `Authorization: Bearer TOKEN`. A browser submits it once in a form, and receives a cookie
//! with an expiry time, signed with a key derived from the token. So the server stores no sessions, and a new token
//! invalidates all cookies.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use blake3::Hash;
use taskwork::client::read_secret;
use taskwork_cli::{
    Failure,
    web::token::{Secret, Tries, bearer, text},
};

use super::{
    actions::Operators,
    assets,
    guard::{Names, Refusal, SIGN_IN},
};

/// The maximum size of a token file and of the form, in bytes.
const TOKEN_BYTES_MAX: usize = 4 << 10;
/// The maximum time to receive the form.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);
/// The lifetime of a viewer's session, in seconds.
const SESSION_S: u64 = 12 * 60 * 60;
/// The lifetime of an operator's session, in seconds.
const OPERATOR_SESSION_S: u64 = 60 * 60;
/// The paths served without a token: health checks, and the assets of the sign-in form.
const FOR_ALL: [&str; 4] = ["/livez", "/readyz", "/style.css", "/icon.svg"];

/// The permission that a token grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// May read.
    Viewer,
    /// May act.
    Operator,
}

impl Role {
    /// Returns the option for the file of such a token.
    fn option(self) -> &'static str {
        match self {
            Self::Viewer => "--token-file",
            Self::Operator => "--operator-token-file",
        }
    }

    /// Returns the context of key derivation: a cookie of one role is invalid for the other.
    fn context(self) -> &'static str {
        match self {
            Self::Viewer => "taskwork 2025 dashboard cookie",
            Self::Operator => "taskwork 2026 operator cookie",
        }
    }
}

/// The kind of a session's proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// A browser sends it automatically, also to other ports of the host.
    Cookie,
    /// Only a page of this site has it, and sends it in a header.
    Page,
}

/// A token, required to read or to act.
pub(crate) struct Token {
    secret: Secret,
    /// The key that signs cookies.
    key: [u8; 32],
    /// The name of the cookie. Browsers send cookies to all ports of a host, so the name depends on the token.
    cookie: String,
    /// The lifetime of a cookie, in seconds.
    session_s: u64,
}

/// Admits requests that present the token.
pub(super) struct Door {
    token: Token,
    /// Operators may read, too.
    operators: Option<Arc<Operators>>,
    /// The host names of this server.
    names: Arc<Names>,
    /// Whether this process terminates TLS.
    has_tls: bool,
    tries: Mutex<Tries>,
}

impl Token {
    /// Reads a token from a file.
    ///
    /// # Errors
    /// If the file cannot be read, is readable by others, or does not contain one token of at least 20 characters.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        Self::read_as(Role::Viewer, file)
    }

    /// Reads a token for a role from a file.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn read_as(role: Role, file: &Path) -> Result<Self, Failure> {
        let option = role.option();
        let refused = |why: String| {
            Failure::usage(format!(
                "{option} {}: {why}.\n  Make one with: (umask 077; head -c 24 /dev/urandom | base64 > FILE)",
                file.display()
            ))
        };
        let text = read_secret(file, TOKEN_BYTES_MAX as u64).map_err(|why| refused(why.to_string()))?;
        Self::of(role, text.trim()).map_err(|why| refused(why.to_owned()))
    }

    pub(super) fn of(role: Role, text: &str) -> Result<Self, &'static str> {
        let secret = Secret::of(text)?;
        let key = blake3::derive_key(role.context(), text.as_bytes());
        let mark = blake3::keyed_hash(&key, b"name of the cookie").to_hex();
        let session_s = if role == Role::Viewer { SESSION_S } else { OPERATOR_SESSION_S };
        let cookie = format!("taskwork-{}", &mark[..8]);
        Ok(Self { secret, key, cookie, session_s })
    }

    /// Returns whether the text is this token.
    pub(super) fn is(&self, text: &str) -> bool {
        self.secret.is(text)
    }

    /// Returns whether both tokens are the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.secret == other.secret
    }

    fn signature(&self, proof: Proof, until_s: u64) -> Hash {
        let until_s = until_s.to_le_bytes();
        match proof {
            Proof::Cookie => blake3::keyed_hash(&self.key, &until_s),
            Proof::Page => blake3::keyed_hash(&self.key, &[b"page".as_slice(), &until_s].concat()),
        }
    }

    /// Returns a proof of a session that starts now.
    fn proof(&self, proof: Proof, now_s: u64) -> String {
        let until_s = now_s + self.session_s;
        format!("{until_s}.{}", self.signature(proof, until_s).to_hex())
    }

    fn proves(&self, proof: Proof, value: &str, now_s: u64) -> bool {
        let Some((until_s, signature)) = value.split_once('.') else { return false };
        let (Ok(until_s), Ok(signature)) = (until_s.parse::<u64>(), Hash::from_hex(signature)) else {
            return false;
        };
        self.signature(proof, until_s) == signature && now_s < until_s
    }

    #[cfg(test)]
    pub(super) fn cookie_name(&self) -> &str {
        &self.cookie
    }

    /// Returns the cookie of a new session. Browsers send a secure cookie only over TLS.
    pub(super) fn cookie(&self, now_s: u64, is_secure: bool) -> String {
        let Self { cookie, session_s, .. } = self;
        let value = self.proof(Proof::Cookie, now_s);
        let secure = if is_secure { "; Secure" } else { "" };
        format!("{cookie}={value}; Path=/; Max-Age={session_s}; HttpOnly; SameSite=Strict{secure}")
    }

    /// Returns the proof that a page sends with its requests, in addition to the cookie.
    pub(super) fn page_proof(&self, now_s: u64) -> String {
        self.proof(Proof::Page, now_s)
    }

    /// Returns whether the value is a valid proof from a page.
    pub(super) fn is_page_proof(&self, value: &str, now_s: u64) -> bool {
        self.proves(Proof::Page, value, now_s)
    }

    /// Returns a header value that makes a browser delete the cookie.
    pub(super) fn no_cookie(&self) -> String {
        format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", self.cookie)
    }

    fn is_cookie(&self, value: &str, now_s: u64) -> bool {
        self.proves(Proof::Cookie, value, now_s)
    }

    fn lets(&self, headers: &HeaderMap, now_s: u64) -> bool {
        bearer(headers).map_or_else(|| self.session(headers, now_s).is_some(), |token| self.is(token))
    }

    /// Returns the valid session cookie of a request.
    pub(super) fn session<'a>(&self, headers: &'a HeaderMap, now_s: u64) -> Option<&'a str> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let own = pairs.find(|(name, value)| *name == self.cookie && self.is_cookie(value, now_s));
        own.map(|(_, value)| value)
    }
}

pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Door {
    pub(super) fn new(token: Token, names: Arc<Names>, has_tls: bool) -> Self {
        Self { token, operators: None, names, has_tls, tries: Mutex::default() }
    }

    /// Lets operators read, too.
    pub(super) fn with_operators(self, operators: Option<Arc<Operators>>) -> Self {
        Self { operators, ..self }
    }

    fn lets(&self, headers: &HeaderMap) -> bool {
        self.token.lets(headers, now_s())
            || self.operators.as_ref().is_some_and(|operators| operators.let_read(headers))
    }

    /// Returns whether a form comes from this site. A proxy may use another host name than browsers.
    fn is_own(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = text(headers, header::ORIGIN) else { return true };
        let Some((_, host)) = origin.split_once("://") else { return false };
        Some(host) == text(headers, header::HOST) || self.names.contain(host)
    }

    /// Returns whether the browser that sent a form uses TLS, to this process or to a proxy.
    fn is_secure(&self, headers: &HeaderMap) -> bool {
        self.has_tls || text(headers, header::ORIGIN).is_some_and(|origin| origin.starts_with("https://"))
    }

    fn note_try(&self) {
        Tries::note(&self.tries, Instant::now(), "a sign-in with a wrong token was refused");
    }
}

/// Middleware that admits requests with a valid token.
pub(super) async fn check(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path == SIGN_IN {
        return match *request.method() {
            Method::POST => sign_in(&door, request).await,
            _ => form(StatusCode::OK, ""),
        };
    }
    if FOR_ALL.contains(&path) || door.lets(request.headers()) {
        return next.run(request).await;
    }
    if path == "/" {
        return see_other(SIGN_IN);
    }
    let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"taskwork\""))];
    let what = "send the token as \"Authorization: Bearer TOKEN\", or sign in at /sign-in\n";
    (StatusCode::UNAUTHORIZED, challenge, what).into_response()
}

async fn sign_in(door: &Door, request: Request) -> Response {
    let is_secure = door.is_secure(request.headers());
    if !door.is_own(request.headers()) {
        return Refusal(StatusCode::FORBIDDEN, "the form was sent by a page of another site".to_owned())
            .into_response();
    }
    let reading = body::to_bytes(request.into_body(), TOKEN_BYTES_MAX);
    let sent = match tokio::time::timeout(FORM_TIMEOUT, reading).await {
        Ok(Ok(sent)) => sent,
        Ok(Err(_)) => {
            return Refusal(StatusCode::PAYLOAD_TOO_LARGE, "the form is too large for a token".to_owned())
                .into_response();
        }
        Err(_) => {
            return Refusal(StatusCode::REQUEST_TIMEOUT, "the form did not arrive in time".to_owned())
                .into_response();
        }
    };
    let given = form_urlencoded::parse(&sent).find(|(name, _)| name == "token");
    if !given.is_some_and(|(_, given)| door.token.is(given.trim())) {
        door.note_try();
        return form(StatusCode::UNAUTHORIZED, "<p role=\"alert\">That is not the token.</p>");
    }
    let mut answer = see_other("/");
    if let Ok(cookie) = HeaderValue::from_str(&door.token.cookie(now_s(), is_secure)) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    answer
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
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    /// Writes a file that is readable only by its owner.
    pub(in crate::web) fn write(file: &Path, content: &str) {
        fs::write(file, content).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(in crate::web) const TOKEN: &str = "a-token-that-nobody-guesses";

    pub(in crate::web) fn token() -> Token {
        Token::of(Role::Viewer, TOKEN).unwrap()
    }

    #[test]
    fn guessable_token_is_refused_with_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for (content, says) in
            [("short", "guessed"), ("two lines of\nprintable characters", "one line"), ("", "guessed")]
        {
            write(&file, content);
            let refused = Token::read(&file).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.contains("/dev/urandom"), "{refused}");
        }
        assert!(Token::read(&folder.path().join("none")).is_err());
        write(&file, &format!("{TOKEN}\n"));
        assert!(Token::read(&file).unwrap().is(TOKEN));
        write(&file, &"x".repeat(TOKEN_BYTES_MAX + 1));
        assert!(Token::read(&file).unwrap_err().to_string().contains("bytes"));
        fs::remove_file(&file).unwrap();
        fs::write(&file, TOKEN).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Token::read(&file).unwrap_err().to_string();
        assert!(refused.contains("other users") && refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn form_is_accepted_from_each_own_name_only() {
        let door = |has_tls| {
            let names = Names::of([127, 0, 0, 1].into(), &["board.example".to_owned()]);
            Door::new(token(), Arc::new(names), has_tls)
        };
        let from = |origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:8787"));
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            headers
        };
        for own in ["http://127.0.0.1:8787", "https://board.example", "https://board.example:8443"] {
            assert!(door(false).is_own(&from(own)), "{own}");
        }
        for other in ["null", "https://evil.example", "https://board.example.evil.example", "board.example"] {
            assert!(!door(false).is_own(&from(other)), "{other}");
        }
        let secure = |has_tls, origin| door(has_tls).is_secure(&from(origin));
        assert!(secure(false, "https://board.example") && secure(true, "http://localhost"));
        assert!(!secure(false, "http://localhost:8787") && !door(false).is_secure(&HeaderMap::new()));
    }

    #[test]
    fn cookie_expires_and_cannot_be_forged() {
        let token = token();
        let cookie = token.cookie(1_000, true);
        let value = cookie.split_once('=').unwrap().1.split_once(';').unwrap().0;
        assert!(token.is_cookie(value, 1_000) && token.is_cookie(value, 1_000 + SESSION_S - 1));
        assert!(!token.is_cookie(value, 1_000 + SESSION_S));
        let other = Token::of(Role::Viewer, "another-token-nobody-guesses").unwrap();
        assert!(!other.is_cookie(value, 1_000));
        let (_, signature) = value.split_once('.').unwrap();
        for made_up in
            ["", "1", ".", "9999999999.", &format!("9999999999.{signature}"), &format!("x.{signature}")]
        {
            assert!(!token.is_cookie(made_up, 1_000), "{made_up}");
        }
        assert!(cookie.ends_with("HttpOnly; SameSite=Strict; Secure"));
        assert!(token.cookie(1_000, false).ends_with("HttpOnly; SameSite=Strict"));
        // Two dashboards on one host use different cookies.
        assert!(token.cookie.starts_with("taskwork-") && token.cookie.len() == "taskwork-".len() + 8);
        assert!(token.cookie != other.cookie && token.cookie == self::token().cookie);
    }

    #[test]
    fn bearer_or_cookie_admits() {
        let token = token();
        let lets = |name, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            token.lets(&headers, 1_000)
        };
        assert!(lets(header::AUTHORIZATION, &format!("Bearer {TOKEN}")));
        assert!(!lets(header::AUTHORIZATION, &format!("Basic {TOKEN}")));
        assert!(!lets(header::AUTHORIZATION, "Bearer "));
        let cookie = token.cookie(1_000, false);
        let (cookie, _) = cookie.split_once(';').unwrap();
        assert!(lets(header::COOKIE, cookie) && lets(header::COOKIE, &format!("a=b; {cookie}")));
        assert!(!lets(header::COOKIE, &format!("other{cookie}")));
        assert!(!token.lets(&HeaderMap::new(), 1_000));
        // The credentials of a proxy's own sign-in.
        let with = |scheme: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, scheme.parse().unwrap());
            headers.insert(header::COOKIE, cookie.parse().unwrap());
            token.lets(&headers, 1_000)
        };
        assert!(with("Basic dXNlcjpwYXNzd29yZA==") && !with("Bearer another-token-nobody-guesses"));
    }
}
