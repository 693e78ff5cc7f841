//! The cluster that a command addresses, and the connection to it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use taskwork::{
    JobId, Labels,
    client::{Client, ClientBuilder, Connect, Credentials, Tls, read_text},
};

use crate::{Failure, interrupts::Notes};

/// The options that identify a cluster.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct ClusterArguments {
    /// The ZooKeeper servers, required: host:port,host:port/chroot.
    // Not required by the parser, because commands on records need no servers.
    #[arg(long, value_name = "HOSTS", env = "TASKWORK_ZK")]
    zk: Option<String>,
    /// The name of the cluster; several can share a ZooKeeper.
    #[arg(long, value_name = "NAME", default_value = "default", env = "TASKWORK_CLUSTER")]
    cluster: String,
    /// A file with the credentials for ZooKeeper, one line user:password; readable only by its owner, or a group
    /// assigned by root.
    #[arg(long, value_name = "FILE", env = "TASKWORK_ZK_AUTH")]
    zk_auth: Option<PathBuf>,
    /// Use TLS to ZooKeeper: a PEM file with the certificates of the authorities that signed those of the servers.
    #[arg(long, value_name = "FILE", env = "TASKWORK_ZK_TLS_CA")]
    zk_tls_ca: Option<PathBuf>,
    /// A PEM file with the client certificate for ZooKeeper.
    #[arg(
        long,
        value_name = "FILE",
        env = "TASKWORK_ZK_TLS_CERT",
        requires = "zk_tls_ca",
        requires = "zk_tls_key"
    )]
    zk_tls_cert: Option<PathBuf>,
    /// A PEM file with the key of the client certificate.
    #[arg(long, value_name = "FILE", env = "TASKWORK_ZK_TLS_KEY", requires = "zk_tls_cert")]
    zk_tls_key: Option<PathBuf>,
    /// Maximum time to try to reach ZooKeeper at the start, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    zk_connect_timeout: Duration,
    /// Time without contact after which ZooKeeper considers this process lost, in seconds; the servers may grant a
    /// shorter or longer time.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    zk_session_timeout: Duration,
    /// Trust the network: send unencrypted credentials to ZooKeeper, and allow a node without credentials that other
    /// machines can reach.
    #[arg(long)]
    insecure: bool,
}

/// Parses a job's id, or its number.
///
/// # Errors
/// If it is neither.
pub fn job_id(text: &str) -> Result<JobId, String> {
    let id = text.parse::<u32>().map_or_else(|_| text.to_owned(), |number| format!("j-{number:010}"));
    id.parse().map_err(|_| "expected an id such as j-0000000003, or 3".to_owned())
}

/// Merges the labels of a repeated option.
pub(crate) fn merged(option: &str, given: &[Labels]) -> Result<Labels, Failure> {
    let mut merged = Labels::default();
    for labels in given {
        merged.merge(labels).map_err(|error| Failure::usage(format!("{option}: {error}")))?;
    }
    Ok(merged)
}

/// The time for which a command retries.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub struct Patience {
    /// Maximum time to retry while ZooKeeper is unavailable, in seconds. [default: 30; unlimited while waiting for a
    /// job]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    zk_give_up: Option<Duration>,
}

/// The default of the maximum time that ZooKeeper may be unavailable.
const GIVE_UP: Duration = Duration::from_secs(30);

impl Patience {
    /// Returns the patience of a command that does not wait for a job.
    pub fn of_a_step(&self) -> Duration {
        self.zk_give_up.unwrap_or(GIVE_UP)
    }

    /// Returns the patience of a command that waits for a job; `None` means unlimited.
    pub fn of_waiting(&self) -> Option<Duration> {
        self.zk_give_up
    }
}

impl ClusterArguments {
    /// Returns whether servers are given.
    pub fn has_servers(&self) -> bool {
        self.zk.is_some()
    }

    /// Returns the connection settings.
    ///
    /// # Errors
    /// If no servers are given, a file cannot be read, or credentials would be sent unencrypted.
    pub fn connect(&self) -> Result<Connect, Failure> {
        let Some(servers) = &self.zk else {
            return Err(Failure::usage("give the servers: --zk HOSTS, or set TASKWORK_ZK"));
        };
        let mut connect = Connect::new(servers);
        connect.connect_timeout = self.zk_connect_timeout;
        connect.session_timeout = self.zk_session_timeout;
        // An unanswered request is sent to another server after half a session timeout.
        connect.request_timeout = (self.zk_session_timeout / 2).max(Duration::from_millis(500));
        if let Some(file) = &self.zk_auth {
            connect.credentials = Some(Credentials::from_file(file).map_err(Failure::usage)?);
        }
        if let Some(ca) = &self.zk_tls_ca {
            let identity = match (&self.zk_tls_cert, &self.zk_tls_key) {
                (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
                _ => None,
            };
            connect.tls = Some(Tls { ca: read(ca)?, identity });
        }
        if connect.exposes_credentials() && !self.insecure {
            return Err(Failure::usage(format!(
                "the credentials would go to {} in the clear, for everybody on the way to read.\n  \
                 Pass --zk-tls-ca FILE to use TLS to ZooKeeper (deploy/zookeeper/three-servers.cfg shows its \
                 side).\n  Or pass --insecure, if you trust everybody who can reach this network",
                connect.hosts
            )));
        }
        Ok(connect)
    }

    /// Returns the cluster's name.
    pub fn name(&self) -> &str {
        &self.cluster
    }

    /// Returns a client builder that prints outages.
    ///
    /// # Errors
    /// See [`connect`](Self::connect).
    pub fn client(&self, notes: &Notes) -> Result<ClientBuilder, Failure> {
        let notes = notes.clone();
        let builder = Client::builder_of(self.connect()?).cluster(&self.cluster);
        // The check for unencrypted credentials was done above.
        Ok(builder.insecure().on_outage(move |outage| notes.outage(outage)))
    }

    /// Returns the options by which another process addresses the same cluster, for its command line.
    pub fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = vec!["--cluster".into(), self.cluster.clone().into()];
        let texts = [("--zk", self.zk.as_ref())];
        let files = [
            ("--zk-auth", self.zk_auth.as_ref()),
            ("--zk-tls-ca", self.zk_tls_ca.as_ref()),
            ("--zk-tls-cert", self.zk_tls_cert.as_ref()),
            ("--zk-tls-key", self.zk_tls_key.as_ref()),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, OsString::from(text?))));
        let files = files.into_iter().filter_map(|(name, file)| Some((name, OsString::from(file?))));
        let times = [
            ("--zk-connect-timeout", self.zk_connect_timeout),
            ("--zk-session-timeout", self.zk_session_timeout),
        ];
        let times = times.map(|(name, time)| (name, time.as_secs_f64().to_string().into()));
        for (name, value) in texts.chain(files).chain(times) {
            options.extend([name.into(), value]);
        }
        options.extend(self.insecure.then(|| "--insecure".into()));
        options
    }

    /// Returns whether the network is trusted.
    pub fn is_insecure(&self) -> bool {
        self.insecure
    }
}

/// The maximum size of a PEM file, in bytes. The certificate authorities of a system take 200 KiB.
const PEM_BYTES_MAX: u64 = 1 << 20;

fn read(file: &Path) -> Result<String, Failure> {
    read_text(file, PEM_BYTES_MAX).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

/// Parses a time between a millisecond and a day.
///
/// # Errors
/// If it is invalid.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.001..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("expected 0.001 to 86400 seconds".to_owned())
    }
}

/// The maximum of a time option.
const TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Parses a time of up to a year, in seconds or with units.
///
/// # Errors
/// If it is invalid.
pub fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time of up to a year, such as 90s, 10m or 1h 30m".to_owned();
    let time = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => humantime::parse_duration(text).map_err(|_| expected())?,
    };
    if time.is_zero() || time > TIME_MAX { Err(expected()) } else { Ok(time) }
}

/// Creates the runtime for a command's connections.
///
/// # Errors
/// If the system refuses it.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no thread could be started: {error}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cluster: ClusterArguments,
    }

    #[test]
    fn missing_servers_are_reported_with_remedy() {
        let Line { mut cluster } = Line::try_parse_from(["test"]).unwrap();
        // The variable may be set in the environment of the test.
        cluster.zk = None;
        let refused = cluster.connect().unwrap_err();
        assert_eq!(format!("{:?}", refused.exit_code()), format!("{:?}", std::process::ExitCode::from(2)));
        let refused = refused.to_string();
        assert!(refused.contains("--zk HOSTS") && refused.contains("TASKWORK_ZK"), "{refused}");
        let Line { cluster } = Line::try_parse_from(["test", "--zk", "a:1"]).unwrap();
        assert_eq!(cluster.connect().unwrap().hosts, "a:1");
    }

    #[test]
    fn options_for_another_process_are_those_of_this_one() {
        let given = [
            "test",
            "--cluster",
            "c",
            "--zk",
            "a:1",
            "--zk-auth",
            "f",
            "--zk-tls-ca",
            "ca",
            "--zk-tls-cert",
            "cert",
            "--zk-tls-key",
            "key",
            "--zk-connect-timeout",
            "2.5",
            "--zk-session-timeout",
            "7",
            "--insecure",
        ];
        let Line { cluster } = Line::try_parse_from(given).unwrap();
        assert_eq!(cluster.options(), given[1..].iter().map(OsString::from).collect::<Vec<_>>());
    }

    #[test]
    fn tls_file_without_end_is_refused_by_size() {
        for option in ["--zk-tls-ca", "--zk-tls-cert", "--zk-tls-key"] {
            let file = |of: &str| if of == option { "/dev/zero" } else { "/dev/null" };
            let line = ["test", "--zk", "a:1"].into_iter();
            let options =
                ["--zk-tls-ca", "--zk-tls-cert", "--zk-tls-key"].into_iter().flat_map(|of| [of, file(of)]);
            let Line { cluster } = Line::try_parse_from(line.chain(options)).unwrap();
            let refused = cluster.connect().unwrap_err().to_string();
            assert_eq!(refused, "/dev/zero: it has more than 1048576 bytes", "{option}");
        }
    }

    #[test]
    fn time_has_units_or_is_in_seconds() {
        assert_eq!(time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(time("1h 30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "0", "0s", "-1", "ten", "1.5", "2years", "99999999999999999999h"] {
            assert!(time(wrong).unwrap_err().contains("10m"), "{wrong:?}");
        }
    }
}
