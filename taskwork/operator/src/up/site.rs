//! The record of a cluster on the machine that created it: machines, credentials and certificates.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use taskwork_cli::Failure;

use super::machine::{LOOPBACK, Machine};

/// The folder of a cluster in the home directory, here and on each machine.
const FOLDER: &str = ".local/share/taskwork";

/// The file with the record.
const RECORD: &str = "machines.json";

/// A cluster that was created from here.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The machines. ZooKeeper runs on the first one.
    pub(super) machines: Vec<Machine>,
    /// The addresses of the machines.
    pub(super) addresses: Vec<String>,
    pub(super) zk_port: u16,
    /// The nodes on each machine, by program.
    pub(super) programs: BTreeMap<String, Nodes>,
}

/// The nodes of a program on each machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Nodes {
    pub(super) count: u16,
    pub(super) port: u16,
    pub(super) options: Vec<String>,
}

impl Record {
    /// Returns whether all of the cluster is on this machine, and nothing listens for others.
    pub(super) fn is_here(&self) -> bool {
        self.addresses.iter().all(|address| address == LOOPBACK)
    }

    /// Returns the address of ZooKeeper.
    pub(super) fn zookeeper(&self) -> String {
        let address = &self.addresses[0];
        let is_v6 = address.contains(':');
        if is_v6 { format!("[{address}]:{}", self.zk_port) } else { format!("{address}:{}", self.zk_port) }
    }
}

/// The files of a cluster on this machine.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) cluster: String,
    pub(super) folder: PathBuf,
}

/// A file for the other machines: its name and its text.
pub(super) type Text = (&'static str, String);

impl Site {
    pub(super) fn new(cluster: &str) -> Result<Self, Failure> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if cluster.is_empty() || !cluster.chars().all(is_name) {
            return Err(Failure::usage(format!("--cluster {cluster:?}: expected letters, digits, _ and -")));
        }
        let home = env::var_os("HOME").ok_or_else(|| Failure::usage("the variable HOME is not set"))?;
        Ok(Self { cluster: cluster.to_owned(), folder: Path::new(&home).join(FOLDER).join(cluster) })
    }

    /// Returns the record, if the cluster exists.
    pub(super) fn record(&self) -> Result<Option<Record>, Failure> {
        let file = self.folder.join(RECORD);
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| failed(&file, &error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&file, &error)),
        }
    }

    /// Writes the files that all machines need, and returns them. Secrets of an existing cluster stay.
    pub(super) fn write(&self, record: &Record) -> Result<Vec<Text>, Failure> {
        if !self.folder.join("credentials").exists() {
            self.write_file("credentials", &format!("taskwork:{}\n", password()?))?;
        }
        let has_tls = !record.is_here();
        if has_tls && !self.folder.join("server.pem").exists() {
            for (name, text) in certificates(&record.addresses[0])
                .map_err(|error| Failure::failed(format!("no certificate can be created: {error}")))?
            {
                self.write_file(name, &text)?;
            }
        }
        self.write_file("env", &self.environment(record))?;
        let names: &[_] = if has_tls {
            &["env", "credentials", "ca.pem", "node.cert", "node.key"]
        } else {
            &["env", "credentials"]
        };
        names.iter().map(|name| Ok((*name, self.read(name)?))).collect()
    }

    /// Writes the record.
    pub(super) fn save(&self, record: &Record) -> Result<(), Failure> {
        self.write_file(RECORD, &serde_json::to_string(record).unwrap_or_default())
    }

    pub(super) fn read(&self, name: &str) -> Result<String, Failure> {
        let file = self.folder.join(name);
        fs::read_to_string(&file).map_err(|error| failed(&file, &error))
    }

    fn write_file(&self, name: &str, text: &str) -> Result<(), Failure> {
        let (file, part) = (self.folder.join(name), self.folder.join(format!("{name}.part")));
        let write = || {
            let mut options = fs::OpenOptions::new();
            options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&part)?
                .write_all(text.as_bytes())?;
            fs::rename(&part, &file)
        };
        write().map_err(|error| failed(&file, &error))
    }

    /// Returns the variables of nodes and commands, in the language of the shell.
    fn environment(&self, record: &Record) -> String {
        let folder = format!("$HOME/{FOLDER}/{}", self.cluster);
        let mut lines = vec![
            format!("export TASKWORK_ZK={}", record.zookeeper()),
            format!("export TASKWORK_CLUSTER={}", self.cluster),
            format!("export TASKWORK_ZK_AUTH=\"{folder}/credentials\""),
        ];
        for (name, file) in [("CA", "ca.pem"), ("CERT", "node.cert"), ("KEY", "node.key")] {
            let name = format!("TASKWORK_ZK_TLS_{name}");
            lines.push(if record.is_here() {
                // It may be that of another cluster.
                format!("unset {name}")
            } else {
                format!("export {name}=\"{folder}/{file}\"")
            });
        }
        lines.join("\n") + "\n"
    }

    /// Removes the record, and the certificate of the first machine, which may be another one the next time.
    pub(super) fn forget(&self) -> Result<(), Failure> {
        for name in ["server.pem", RECORD] {
            let file = self.folder.join(name);
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&file, &error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Excludes other commands that change the cluster from here, until the file is closed.
    pub(super) fn lock(&self) -> Result<fs::File, Failure> {
        fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, &error))?;
        let file = self.folder.join("lock");
        let lock = fs::File::create(&file).map_err(|error| failed(&file, &error))?;
        lock.try_lock().map_err(|_| {
            Failure::failed(format!("another `taskwork up` or `down` changes cluster {} now", self.cluster))
        })?;
        Ok(lock)
    }
}

fn failed(file: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", file.display()))
}

fn password() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Failure::failed("the system provides no randomness"))?;
    Ok(blake3::Hash::from_bytes(bytes).to_hex().to_string())
}

/// Creates an authority, a certificate of the server at an address, and one for nodes and commands. The key of the
/// authority is not kept.
fn certificates(address: &str) -> Result<Vec<Text>, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let ca = authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(authority, key);
    let signed = |name: &str| {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &issuer)?.pem();
        Ok::<_, rcgen::Error>((certificate, key.serialize_pem()))
    };
    let (server, server_key) = signed(address)?;
    let (node, node_key) = signed("node")?;
    Ok(vec![
        ("ca.pem", ca),
        ("node.cert", node),
        ("node.key", node_key),
        ("server.pem", server + &server_key),
    ])
}
