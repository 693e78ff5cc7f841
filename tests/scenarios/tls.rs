//! TLS to ZooKeeper, with certificates on both sides.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use taskwork_tests::{cluster::Cluster, tree::Tree};
use zk_server::{Setup, TlsFiles};

/// An authority, and certificates that it has signed, as files in a folder.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Writes `<name>.cert` and `<name>.key`, and both in one as `<name>.pem`, for `localhost` and this name.
    pub(crate) fn sign(&self, folder: &Path, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned(), name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        fs::write(folder.join(format!("{name}.cert")), &certificate).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate + &key.serialize_pem()).unwrap();
    }
}

#[test]
fn nodes_and_commands_reach_zookeeper_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ours, others) = (Authority::new(), Authority::new());
    fs::write(at("ca.pem"), &ours.certificate).unwrap();
    fs::write(at("other-ca.pem"), &others.certificate).unwrap();
    ours.sign(folder.path(), "server");
    ours.sign(folder.path(), "client");
    others.sign(folder.path(), "stranger");
    let files = TlsFiles { key_store: at("server.pem").into(), trust_store: at("ca.pem").into() };
    let mut cluster = Cluster::start(&Setup { tls: Some(files), ..Setup::standalone() }).unwrap();
    cluster.environment = [
        ("TASKWORK_ZK", cluster.servers().tls_hosts()),
        ("TASKWORK_ZK_TLS_CA", at("ca.pem")),
        ("TASKWORK_ZK_TLS_CERT", at("client.cert")),
        ("TASKWORK_ZK_TLS_KEY", at("client.key")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let said = cluster.json("tree", &["submit", "12", "--wait"]).unwrap();
    assert_eq!(said["states"], Tree::sequential(12).0);

    // Also with credentials, although ZooKeeper accepts the certificate in place of them.
    let auth = folder.path().join("auth");
    fs::write(&auth, "user:password\n").unwrap();
    fs::set_permissions(&auth, fs::Permissions::from_mode(0o600)).unwrap();
    let nested = ["--cluster", "nested", "--zk-auth", auth.to_str().unwrap()];
    cluster.start_nodes("tree", 1, &nested).unwrap();
    let found = cluster.json("taskwork", &[&["doctor"], &nested[..]].concat()).unwrap();
    let access = found.as_array().unwrap().iter().find(|finding| finding["check"] == "access").unwrap();
    assert_eq!(access["ok"], true, "{found:#}");

    let quick = ["status", "--zk-connect-timeout", "2"];
    for (ca, name) in [("other-ca.pem", "client"), ("ca.pem", "stranger")] {
        let tls = ["--zk-tls-ca", &at(ca), "--zk-tls-cert", &at(&format!("{name}.cert")), "--zk-tls-key"];
        let key = at(&format!("{name}.key"));
        let refused = cluster.run("taskwork", &[&quick[..], &tls, &[&key]].concat()).unwrap();
        assert!(refused.code == 3 && refused.err.contains("TLS"), "{refused:?}");
    }
    let garbage = cluster.run("taskwork", &["status", "--zk-tls-ca", &at("client.key")]).unwrap();
    assert!(garbage.code == 2 && garbage.err.contains("TLS to ZooKeeper cannot be set up"), "{garbage:?}");
}
