//! The operators: each has a token, and a name for the log.
//!
//! Browsers send cookies to all ports of a host, so another server there could act with a cookie alone. A page
//! therefore also sends a session in a header after the sign-in. The session also distinguishes operators that share a
//! browser.

use std::{path::PathBuf, sync::Mutex, time::Instant};

use axum::http::HeaderMap;
use taskwork_cli::{
    Failure,
    web::token::{Tries, bearer, text},
};

use crate::web::access::{Role, Token};

/// The header with the session of a page.
pub(super) const SESSION: &str = "x-taskwork-session";

/// The tokens of operators, by their names.
pub(in crate::web) struct Operators {
    tokens: Vec<(String, Token)>,
    tries: Mutex<Tries>,
}

/// An authenticated operator.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Operator {
    pub(super) name: String,
    /// Identifies the session: only one request of a session is performed at a time.
    pub(super) session: String,
    /// Whether the request has the token itself, as those of programs do.
    pub(super) is_bearer: bool,
}

/// The result of a sign-in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SignedIn {
    pub(super) name: String,
    pub(super) cookie: String,
    /// The value for the header [`SESSION`].
    pub(super) session: String,
}

impl Operators {
    /// Reads the tokens of operators from files. The name of a file is that of the operator.
    ///
    /// # Errors
    /// If a file cannot be read, is readable by others, or its token is too short or used twice.
    pub(in crate::web) fn read(files: &[PathBuf], viewer: Option<&Token>) -> Result<Self, Failure> {
        let mut tokens: Vec<(String, Token)> = Vec::new();
        for file in files {
            let refused =
                |why: &str| Failure::usage(format!("--operator-token-file {}: {why}", file.display()));
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let token = Token::read_as(Role::Operator, file)?;
            if viewer.is_some_and(|viewer| viewer.is_same(&token)) {
                return Err(refused(
                    "it has the same token as --token-file: viewers could act. Give each operator another token",
                ));
            }
            if tokens.iter().any(|(other, its)| *other == name || its.is_same(&token)) {
                return Err(refused(
                    "another operator has the same file name or token: the log could not show who has acted",
                ));
            }
            tokens.push((name, token));
        }
        Ok(Self { tokens, tries: Mutex::default() })
    }

    /// Returns the operator with a token. All tokens are compared, each in constant time.
    fn of_token(&self, text: &str) -> Option<&(String, Token)> {
        self.tokens.iter().fold(None, |found, one| if one.1.is(text) { Some(one) } else { found })
    }

    /// Returns the operator that sent a request, if any.
    pub(super) fn who(&self, headers: &HeaderMap, now_s: u64) -> Option<Operator> {
        if let Some(token) = bearer(headers) {
            let (name, _) = self.of_token(token)?;
            return Some(Operator { name: name.clone(), session: format!("bearer {name}"), is_bearer: true });
        }
        let page = text(headers, SESSION)?;
        let signed_in = |(name, token): &(String, Token)| {
            let session = token.session(headers, now_s).filter(|_| token.is_page_proof(page, now_s))?;
            Some(Operator { name: name.clone(), session: session.to_owned(), is_bearer: false })
        };
        self.tokens.iter().find_map(signed_in)
    }

    /// Returns the same, and counts wrong tokens for the log.
    pub(super) fn who_or_note(&self, headers: &HeaderMap, now_s: u64) -> Option<Operator> {
        let who = self.who(headers, now_s);
        if who.is_none() && bearer(headers).is_some() {
            self.note_try();
        }
        who
    }

    /// Returns whether a request has the token of an operator; operators may read, too.
    pub(in crate::web) fn let_read(&self, headers: &HeaderMap) -> bool {
        bearer(headers).is_some_and(|token| self.of_token(token).is_some())
    }

    /// Signs in an operator with a token.
    pub(super) fn sign_in(&self, given: &str, now_s: u64, is_secure: bool) -> Option<SignedIn> {
        let Some((name, token)) = self.of_token(given) else {
            self.note_try();
            return None;
        };
        let (cookie, session) = (token.cookie(now_s, is_secure), token.page_proof(now_s));
        Some(SignedIn { name: name.clone(), cookie, session })
    }

    /// Returns header values that make a browser delete its cookies.
    pub(super) fn no_cookies(&self) -> Vec<String> {
        self.tokens.iter().map(|(_, token)| token.no_cookie()).collect()
    }

    fn note_try(&self) {
        Tries::note(&self.tries, Instant::now(), "an action with a wrong operator token was refused");
    }
}

impl std::fmt::Debug for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.tokens.iter().map(|(name, _)| name);
        f.debug_set().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;
    use crate::web::access::tests::{TOKEN, token, write};

    const ANNA: &str = "anna's-token-is-a-long-one";
    const BERT: &str = "bert's-token-is-another-one";

    fn read(files: &[(&str, &str)], viewer: Option<&Token>) -> Result<Operators, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (name, content) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            write(&path, content);
            paths.push(path);
        }
        Operators::read(&paths, viewer).map_err(|refused| refused.to_string())
    }

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    /// Returns the cookie of a sign-in as `name=value`.
    fn pair(signed_in: &SignedIn) -> &str {
        signed_in.cookie.split_once(';').unwrap().0
    }

    /// Returns the headers of a page.
    fn of_page(cookies: &str, session: &str) -> HeaderMap {
        let mut headers = with(header::COOKIE, cookies);
        headers.insert(SESSION, session.parse().unwrap());
        headers
    }

    #[test]
    fn operator_is_identified_by_token_or_session() {
        let operators = read(&[("anna", ANNA), ("bert", BERT)], Some(&token())).unwrap();
        let who = |token: &str| {
            let headers = with(header::AUTHORIZATION, &format!("Bearer {token}"));
            operators.who(&headers, 0).map(|operator| operator.name)
        };
        assert_eq!((who(ANNA).as_deref(), who(BERT).as_deref()), (Some("anna"), Some("bert")));
        for wrong in ["", TOKEN, "anna", &ANNA[1..], &format!("{ANNA}x")] {
            assert_eq!(who(wrong), None, "{wrong}");
            assert_eq!(operators.sign_in(wrong, 0, true), None, "{wrong}");
        }
        let bert = operators.sign_in(BERT, 1_000, true).unwrap();
        assert!(
            bert.name == "bert" && bert.cookie.ends_with("HttpOnly; SameSite=Strict; Secure"),
            "{bert:?}"
        );
        let headers = of_page(pair(&bert), &bert.session);
        let operator = operators.who(&headers, 1_001).unwrap();
        assert_eq!((&*operator.name, operator.is_bearer), ("bert", false));
        assert_eq!(operators.who(&headers, 1_000 + 4_000), None, "expired after an hour");
        assert!(operators.no_cookies().iter().all(|cookie| cookie.contains("Max-Age=0")));
    }

    #[test]
    fn cookie_without_session_does_not_authorize() {
        let operators = read(&[("anna", ANNA), ("bert", BERT)], None).unwrap();
        let [anna, bert] = [ANNA, BERT].map(|token| operators.sign_in(token, 1_000, false).unwrap());
        let who = |headers: &HeaderMap| operators.who(headers, 1_001).map(|operator| operator.name);
        // Another server on this host receives the cookie, but must forge the session.
        let value = pair(&anna).split_once('=').unwrap().1;
        assert_eq!(who(&with(header::COOKIE, pair(&anna))), None);
        for made_up in ["", "1", value, &bert.session, &anna.session[1..]] {
            assert_eq!(who(&of_page(pair(&anna), made_up)), None, "{made_up}");
        }
        assert_eq!(who(&of_page("other=1", &anna.session)), None, "a session without the cookie");
        // Two operators signed in with one browser: each page acts for its own operator.
        let both = format!("{}; {}", pair(&anna), pair(&bert));
        assert_eq!(who(&of_page(&both, &anna.session)).as_deref(), Some("anna"));
        assert_eq!(who(&of_page(&both, &bert.session)).as_deref(), Some("bert"));
        // A later sign-in on another page does not invalidate the first one.
        let later = operators.sign_in(ANNA, 1_500, false).unwrap();
        assert_eq!(who(&of_page(pair(&later), &anna.session)).as_deref(), Some("anna"));
    }

    #[test]
    fn viewer_cookie_does_not_authorize_actions() {
        let operators = read(&[("anna", ANNA)], None).unwrap();
        // The viewer token of another dashboard on this host has the same text.
        let viewer = Token::of(Role::Viewer, ANNA).unwrap().cookie(1_000, false);
        let SignedIn { cookie: own, session, .. } = operators.sign_in(ANNA, 1_000, false).unwrap();
        let value = |cookie: &str| cookie.split_once(';').unwrap().0.split_once('=').unwrap().1.to_owned();
        let name = own.split_once('=').unwrap().0;
        let forged = of_page(&format!("{name}={}", value(&viewer)), &session);
        assert_eq!(operators.who(&forged, 1_001), None);
        assert!(operators.who(&of_page(&format!("{name}={}", value(&own)), &session), 1_001).is_some());
    }

    #[test]
    fn operator_token_equal_to_another_token_is_refused() {
        let refused = read(&[("anna", TOKEN)], Some(&token())).unwrap_err();
        assert!(refused.contains("--operator-token-file") && refused.contains("--token-file:"), "{refused}");
        for files in [[("anna", ANNA), ("bert", ANNA)], [("a/key", ANNA), ("b/key", BERT)]] {
            assert!(read(&files, None).unwrap_err().contains("who has acted"));
        }
        let short = read(&[("anna", "short")], None).unwrap_err();
        assert!(short.contains("--operator-token-file") && short.contains("guessed"), "{short}");
    }
}
