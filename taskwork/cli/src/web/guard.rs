//! Checks of all requests, by host name and method, and the headers that restrict browsers.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// The path of the sign-in. Of the dashboard, only this and actions accept a method other than GET and HEAD.
pub const SIGN_IN: &str = "/sign-in";

/// The prefix of actions, which authenticate their requests.
pub const ACTIONS: &str = "/api/operator";

/// The content security policy: pages load only files of this server, and have no inline script or style.
const POLICY: &str = "default-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The time for which browsers use only TLS, in seconds: a year.
const STRICT: &str = "max-age=31536000";

/// The accepted host names. Other names are refused, since a foreign page with a name that temporarily resolves to this
/// machine could read everything ("DNS rebinding").
#[derive(Debug, Clone)]
pub struct Names {
    listens: Option<IpAddr>,
    others: Vec<String>,
    /// Whether requests come over TLS.
    is_tls: bool,
    /// Returns whether a path accepts a method other than GET and HEAD.
    accepts: fn(&Method, &str) -> bool,
}

/// Returns whether a path of the dashboard accepts a method other than GET and HEAD.
fn is_action(method: &Method, path: &str) -> bool {
    method == Method::POST
        && (path == SIGN_IN || path.strip_prefix(ACTIONS).is_some_and(|action| action.starts_with('/')))
}

impl Names {
    /// Returns the names of a server that only this machine can reach.
    pub fn of_this_machine() -> Self {
        Self { listens: None, others: Vec::new(), is_tls: false, accepts: is_action }
    }

    /// Returns the names of a server with a listening address and further names.
    pub fn of(listens: IpAddr, others: &[String]) -> Self {
        let others = others.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { listens: Some(listens), others, is_tls: false, accepts: is_action }
    }

    /// Sets the paths that accept methods other than GET and HEAD. They authenticate their requests, or are not for
    /// browsers.
    #[must_use]
    pub fn accepting(self, accepts: fn(&Method, &str) -> bool) -> Self {
        Self { accepts, ..self }
    }

    /// Sets whether requests come over TLS. If so, browsers that have used one of the further names never use it without TLS
    /// again: the header is not sent to other names, such as `localhost`, which other servers share.
    #[must_use]
    pub fn over_tls(self, is_tls: bool) -> Self {
        Self { is_tls, ..self }
    }

    /// Returns whether browsers may be told to use TLS always for the host of a request.
    fn are_strict(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        self.is_tls && host.is_some_and(|host| self.were_given(host))
    }

    /// Returns whether a host, with or without a port, is accepted.
    pub fn contain(&self, host: &str) -> bool {
        let name = name_of(host);
        match name.parse::<IpAddr>() {
            // An address, unlike a name, cannot be made to resolve to this machine.
            Ok(address) => {
                address.is_loopback()
                    || self.listens.is_some_and(|at| at == address || at.is_unspecified())
                    || self.others.contains(&address.to_string())
            }
            Err(_) => name == "localhost" || self.others.contains(&name),
        }
    }

    /// Returns whether a host, with or without a port, is one of the further names.
    pub fn were_given(&self, host: &str) -> bool {
        let name = name_of(host);
        let name = name.parse::<IpAddr>().map_or(name, |address| address.to_string());
        self.others.contains(&name)
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, more) = (hosts.next(), hosts.next());
        let Some(host) = host.filter(|_| more.is_none()).and_then(|host| host.to_str().ok()) else {
            return Err(Refusal(StatusCode::BAD_REQUEST, "a request names one host".to_owned()));
        };
        let asked = uri.authority().map_or(host, |authority| authority.as_str());
        let Some(foreign) = [host, asked].into_iter().find(|host| !self.contain(host)) else { return Ok(()) };
        let shown: String = foreign.chars().take(100).collect();
        Err(Refusal(
            StatusCode::MISDIRECTED_REQUEST,
            format!("{shown:?} is no name of this server; if it is, add --host-name NAME to its command"),
        ))
    }
}

/// Returns the name, or the address, of a host with or without its port.
fn name_of(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Parses a host name or an address, in the form that [`Names`] compares.
///
/// # Errors
/// If it cannot be the host of a request.
pub fn host_name(text: &str) -> Result<String, String> {
    let address = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = address.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_clean = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_clean) {
        return Err(
            "expected a name such as board.example.org, or an address, without https:// and port".to_owned()
        );
    }
    Ok(name.to_ascii_lowercase())
}

/// The refusal of a request.
#[derive(Debug)]
pub struct Refusal(pub StatusCode, pub String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, format!("{}\n", self.1)).into_response()
    }
}

/// Middleware that checks requests, and adds headers for browsers to the answers.
pub async fn guard(State(names): State<Arc<Names>>, request: Request, next: Next) -> Response {
    let is_strict = names.are_strict(request.headers());
    let mut response = match check(&names, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        // The unread rest of the body would be taken for the next request.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Required so that forms are sent with their origin.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_strict {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(STRICT));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Returns whether a request is a probe without a host, as some proxies send. Browsers, which the check of names protects,
/// always send one.
fn is_bare_probe(request: &Request<Body>) -> bool {
    request.version() == Version::HTTP_10
        && !request.headers().contains_key(header::HOST)
        && request.uri().authority().is_none()
        && matches!(request.uri().path(), "/livez" | "/readyz")
}

#[expect(clippy::result_large_err, reason = "the answer is sent at once")]
fn check(names: &Names, request: &Request<Body>) -> Result<(), Response> {
    if !is_bare_probe(request) {
        names.check(request.uri(), request.headers()).map_err(IntoResponse::into_response)?;
    }
    if (names.accepts)(request.method(), request.uri().path()) {
        return Ok(());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allow = [(header::ALLOW, HeaderValue::from_static("GET, HEAD"))];
        return Err((StatusCode::METHOD_NOT_ALLOWED, allow, "this can only be read\n").into_response());
    }
    if !request.body().is_end_stream() {
        let refusal = Refusal(StatusCode::PAYLOAD_TOO_LARGE, "no page takes a body".to_owned());
        return Err(refusal.into_response());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_host_names_are_accepted_only() {
        let here = Names::of_this_machine();
        for host in [
            "localhost",
            "LocalHost:8787",
            "127.0.0.1:1",
            "127.8.8.8",
            "[::1]:8787",
            "[::1]",
            "localhost.:80",
        ] {
            assert!(here.contain(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example:8787",
            "192.0.2.1",
            "[::2]",
            "[::1",
            "127.0.0.1.nip.io",
        ] {
            assert!(!here.contain(host), "{host}");
        }
        let there = Names::of([192, 0, 2, 1].into(), &["Board.example".to_owned()]);
        assert!(
            there.contain("192.0.2.1:8787")
                && there.contain("board.EXAMPLE:443")
                && !there.contain("192.0.2.2")
        );
        let anywhere = Names::of([0, 0, 0, 0].into(), &[]);
        assert!(anywhere.contain("192.0.2.2:8787") && !anywhere.contain("evil.example"));
    }

    #[test]
    fn further_names_and_addresses_are_accepted() {
        let given =
            ["Board.example.", "192.0.2.9", "[2001:DB8::1]", "2001:db8:0::2", "xn--bcher-kva.example"];
        let given: Vec<String> = given.into_iter().map(|name| host_name(name).unwrap()).collect();
        let names = Names::of([127, 0, 0, 1].into(), &given);
        for host in [
            "board.example:443",
            "192.0.2.9:8787",
            "192.0.2.9",
            "[2001:db8::1]:8787",
            "[2001:db8::2]",
            "xn--bcher-kva.example",
        ] {
            assert!(names.contain(host), "{host}");
        }
        assert!(!names.contain("192.0.2.8") && !names.contain("[2001:db8::3]"));
        for wrong in
            ["", ".", "board.example:443", "https://board.example", "board.example/", "a b", "192.0.2.9:443"]
        {
            assert!(host_name(wrong).unwrap_err().contains("port"), "{wrong}");
        }
    }

    #[test]
    fn probe_of_http_1_0_needs_no_host() {
        let check = |version, uri: &str| {
            let request = Request::builder().version(version).uri(uri).body(Body::empty()).unwrap();
            check(&Names::of_this_machine(), &request).map_err(|refused| refused.status().as_u16())
        };
        assert_eq!(check(Version::HTTP_10, "/livez"), Ok(()));
        assert_eq!(check(Version::HTTP_11, "/livez"), Err(400));
        assert_eq!(check(Version::HTTP_10, "/metrics"), Err(400));
        assert_eq!(check(Version::HTTP_10, "http://evil.example/livez"), Err(400));
    }

    #[test]
    fn only_given_names_over_tls_are_strict() {
        let is_strict = |is_tls: bool, host: &'static str| {
            let names = Names::of([0, 0, 0, 0].into(), &["board.example".to_owned()]).over_tls(is_tls);
            let headers = [(header::HOST, HeaderValue::from_static(host))].into_iter().collect();
            names.are_strict(&headers)
        };
        assert!(is_strict(true, "board.example:8787"));
        assert!(!is_strict(false, "board.example:8787"));
        for host in ["localhost:8787", "127.0.0.1", "evil.example"] {
            assert!(!is_strict(true, host), "{host}");
        }
    }

    #[test]
    fn refusal_names_the_foreign_host() {
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, HeaderValue::from_static("localhost"));
        let refused = Names::of_this_machine().check(&Uri::from_static("http://evil.example/"), &headers);
        assert!(refused.unwrap_err().1.contains("evil.example"));
    }

    #[test]
    fn request_with_several_hosts_is_refused() {
        let check = |hosts: &[&'static str], uri: &'static str| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            let names = Names::of_this_machine();
            names.check(&Uri::from_static(uri), &headers).map_err(|refusal| refusal.0.as_u16())
        };
        assert_eq!(check(&["localhost"], "/"), Ok(()));
        assert_eq!(check(&["localhost"], "http://evil.example/"), Err(421));
        assert_eq!(check(&["evil.example"], "http://localhost/"), Err(421));
        assert_eq!(check(&["localhost", "evil.example"], "/"), Err(400));
        assert_eq!(check(&[], "/"), Err(400));
    }
}
