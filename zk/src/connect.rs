//! Connection settings for ZooKeeper: address, time limits, credentials and TLS. Instead of a ZooKeeper, they can contain a
//! tree within this process.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustls_pki_types::ServerName;
use thiserror::Error as ThisError;
use tokio::time;
use zookeeper_client::{self as zookeeper, Client, Connector, SessionInfo};

use crate::{
    client::ServerStore,
    durable,
    memory::MemoryTree,
    retry::{Policy, Retry},
    secret::{SecretError, read_secret},
    store::Store,
    tree::CHROOT_BYTES_MAX,
};

/// The address of a ZooKeeper, with time limits and credentials; or a tree within this process.
#[derive(Debug, Clone)]
pub struct Connect {
    /// The servers: `host:port,host:port/chroot`. The port defaults to 2181; the chroot is optional.
    pub hosts: String,
    /// Time without contact after which the servers consider this client lost. They may grant less or more.
    pub session_timeout: Duration,
    /// Maximum time to try to reach a server.
    pub connect_timeout: Duration,
    /// Maximum time to wait for the answer to a request.
    pub request_timeout: Duration,
    /// The credentials of this session, if any. Its znodes can then only be read and written with the same
    /// credentials.
    pub credentials: Option<Credentials>,
    /// The TLS settings; `None` connects without encryption.
    pub tls: Option<Tls>,
    /// The tree that is opened instead of a ZooKeeper: see [`in_memory`](Self::in_memory).
    pub tree: Option<MemoryTree>,
}

/// A user and a password, for ZooKeeper's scheme `digest`. Never printed.
#[derive(Clone)]
pub struct Credentials(String);

/// The TLS settings of a client, in PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificates of the authorities that signed the servers' certificates.
    pub ca: String,
    /// The client's certificate and key, if the servers require one.
    pub identity: Option<(String, String)>,
}

/// Why no connection could be opened.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text does not name servers.
    #[error("{hosts:?} does not name ZooKeeper servers: {reason}. Expected host:port,host:port/chroot")]
    Hosts {
        /// The given text.
        hosts: String,
        /// Why it does not.
        reason: String,
    },
    /// No server has answered.
    #[error(
        "no ZooKeeper answered at {hosts} within {waited_ms} ms. Is it running, is the address \
         right{tls_hint}?"
    )]
    Unreachable {
        /// The servers.
        hosts: String,
        /// The time that the client tried, in milliseconds.
        waited_ms: u64,
        /// A hint on TLS, if it is used.
        tls_hint: &'static str,
    },
    /// The chroot does not exist.
    #[error("the ZooKeeper at {hosts} has no znode {chroot}: create it, or leave it out of the address")]
    NoChroot {
        /// The servers.
        hosts: String,
        /// The chroot.
        chroot: String,
    },
    /// The TLS settings cannot be used.
    #[error("TLS to ZooKeeper cannot be set up: {reason}")]
    Tls {
        /// The problem.
        reason: String,
    },
    /// TLS was requested from a program that is built without the feature `tls`.
    #[error("this program was built without TLS to ZooKeeper: build it with --features tls")]
    NoTls,
}

/// Why no credentials could be read from a file.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("{file}: the credentials cannot be read: {cause}")]
    Read {
        /// The file.
        file: String,
        /// The operating system's reason.
        cause: std::io::Error,
    },
    /// The file does not contain `user:password`.
    #[error("{file}: expected one line user:password, and nothing else")]
    Malformed {
        /// The file.
        file: String,
    },
    /// Others can read the file.
    #[error("{file}: other users of this machine can read it (mode {mode:03o}): chmod 600 {file}")]
    Exposed {
        /// The file.
        file: String,
        /// Its permissions.
        mode: u32,
    },
}

impl Connect {
    /// Creates settings without credentials and encryption, with a session timeout of 10 s, and time limits
    /// of 5 s for each request and 10 s for the connection.
    pub fn new(hosts: impl Into<String>) -> Self {
        Self {
            hosts: hosts.into(),
            session_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(5),
            credentials: None,
            tls: None,
            tree: None,
        }
    }

    /// Creates settings for a new tree in the memory of this process. Their copies open the same tree.
    pub fn in_memory() -> Self {
        Self::embedded(MemoryTree::new())
    }

    /// Creates settings for the tree in a folder, which survives the process. The folder is locked until the last copy
    /// of the settings, and the last session, is dropped.
    ///
    /// # Errors
    /// See [`durable::open`].
    pub fn in_folder(folder: &Path) -> Result<Self, durable::OpenError> {
        Ok(Self::embedded(durable::open(folder)?))
    }

    fn embedded(tree: MemoryTree) -> Self {
        Self { tree: Some(tree), ..Self::new("this process") }
    }

    /// Starts a session.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn open(&self) -> Result<Arc<dyn Store>, ConnectError> {
        if let Some(tree) = &self.tree {
            return Ok(tree.connect());
        }
        self.check_hosts()?;
        // Bad TLS settings are reported at once.
        self.connector()?;
        let opened = time::timeout(self.connect_timeout, self.insist()).await;
        Ok(opened.unwrap_or_else(|_| Err(self.unreachable()))?)
    }

    /// Retries until a server answers: the client gives up after each round of all servers.
    async fn insist(&self) -> Result<Arc<ServerStore>, ConnectError> {
        let mut retry = Retry::by_chance(Policy::REQUEST);
        loop {
            match self.once(None).await {
                Ok(client) => {
                    let chroot = client.path().to_owned();
                    let store = ServerStore::new(client, self);
                    match store.exists("/").await {
                        Ok(Some(_)) => return Ok(Arc::new(store)),
                        Ok(None) => return Err(ConnectError::NoChroot { hosts: self.hosts.clone(), chroot }),
                        Err(error) => tracing::debug!(%error, "the connection was lost again"),
                    }
                }
                Err(zookeeper::Error::BadArguments(reason)) => return Err(self.not_hosts(reason)),
                Err(error) => tracing::debug!(%error, "no server has answered"),
            }
            time::sleep(retry.pause()).await;
        }
    }

    /// Tries every server once, to start or resume a session.
    pub(crate) async fn once(&self, session: Option<SessionInfo>) -> Result<Client, zookeeper::Error> {
        let Ok(mut connector) = self.connector() else {
            return Err(zookeeper::Error::BadArguments(&"TLS cannot be set up"));
        };
        if let Some(session) = session {
            connector = connector.with_session(session);
        }
        let hosts = repeated(&self.hosts);
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return connector.secure_connect(&hosts).await;
        }
        connector.connect(&hosts).await
    }

    fn connector(&self) -> Result<Connector, ConnectError> {
        let mut connector =
            Client::connector().with_session_timeout(self.session_timeout).with_fail_eagerly();
        if let Some(Credentials(secret)) = &self.credentials {
            connector = connector.with_auth("digest", secret.as_bytes());
        }
        match &self.tls {
            None => Ok(connector),
            Some(tls) => tls.apply(connector),
        }
    }

    /// Checks that the text names servers. Every host must be a valid TLS server name, because the client
    /// assumes it.
    ///
    /// # Errors
    /// [`ConnectError::Hosts`].
    pub fn check_hosts(&self) -> Result<(), ConnectError> {
        let servers = self.hosts.split_once('/').map_or(self.hosts.as_str(), |(servers, _)| servers);
        let chroot_bytes = self.hosts.split_once('/').map_or(0, |(_, chroot)| chroot.len() + 1);
        if chroot_bytes > CHROOT_BYTES_MAX {
            return Err(self.not_hosts(&format!("its chroot is longer than {CHROOT_BYTES_MAX} bytes")));
        }
        if self.hosts.contains("://") {
            return Err(self.not_hosts("it must not name a protocol"));
        }
        servers.split(',').try_for_each(check_server).map_err(|reason| self.not_hosts(&reason))
    }

    /// Returns whether the credentials would be sent over a network unencrypted: there are credentials, there
    /// is no TLS, and a named server is not on this machine. No name is resolved: only `localhost`,
    /// `127.0.0.0/8` and `::1` count as this machine.
    pub fn exposes_credentials(&self) -> bool {
        let servers = self.hosts.split_once('/').map_or(self.hosts.as_str(), |(servers, _)| servers);
        self.credentials.is_some() && self.tls.is_none() && !servers.split(',').all(is_loopback)
    }

    fn not_hosts(&self, reason: &str) -> ConnectError {
        let hosts = self.hosts.chars().take(HOSTS_SHOWN_MAX).collect();
        ConnectError::Hosts { hosts, reason: reason.chars().take(HOSTS_SHOWN_MAX).collect() }
    }

    fn unreachable(&self) -> ConnectError {
        ConnectError::Unreachable {
            hosts: self.hosts.clone(),
            waited_ms: u64::try_from(self.connect_timeout.as_millis()).unwrap_or(u64::MAX),
            tls_hint: if self.tls.is_some() {
                ", does it speak TLS there, is its certificate trusted"
            } else {
                ""
            },
        }
    }
}

/// The number of servers with which the pauses between tries stay below a second for ten seconds.
const SERVERS_MIN: usize = 20;

/// Repeats the servers of an address. A session that has lost its connection tries its servers in turn: the pause before
/// the n-th of a round is about n · 50 ms, but the pause between rounds doubles each time. With one server, the session
/// would return up to 6 s after an outage of 6 s.
fn repeated(hosts: &str) -> String {
    let (servers, chroot) = hosts.split_once('/').unwrap_or((hosts, ""));
    let times = SERVERS_MIN.div_ceil(servers.split(',').count());
    let slash = if hosts.contains('/') { "/" } else { "" };
    format!("{}{slash}{chroot}", vec![servers; times].join(","))
}

/// Checks that a text is a host, with or without a port.
fn check_server(server: &str) -> Result<(), String> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let closed = rest.split_once(']').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok());
            let (host, after) =
                closed.ok_or_else(|| format!("{server:?} is not a bracketed IPv6 address"))?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => {
                    return Err(format!(
                        "{after:?} follows the bracket, where a colon and a port may follow"
                    ));
                }
            }
        }
        // With or without a port: an address that ends with a number can be read either way.
        None if server.matches(':').count() > 1 => {
            let is_address = server.parse::<Ipv6Addr>().is_ok();
            return Err(if is_address {
                format!("put an IPv6 address into brackets: [{server}]:2181")
            } else {
                format!("{server:?} is not a host; an IPv6 address needs brackets, such as [::1]:2181")
            });
        }
        None => server.split_once(':').map_or((server, None), |(host, port)| (host, Some(port))),
    };
    if let Some(port) = port.filter(|port| port.parse::<u16>().is_err()) {
        return Err(format!("{port:?} is not a port"));
    }
    if ServerName::try_from(host).is_err() {
        return Err(format!("{host:?} is not a host"));
    }
    Ok(())
}

/// Returns whether a server, with or without a port, is on this machine according to its name.
fn is_loopback(server: &str) -> bool {
    let host = match server.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(host, _)| host),
        // An IPv6 address without brackets has no port.
        None if server.matches(':').count() > 1 => server,
        None => server.split_once(':').map_or(server, |(host, _)| host),
    };
    let is_name = host.trim_end_matches('.').eq_ignore_ascii_case("localhost");
    is_name || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

const CREDENTIALS_BYTES_MAX: u64 = 64 << 10;

/// The maximum length of the given hosts in an error, in characters.
const HOSTS_SHOWN_MAX: usize = 200;

impl Credentials {
    /// Reads `user:password` from a file that only its owner can read.
    ///
    /// # Errors
    /// See [`CredentialsError`].
    pub fn from_file(path: &Path) -> Result<Self, CredentialsError> {
        let file = || path.display().to_string();
        let text = read_secret(path, CREDENTIALS_BYTES_MAX).map_err(|error| match error {
            SecretError::Read(cause) => CredentialsError::Read { file: file(), cause },
            SecretError::Exposed { mode } => CredentialsError::Exposed { file: file(), mode },
            SecretError::TooLarge { .. } => CredentialsError::Malformed { file: file() },
        })?;
        Self::parse(&text).ok_or_else(|| CredentialsError::Malformed { file: file() })
    }

    /// Parses `user:password`, with or without a line end. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
        let (user, password) = line.split_once(':')?;
        let clean = !user.is_empty() && !password.is_empty() && !line.contains(char::is_control);
        clean.then(|| Self(line.to_owned()))
    }
}

#[cfg(feature = "tls")]
impl Tls {
    fn apply(&self, connector: Connector) -> Result<Connector, ConnectError> {
        // With more than one provider in a program, rustls chooses none by itself. A provider that was
        // installed before stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |error: zookeeper::Error| ConnectError::Tls { reason: error.to_string() };
        let options = zookeeper::TlsOptions::new().with_pem_ca(&self.ca).map_err(failed)?;
        let options = match &self.identity {
            None => options,
            Some((certificate, key)) => options.with_pem_identity(certificate, key).map_err(failed)?,
        };
        Ok(connector.with_tls(options))
    }
}

#[cfg(not(feature = "tls"))]
impl Tls {
    #[expect(clippy::unused_self, reason = "with the feature `tls`, the settings are applied")]
    fn apply(&self, _: Connector) -> Result<Connector, ConnectError> {
        Err(ConnectError::NoTls)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// Omits the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_repeated_with_its_chroot() {
        assert_eq!(repeated("a"), ["a"; 20].join(","));
        assert_eq!(repeated("a:1,[::1]:2,c/x/y"), format!("{}/x/y", ["a:1,[::1]:2,c"; 7].join(",")));
        let many = vec!["a"; 21].join(",");
        assert_eq!(repeated(&many), many);
    }

    #[test]
    fn invalid_hosts_are_refused_before_connecting() {
        let long = format!("a/{}", "x".repeat(CHROOT_BYTES_MAX));
        for bad in
            [long.as_str(), "", ",", "a b", "host:port", "host:99999", "x:1,", "tcp://x:1", ":2181", "\0:1"]
        {
            let error = Connect::new(bad).check_hosts().unwrap_err();
            assert!(error.to_string().contains("host:port"), "{bad:?}: {error}");
        }
        for good in ["a", "a:1", "a.b:1,c:2/x/y", "127.0.0.1:2181", "[::1]:2181", "localhost/x"] {
            assert_eq!(Connect::new(good).check_hosts(), Ok(()), "{good}");
        }
    }

    #[test]
    fn ipv6_address_without_brackets_is_refused_with_the_remedy() {
        for bare in ["::1", "2001:db8::1", "a:1,::1", "::1/chroot", "fe80::1:2181"] {
            let error = Connect::new(bare).check_hosts().unwrap_err().to_string();
            assert!(error.contains("into brackets: ["), "{bare}: {error}");
        }
        let broken = [
            "::1]:2181",
            "[::1:2181",
            "[::1]2181",
            "[::1]x:1",
            "[a]:1",
            "[]:1",
            "[::1]]:1",
            "[[::1]]:1",
            "a:1:2",
        ];
        for broken in broken {
            let error = Connect::new(broken).check_hosts().unwrap_err().to_string();
            assert!(error.contains("bracket"), "{broken}: {error}");
        }
        for good in ["[::1]", "[::1]:2181", "[2001:db8::1]:1,[::2]/x", "[::ffff:127.0.0.1]"] {
            assert_eq!(Connect::new(good).check_hosts(), Ok(()), "{good}");
        }
    }

    #[test]
    fn credentials_parse_one_line_and_are_never_printed() {
        for bad in ["", "x", ":y", "x:", "x:y\nz", "x:\u{7}"] {
            assert!(Credentials::parse(bad).is_none(), "{bad:?}");
        }
        let credentials = Credentials::parse("me:secret\r\n").unwrap();
        assert_eq!(credentials.0, "me:secret");
        let mut connect = Connect::new("a");
        connect.credentials = Some(credentials);
        assert!(!format!("{connect:?}").contains("secret"));
    }

    #[test]
    fn credentials_without_tls_are_exposed_except_on_loopback() {
        let connect = |hosts: &str| {
            let credentials = Credentials::parse("me:secret");
            Connect { credentials, ..Connect::new(hosts) }
        };
        let here = [
            "127.0.0.1:2181",
            "localhost",
            "LocalHost:1,127.9.9.9/chroot",
            "[::1]:2181",
            "::1",
            "[::ffff:127.0.0.1]",
        ];
        for hosts in here {
            assert!(!connect(hosts).exposes_credentials(), "{hosts}");
        }
        for hosts in [
            "10.0.0.1:2181",
            "localhost:1,zk",
            "localhost.example",
            "127.0.0.1.example",
            "[::2]:1",
            "0.0.0.0",
        ] {
            assert!(connect(hosts).exposes_credentials(), "{hosts}");
            assert!(!Connect::new(hosts).exposes_credentials(), "there are none");
            let tls = Some(Tls { ca: String::new(), identity: None });
            assert!(!Connect { tls, ..connect(hosts) }.exposes_credentials(), "they are encrypted");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[tokio::test]
    async fn tls_without_the_feature_is_refused_with_the_remedy() {
        let tls = Some(Tls { ca: String::new(), identity: None });
        let refused = Connect { tls, ..Connect::new("127.0.0.1:1") }.open().await.unwrap_err();
        assert_eq!(refused, ConnectError::NoTls);
        assert!(refused.to_string().contains("--features tls"), "{refused}");
    }

    #[cfg(unix)]
    #[test]
    fn credentials_file_readable_by_others_is_refused() {
        use std::{fs, os::unix::fs::PermissionsExt as _};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        fs::write(&file, "me:secret\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Credentials::from_file(&file).unwrap_err().to_string();
        assert!(error.contains("640") && error.contains("chmod 600") && !error.contains("secret"), "{error}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Credentials::from_file(&file).is_ok());
    }
}
