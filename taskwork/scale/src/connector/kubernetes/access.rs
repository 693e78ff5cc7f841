//! The address of the Kubernetes API, and the credentials for it.

use std::{
    fs,
    io::Read as _,
    net::IpAddr,
    path::{Path, PathBuf},
};

use hyper::Uri;

/// The folder with the credentials of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The maximum size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An address with its credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) is_tls: bool,
    /// The host name or address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The prefix of the API's paths, such as that of a proxy; without a slash at its end.
    pub(super) prefix: String,
    pub(super) namespace: String,
    files: Files,
}

/// The files with the credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) token: Option<PathBuf>,
    /// The authorities that have signed the certificate of the API.
    pub(super) authorities: Option<PathBuf>,
}

impl Access {
    /// Combines the settings with those of the pod of this process, from its environment variables.
    pub(super) fn new(
        api: Option<&str>,
        namespace: Option<String>,
        files: Files,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        Self::at(api, namespace, files, variable, Path::new(SERVICE_ACCOUNT))
    }

    pub(super) fn at(
        api: Option<&str>,
        namespace: Option<String>,
        files: Files,
        variable: impl Fn(&str) -> Option<String>,
        account: &Path,
    ) -> Result<Self, String> {
        let is_inside = api.is_none();
        let url = if let Some(url) = api {
            url.to_owned()
        } else {
            let (Some(host), Some(port)) =
                (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"))
            else {
                return Err("this process is not in a Kubernetes pod (KUBERNETES_SERVICE_HOST is not set). Set api, for \
                            example to http://127.0.0.1:8001 with kubectl proxy"
                    .to_owned());
            };
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            format!("https://{host}:{port}")
        };
        let in_account = |file: &str| is_inside.then(|| account.join(file));
        let namespace = match (namespace, in_account("namespace")) {
            (Some(namespace), _) => namespace,
            (None, Some(file)) => read(&file)?.trim().to_owned(),
            (None, None) => {
                return Err(format!("namespace is missing: name the namespace of the Deployments at {url}"));
            }
        };
        check_name("namespace", &namespace)?;
        let (is_tls, host, port, prefix) = parse(&url)?;
        let this = Self {
            is_tls,
            host,
            port,
            prefix,
            namespace,
            files: Files {
                token: files.token.or_else(|| in_account("token")),
                authorities: files.authorities.or_else(|| in_account("ca.crt")),
            },
        };
        if this.is_tls && this.files.authorities.is_none() {
            return Err(format!(
                "{url}: ca_file is missing, a file with the certificates of the authorities that have signed that of the API"
            ));
        }
        if !this.is_tls && !is_loopback(&this.host) {
            return Err(format!(
                "{url}: http is for kubectl proxy on this machine; others on the network could read and change the \
                 traffic. Set https://… with ca_file and token_file"
            ));
        }
        // A file that is missing now would also be missing later.
        this.token()?;
        this.authorities()?;
        Ok(this)
    }

    /// Reads the current token: Kubernetes renews it each hour.
    pub(super) fn token(&self) -> Result<Option<String>, String> {
        let Some(file) = &self.files.token else { return Ok(None) };
        let token = read(file)?.trim().to_owned();
        let is_one = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if is_one { Ok(Some(token)) } else { Err(format!("{}: this is not a token", file.display())) }
    }

    /// Reads the current authorities, in PEM.
    pub(super) fn authorities(&self) -> Result<Option<String>, String> {
        self.files.authorities.as_deref().filter(|_| self.is_tls).map(read).transpose()
    }

    /// Returns host and port in the format of a request.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Returns whether an address uses TLS, its host, its port, and its path.
fn parse(url: &str) -> Result<(bool, String, u16, String), String> {
    let wrong =
        || format!("api {url:?}: expected http://127.0.0.1:8001 for kubectl proxy, or https://HOST:PORT");
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let is_tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(wrong()),
    };
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    let has_more = uri.query().is_some() || uri.authority().is_some_and(|it| it.as_str().contains('@'));
    if has_more {
        return Err(wrong());
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    Ok((is_tls, host, port, uri.path().trim_end_matches('/').to_owned()))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Checks a name that becomes part of a path.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!("{what} {name:?}: a name in Kubernetes consists of lowercase letters, digits, - and ."))
}

/// Returns whether Kubernetes would accept a name.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 253 && bytes.iter().copied().all(plain) && is_end(bytes.first()) && is_end(bytes.last())
}

fn read(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = fs::File::open(file).and_then(|opened| opened.take(FILE_BYTES_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}
