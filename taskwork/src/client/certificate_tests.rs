//! Certificates of submitters: chains, names and signatures.

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use zk::{ClusterPaths, Release, job::BroughtProgram, job::JobRecord};

use super::{SubmitterError, Submitters, sign};
use crate::view::fixtures;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn certify(&self, name: &str, usage: Option<ExtendedKeyUsagePurpose>) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages.extend(usage);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn brought(identity: &(String, String)) -> (JobRecord, BroughtProgram) {
    let mut brought = BroughtProgram {
        object: format!("3-{}", "00".repeat(32)),
        target: "x86_64-linux".to_owned(),
        from: "n".to_owned(),
        certificates: String::new(),
        scheme: 0,
        signature: String::new(),
    };
    let record = fixtures::record();
    let release = Release { program: record.program.clone(), version: record.program_version.clone() };
    sign(identity, &ClusterPaths::new("c").unwrap(), &release, &mut brought).unwrap();
    (record, brought)
}

#[test]
fn certified_submitter_is_accepted_by_name_or_fingerprint() {
    let authority = Authority::new();
    let (record, brought) = brought(&authority.certify("alice.example", None));
    let check = |allowed: &[&str]| {
        let allowed: Vec<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        Submitters::certified(&authority.pem, &allowed).unwrap().check("c", &record, &brought)
    };
    assert!(check(&[]).is_ok() && check(&["bob.example", "alice.example"]).is_ok());
    let Err(SubmitterError::NotAllowed { fingerprint }) = check(&["bob.example"]) else {
        panic!("bob is alice")
    };
    assert!(check(&[&fingerprint]).is_ok());
    let with_colons: Vec<&str> = (0..32).map(|byte| &fingerprint[2 * byte..2 * byte + 2]).collect();
    assert!(check(&[&with_colons.join(":").to_uppercase()]).is_ok());
}

#[test]
fn name_that_only_a_wildcard_covers_is_not_allowed() {
    let authority = Authority::new();
    let (record, brought) = brought(&authority.certify("*.example", None));
    let check = |allowed: &str| {
        let submitters = Submitters::certified(&authority.pem, &[allowed.to_owned()]).unwrap();
        submitters.check("c", &record, &brought)
    };
    assert!(matches!(check("alice.example"), Err(SubmitterError::NotAllowed { .. })));
    let Err(SubmitterError::NotAllowed { fingerprint }) = check("bob.example") else {
        panic!("it is allowed")
    };
    assert!(check(&fingerprint).is_ok());
    let (record, exact) = self::brought(&authority.certify("Alice.example", None));
    let submitters = Submitters::certified(&authority.pem, &["alice.EXAMPLE".to_owned()]).unwrap();
    assert!(submitters.check("c", &record, &exact).is_ok(), "the case of letters has no meaning");
}

#[test]
fn certificate_of_the_agent_is_refused_unless_it_is_allowed() {
    let authority = Authority::new();
    let [agent, alice] = ["agent.example", "alice.example"].map(|name| authority.certify(name, None));
    let certified = |allowed: &[&str]| {
        let allowed: Vec<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        Submitters::certified(&authority.pem, &allowed).unwrap().except(&agent.0).unwrap()
    };
    let (record, own) = brought(&agent);
    let refused = certified(&[]).check("c", &record, &own);
    assert!(matches!(refused, Err(SubmitterError::Own { .. })), "{refused:?}");
    assert!(certified(&["agent.example"]).check("c", &record, &own).is_ok());
    let (record, others) = brought(&alice);
    assert!(certified(&[]).check("c", &record, &others).is_ok());
    assert!(Submitters::any().except("").is_err());
}

#[test]
fn chain_that_agents_refuse_is_not_signed() {
    let authority = Authority::new();
    let (certificate, key) = authority.certify("alice.example", None);
    let sign_with = |others: usize| {
        let (_, mut brought) = brought(&(certificate.clone(), key.clone()));
        let release = Release { program: "p".to_owned(), version: "1".to_owned() };
        let chain = format!("{certificate}{}", authority.pem.repeat(others));
        sign(&(chain, key.clone()), &ClusterPaths::new("c").unwrap(), &release, &mut brought)
    };
    assert!(sign_with(7).is_ok());
    assert!(sign_with(8).unwrap_err().contains("9 certificates"));
}

#[test]
fn key_in_file_of_certificate_is_not_published() {
    let authority = Authority::new();
    let (certificate, key) = authority.certify("alice", None);
    let (record, brought) = brought(&(format!("{key}{certificate}{}{key}", authority.pem), key.clone()));
    assert!(Submitters::certified(&authority.pem, &[]).unwrap().check("c", &record, &brought).is_ok());
    let is_the_same = |one: &str, other: &str| one.lines().eq(other.lines());
    assert!(is_the_same(&brought.certificates, &(certificate + &authority.pem)), "{}", brought.certificates);
}

#[test]
fn certificate_of_another_authority_or_for_servers_is_refused() {
    let (ours, others) = (Authority::new(), Authority::new());
    let submitters = Submitters::certified(&ours.pem, &[]).unwrap();
    for identity in
        [others.certify("alice", None), ours.certify("alice", Some(ExtendedKeyUsagePurpose::ServerAuth))]
    {
        let (record, brought) = brought(&identity);
        let refused = submitters.check("c", &record, &brought);
        assert!(matches!(refused, Err(SubmitterError::Certificate { .. })), "{refused:?}");
    }
}

#[test]
fn signature_of_another_program_release_or_cluster_is_refused() {
    let authority = Authority::new();
    let submitters = Submitters::certified(&authority.pem, &[]).unwrap();
    let (record, original) = brought(&authority.certify("alice", None));
    let refused = |cluster: &str, record: &JobRecord, brought: &BroughtProgram| {
        matches!(submitters.check(cluster, record, brought), Err(SubmitterError::Signature))
    };
    assert!(!refused("c", &record, &original));
    assert!(refused("d", &record, &original));
    assert!(refused("c", &JobRecord { program_version: "2".to_owned(), ..record.clone() }, &original));
    let object = format!("3-{}", "11".repeat(32));
    assert!(refused("c", &record, &BroughtProgram { object, ..original.clone() }));
    assert!(refused("c", &record, &BroughtProgram { scheme: 0, ..original.clone() }));
    for signature in ["", "0", "zz", "00"] {
        let forged = BroughtProgram { signature: signature.to_owned(), ..original.clone() };
        assert!(refused("c", &record, &forged), "{signature:?}");
    }
}

#[test]
fn program_without_signature_is_accepted_only_from_any_submitter() {
    let authority = Authority::new();
    let (record, signed) = brought(&authority.certify("alice", None));
    let unsigned = BroughtProgram { certificates: String::new(), ..signed };
    assert!(Submitters::any().check("c", &record, &unsigned).is_ok());
    let refused = Submitters::certified(&authority.pem, &[]).unwrap().check("c", &record, &unsigned);
    assert!(matches!(refused, Err(SubmitterError::Uncertified)), "{refused:?}");
}

#[test]
fn authority_without_certificate_and_invalid_names_are_refused() {
    let pem = Authority::new().pem;
    assert!(Submitters::certified("", &[]).is_err());
    assert!(Submitters::certified(&pem, &["a b".to_owned()]).is_err());
    // Names only: a machine may change its address.
    assert!(Submitters::certified(&pem, &["192.0.2.1".to_owned()]).is_err());
}
