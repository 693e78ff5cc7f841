//! Access to a gateway: the tokens of tenants, and the requests that each role may make.
//!
//! A line of the file with the tokens is `TENANT ROLE TOKEN`, or `TENANT ROLE blake3:HASH` with the hash of the token. Empty
//! lines, and lines that start with `#`, have no meaning.

use std::{
    net::SocketAddr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use taskwork::client::read_secret;
use taskwork_cli::{
    Failure,
    web::{
        guard::Names,
        server,
        tls::{TlsAcceptor, TlsArguments},
        token::{Secret, Tries, bearer},
    },
};
use tokio::net::TcpListener;

use super::{Gateway, problem::Problem};
use crate::tenant::Tenant;

/// The maximum size of the file with the tokens, in bytes.
const TOKENS_BYTES_MAX: u64 = 1 << 20;

/// The prefix of the hash of a token.
const HASH: &str = "blake3:";

/// The path that is served without a token.
pub(super) const FOR_ALL: &str = "/livez";

/// The requests that a token permits; each role permits those of the roles before it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Read the library, and the jobs, results and resources of the tenant.
    Read,
    /// Call routines, submit and cancel jobs.
    Run,
    /// Change resources.
    Deploy,
    /// Read the usage of all tenants.
    Operator,
}

impl Role {
    fn parse(name: &str) -> Option<Self> {
        clap::ValueEnum::from_str(name, false).ok()
    }

    /// Returns the role that a request needs.
    fn of(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD => Self::Read,
            Method::POST => Self::Run,
            _ => Self::Deploy,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Deploy => "deploy",
            Self::Operator => "operator",
        }
    }
}

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Caller {
    tenant: Tenant,
    role: Role,
}

/// The tokens of a file, which are read again when it changes.
#[derive(Debug)]
pub(super) struct Tokens {
    file: PathBuf,
    known: Mutex<Known>,
    tries: Mutex<Tries>,
}

#[derive(Debug)]
struct Known {
    /// The state of the file when it was read.
    stamp: Option<Stamp>,
    tokens: Vec<(Secret, Caller)>,
}

/// The device, the id, the size and the time of change of a file.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(file: &Path) -> Option<Stamp> {
    let about = file.metadata().ok()?;
    Some((about.dev(), about.ino(), about.size(), about.ctime(), about.ctime_nsec()))
}

impl Tokens {
    fn open(file: &Path) -> Result<Self, Failure> {
        let stamp = stamp(file);
        let tokens = read(file).map_err(Failure::usage)?;
        let known = Mutex::new(Known { stamp, tokens });
        Ok(Self { file: file.to_owned(), known, tries: Mutex::default() })
    }

    /// Returns the sender of a request with a token. All tokens are compared, each in constant time.
    fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let token = bearer(headers)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.renew(&self.file);
        let found = known.tokens.iter().fold(
            None,
            |found, (secret, caller)| {
                if secret.is(token) { Some(caller) } else { found }
            },
        );
        if found.is_none() {
            Tries::note(&self.tries, Instant::now(), "a request with a wrong token was refused");
        }
        found.cloned()
    }
}

impl Known {
    /// Reads the file again if it has changed. An invalid file leaves the earlier tokens valid.
    fn renew(&mut self, file: &Path) {
        let stamp = stamp(file);
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match read(file) {
            Ok(tokens) => {
                self.tokens = tokens;
                tracing::info!(file = %file.display(), "the tokens were read again");
            }
            Err(error) => tracing::warn!("{error}. The earlier tokens remain valid"),
        }
    }
}

fn read(file: &Path) -> Result<Vec<(Secret, Caller)>, String> {
    let text = read_secret(file, TOKENS_BYTES_MAX).map_err(|error| error.to_string());
    text.and_then(|text| parse(&text)).map_err(|why| format!("--tokens {}: {why}", file.display()))
}

fn parse(text: &str) -> Result<Vec<(Secret, Caller)>, String> {
    let mut tokens = Vec::<(Secret, Caller)>::new();
    for (number, line) in (1..).zip(text.lines()) {
        let refused = |why: &str| Err(format!("line {number}: {why}"));
        let mut words = line.split_whitespace();
        let tenant = match words.next() {
            Some(first) if !first.starts_with('#') => first,
            _ => continue,
        };
        let (Some(role), Some(token), None) = (words.next(), words.next(), words.next()) else {
            return refused("expected TENANT ROLE TOKEN, or TENANT ROLE blake3:HASH");
        };
        let Some(tenant) = Tenant::parse(tenant) else {
            return refused(
                "the name of a tenant has 1 to 16 letters, digits, `.`, `-` or `_`, the first of them a letter or digit",
            );
        };
        let Some(role) = Role::parse(role) else { return refused("a role is read, run, deploy or operator") };
        let secret = match token.strip_prefix(HASH) {
            Some(hash) => Secret::from_hex(hash).ok_or("the hash has not 64 hexadecimal digits"),
            None => Secret::of(token),
        };
        let secret = match secret {
            Ok(secret) => secret,
            Err(why) => return refused(why),
        };
        if tokens.iter().any(|(other, _)| *other == secret) {
            return refused("another line has the same token: give each line another one");
        }
        tokens.push((secret, Caller { tenant, role }));
    }
    Ok(tokens)
}

/// Returns the line of a token in a file.
pub(crate) fn line(tenant: &Tenant, role: Role, token: &str) -> Result<String, &'static str> {
    Ok(format!("{tenant} {} {HASH}{}\n", role.name(), Secret::of(token)?.to_hex()))
}

/// The address of a gateway, which listens but does not serve yet, and the tokens of its tenants.
pub(crate) struct Entrance {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) names: Names,
    pub(super) tokens: Option<Arc<Tokens>>,
}

impl Entrance {
    /// Starts to listen.
    ///
    /// # Errors
    /// If access would be insecure, a file cannot be read, or the address cannot be listened on.
    pub(crate) fn open(
        address: SocketAddr,
        tls: &TlsArguments,
        tokens: Option<&Path>,
    ) -> Result<Self, Failure> {
        let is_protected = tls.has_certificate() && tokens.is_some();
        if !address.ip().is_loopback() && !is_protected {
            return Err(Failure::usage(format!(
                "--listen {address} could be reached by other machines, so it needs TLS and tokens:\n  \
                 --tls-cert FILE --tls-key FILE, a certificate and its key in PEM;\n  \
                 --tokens FILE, with a line for each token, made with: routines token FILE TENANT ROLE\n  \
                 Or listen on this machine alone, as in --listen 127.0.0.1:{port}, and lead a tunnel there (ssh -L \
                 {port}:127.0.0.1:{port})",
                port = address.port(),
            )));
        }
        let tokens = tokens.map(Tokens::open).transpose()?.map(Arc::new);
        let (names, tls) = (Names::of(address.ip(), &tls.host_name), tls.acceptor()?);
        Ok(Self { listener: server::listen("--listen", address)?, tls, names, tokens })
    }

    /// Returns the URL of the gateway.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let at = self.listener.local_addr().map_or_else(|_| String::new(), |at| at.to_string());
        format!("{scheme}://{at}/")
    }
}

/// Middleware that admits requests with the token of a suitable role; without tokens, all requests, of the default tenant.
pub(super) async fn admit(
    State(tokens): State<Option<Arc<Tokens>>>,
    mut request: Request,
    next: Next,
) -> Response {
    if request.uri().path() != FOR_ALL {
        let caller = match &tokens {
            Some(tokens) => tokens.caller(request.headers()),
            None => Some(Caller { tenant: Tenant::default(), role: Role::Operator }),
        };
        let Some(caller) = caller else {
            let reason = "send a valid token as \"Authorization: Bearer TOKEN\"";
            let mut refused = Problem::new(StatusCode::UNAUTHORIZED, reason).into_response();
            let challenge = HeaderValue::from_static("Bearer realm=\"routines\"");
            refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            return refused;
        };
        let needed = Role::of(request.method());
        if caller.role < needed {
            let reason = format!(
                "the request needs the role {}, and the token has the role {}",
                needed.name(),
                caller.role.name()
            );
            return Problem::new(StatusCode::FORBIDDEN, reason).into_response();
        }
        request.extensions_mut().insert(caller);
    }
    next.run(request).await
}

/// The gateway as the sender of a request sees it: without jobs and resources of other tenants.
impl FromRequestParts<Self> for Gateway {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, gateway: &Self) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>();
        let caller = caller.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "the sender is unknown"))?;
        let (service, is_of_operator) =
            (gateway.service.of(caller.tenant.clone()), caller.role >= Role::Operator);
        Ok(Self { service, is_of_operator, ..gateway.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use clap::Parser;

    use super::*;

    const ANNA: &str = "anna-has-a-long-secret";
    const BERT: &str = "bert-has-another-secret";

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        tls: TlsArguments,
    }

    fn write(file: &Path, text: &str) {
        fs::write(file, text).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn with(token: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    #[test]
    fn invalid_tokens_are_refused_with_their_line() {
        let hash = Secret::of(ANNA).unwrap().to_hex();
        for (line, says) in [
            ("anna run", "TENANT ROLE TOKEN"),
            ("anna run one-token-and-a-second one", "TENANT ROLE TOKEN"),
            ("a/b run bert-has-another-secret", "1 to 16"),
            ("a-tenant-with-a-long-name run bert-has-another-secret", "1 to 16"),
            ("bert write bert-has-another-secret", "read, run, deploy or operator"),
            ("bert run short", "guessed"),
            ("bert run blake3:0123", "64 hexadecimal"),
            ("bert run anna-has-a-long-secret", "same token"),
        ] {
            let refused = parse(&format!("# tokens\n\nanna run blake3:{hash}\n{line}\n")).unwrap_err();
            assert!(refused.starts_with("line 4: ") && refused.contains(says), "{line}: {refused}");
        }
    }

    #[test]
    fn changed_file_of_tokens_is_read_again_and_a_damaged_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let anna = Tenant::parse("anna").unwrap();
        write(&file, &line(&anna, Role::Run, ANNA).unwrap());
        assert!(!fs::read_to_string(&file).unwrap().contains(ANNA));
        let tokens = Tokens::open(&file).unwrap();
        let caller = |token| tokens.caller(&with(token)).map(|its| (its.tenant.to_string(), its.role));
        assert_eq!((caller(ANNA), caller(BERT)), (Some(("anna".to_owned(), Role::Run)), None));
        assert!(caller(&ANNA[1..]).is_none() && tokens.caller(&HeaderMap::new()).is_none());
        write(&file, &format!("bert read {BERT}\n"));
        assert_eq!((caller(ANNA), caller(BERT)), (None, Some(("bert".to_owned(), Role::Read))));
        write(&file, "damaged\n");
        assert!(caller(BERT).is_some());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Tokens::open(&file).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn roles_permit_the_requests_of_smaller_ones() {
        for (role, methods) in [
            (Role::Read, [true, false, false, false]),
            (Role::Run, [true, true, false, false]),
            (Role::Deploy, [true, true, true, true]),
            (Role::Operator, [true, true, true, true]),
        ] {
            let may =
                [Method::GET, Method::POST, Method::PUT, Method::DELETE].map(|it| role >= Role::of(&it));
            assert_eq!(may, methods, "{role:?}");
        }
    }

    #[tokio::test]
    async fn reachable_address_requires_tls_and_tokens() {
        let tls = |words: &[&str]| Line::parse_from([&["line"], words].concat()).tls;
        let files = ["--tls-cert", "none", "--tls-key", "none"];
        for (words, tokens) in [(&[][..], None), (&files, None), (&[], Some(Path::new("none")))] {
            let refused = Entrance::open("0.0.0.0:0".parse().unwrap(), &tls(words), tokens);
            let refused = refused.err().unwrap().to_string();
            for word in ["--tls-cert", "--tokens", "routines token", "127.0.0.1"] {
                assert!(refused.contains(word), "{word}: {refused}");
            }
        }
        assert!(Entrance::open("127.0.0.1:0".parse().unwrap(), &tls(&[]), None).is_ok());
    }
}
