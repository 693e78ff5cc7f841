//! The requests sent, and the handling of all kinds of answers.

use std::{fs, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use super::{super::fake::*, *};
use crate::connector::{MachineState, Why};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/search/deployments/nodes";

fn deployment(replicas: u32, ledger: &Value) -> String {
    let annotations =
        if ledger.is_null() { json!({}) } else { json!({"taskwork/scale": ledger.to_string()}) };
    json!({
        "metadata": {"resourceVersion": "7", "generation": 1, "annotations": annotations},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "node", "of": "a b"}}},
        "status": {"observedGeneration": 1},
    })
    .to_string()
}

fn pods(names: &[&str]) -> Value {
    let pod = |name: &&str| {
        json!({
            "metadata": {"name": name, "uid": format!("u-{name}"), "creationTimestamp": "2026-11-25T00:00:00Z",
                "labels": {"pod-template-hash": "5d4f"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "nodes-5d4f", "controller": true}]},
            "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
        })
    };
    json!({"items": names.iter().map(pod).collect::<Vec<_>>()})
}

/// A connector to an API on loopback without TLS, such as `kubectl proxy`.
fn proxied(fake: &Fake) -> Kubernetes {
    let folder = tempfile::tempdir().expect("a folder");
    let api = format!("http://127.0.0.1:{}", fake.port);
    let settings = json!({"deployments": {"pods": "nodes"}, "namespace": "search", "api": api});
    open(folder.path(), settings).expect("it can work").hurried()
}

#[tokio::test]
async fn pods_are_created_by_one_conditional_patch_and_listed_by_pages() {
    let fake = Fake::start(None, |asked| match asked.line.split(' ').next() {
        Some("PATCH") => answer(200, &deployment(3, &Value::Null)),
        _ if asked.line.contains("continue=") => answer(200, &pods(&["p2"]).to_string()),
        _ if asked.line.contains("/pods?") => {
            let mut page = pods(&["p1"]);
            page["metadata"] = json!({"continue": "a+b/c"});
            answer(200, &page.to_string())
        }
        _ if asked.number == 0 => answer(200, &deployment(1, &Value::Null)),
        _ => answer(200, &deployment(3, &json!({"base": 0, "requests": [{"key": "k", "count": 2}]}))),
    })
    .await;
    let machines = proxied(&fake).create("pods", 2, &key("k")).await.expect("it is done");
    assert_eq!(machines.iter().map(MachineId::as_str).collect::<Vec<_>>(), ["p1", "p2"]);
    let asked = fake.asked();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    let list = "GET /api/v1/namespaces/search/pods?labelSelector=app%3Dnode%2Cof%3Da+b&limit=250";
    assert_eq!(
        lines,
        [
            &format!("GET {DEPLOYMENT}"),
            &format!("PATCH {DEPLOYMENT}"),
            &format!("GET {DEPLOYMENT}"),
            list,
            &format!("{list}&continue=a%2Bb%2Fc"),
            "PATCH /api/v1/namespaces/search/pods/p1",
            "PATCH /api/v1/namespaces/search/pods/p2",
        ]
    );
    let patch: Value = serde_json::from_str(&asked[1].body).expect("JSON");
    assert_eq!((&patch["metadata"]["resourceVersion"], &patch["spec"]["replicas"]), (&"7".into(), &3.into()));
    let ledger = patch["metadata"]["annotations"]["taskwork/scale"].as_str().expect("a ledger");
    let ledger: Value = serde_json::from_str(ledger).expect("JSON");
    assert_eq!((&ledger["base"], &ledger["requests"][0]["key"]), (&1.into(), &"k".into()));
    assert!(asked[1].headers.contains("content-type: application/merge-patch+json"), "{}", asked[1].headers);
    assert_eq!(asked[5].body, r#"{"metadata":{"annotations":{"taskwork/key":"k"}}}"#);
    assert!(!asked[1].headers.contains("authorization"), "the proxy has its own");
}

#[tokio::test]
async fn pods_are_ended_by_cost_number_and_deletion() {
    let fake = Fake::start(None, |asked| {
        if asked.line.starts_with("GET") && asked.line.contains("/pods?") {
            answer(200, &pods(&["p1", "p2"]).to_string())
        } else {
            answer(200, &deployment(2, &Value::Null))
        }
    })
    .await;
    let ids = ["p2", "p3"].map(|id| id.parse::<MachineId>().expect("an id"));
    proxied(&fake).terminate(&ids).await.expect("it is done");
    let asked = fake.asked();
    let [.., cost, _, fewer, delete] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(cost.line, "PATCH /api/v1/namespaces/search/pods/p2");
    assert!(cost.body.contains(r#""controller.kubernetes.io/pod-deletion-cost":"-1000""#), "{}", cost.body);
    let patch: Value = serde_json::from_str(&fewer.body).expect("JSON");
    assert_eq!(patch["spec"]["replicas"], 1, "p3 is gone already");
    assert_eq!(delete.line, "DELETE /api/v1/namespaces/search/pods/p2");
    assert!(delete.body.contains(r#""preconditions":{"uid":"u-p2"}"#), "{}", delete.body);
}

/// A new release as in docs/operating.md: a second Deployment whose pods have all labels of the first one.
#[tokio::test]
async fn pods_of_others_with_same_labels_are_untouched() {
    let others = |names: &[&str]| {
        let mut all = pods(names);
        let items = all["items"].as_array_mut().expect("pods");
        items[1]["metadata"]["ownerReferences"][0]["name"] = "nodes-2-5d4f".into();
        // A user has started it by hand.
        items[2]["metadata"]["ownerReferences"] = Value::Null;
        items[3]["metadata"]["ownerReferences"][0]["controller"] = false.into();
        all
    };
    let fake = Fake::start(None, move |asked| {
        if asked.line.starts_with("GET") && asked.line.contains("/pods?") {
            answer(200, &others(&["p1", "second", "debug", "guest"]).to_string())
        } else {
            answer(200, &deployment(1, &Value::Null))
        }
    })
    .await;
    let connector = proxied(&fake);
    let machines = connector.list().await.expect("it is read");
    assert_eq!(machines.iter().map(|machine| machine.id.as_str()).collect::<Vec<_>>(), ["p1"]);
    let ids = ["second", "debug", "guest"].map(|id| id.parse::<MachineId>().expect("an id"));
    connector.terminate(&ids).await.expect("there is nothing to do");
    assert!(fake.asked().iter().all(|asked| asked.line.starts_with("GET")), "{:?}", fake.asked());
}

#[tokio::test]
async fn dry_run_records_nothing() {
    let fake = Fake::start(None, |asked| {
        if asked.line.contains("/pods?") {
            answer(200, &pods(&["p1"]).to_string())
        } else {
            answer(200, &deployment(1, &json!({"base": 0, "requests": [{"key": "k", "count": 1}]})))
        }
    })
    .await;
    let machines = proxied(&fake).look().await.expect("it is read");
    assert_eq!(machines[0].key, Some(key("k")));
    assert!(fake.asked().iter().all(|asked| asked.line.starts_with("GET")), "{:?}", fake.asked());
    proxied(&fake).list().await.expect("it is read");
    assert!(fake.asked().iter().any(|asked| asked.line.starts_with("PATCH")), "{:?}", fake.asked());
}

/// Kubernetes does not create the pods now, so they could appear later.
#[tokio::test]
async fn missing_pods_are_requested_under_same_key() {
    let fake = Fake::start(None, |asked| {
        if asked.line.contains("/pods?") {
            answer(200, &pods(&["p1"]).to_string())
        } else {
            answer(200, &deployment(2, &json!({"base": 0, "requests": [{"key": "k", "count": 2}]})))
        }
    })
    .await;
    let refusal = proxied(&fake).create("pods", 2, &key("k")).await.expect_err("one is missing");
    assert!(refusal.why == Why::Unknown && refusal.message.contains("1 of 2 pods"), "{refusal}");
}

/// The number was raised, so the next try must use the same key.
#[tokio::test]
async fn failure_after_raised_number_leaves_outcome_unknown() {
    for status in [401, 403, 404] {
        let fake = Fake::start(None, move |asked| match asked.number {
            0 => answer(200, &deployment(1, &Value::Null)),
            1 => answer(200, &deployment(3, &Value::Null)),
            _ => answer(status, r#"{"message": "no"}"#),
        })
        .await;
        let refusal = proxied(&fake).create("pods", 2, &key("k")).await.expect_err("it is refused");
        assert_eq!(refusal.why, Why::Unknown, "{status}: {refusal}");
        let before = Fake::start(None, move |asked| match asked.number {
            0 => answer(200, &deployment(1, &Value::Null)),
            _ => answer(status, r#"{"message": "no"}"#),
        })
        .await;
        let refusal = proxied(&before).create("pods", 2, &key("k")).await.expect_err("it is refused");
        assert_eq!(refusal.why, Why::Wrong, "{status}: nothing was done: {refusal}");
    }
}

#[tokio::test]
async fn invalid_answers_are_reported_by_kind() {
    let error = |message: &str| json!({"kind": "Status", "message": message}).to_string();
    for (status, body, why, part) in [
        (401, error("Unauthorized"), Why::Wrong, "token_file"),
        (403, error("deployments.apps \"nodes\" is forbidden"), Why::Wrong, "components/scale"),
        (404, error("not found"), Why::Wrong, "namespace search"),
        (422, error("invalid"), Why::Wrong, "invalid"),
        (429, error("too many requests"), Why::Unknown, "status 429"),
        (500, "<html>".repeat(10), Why::Unknown, "status 500"),
        (503, String::new(), Why::Unknown, "status 503"),
        (302, String::new(), Why::Unknown, "status 302"),
        (200, "<html>".to_owned(), Why::Unknown, "cannot be parsed"),
        (200, "{}".to_owned(), Why::Unknown, "cannot be parsed"),
        (200, deployment(1, &json!("garbage")), Why::Wrong, "annotation taskwork/scale"),
        (200, deployment(1, &Value::Null).replace("matchLabels", "matchNothing"), Why::Wrong, "matchLabels"),
    ] {
        let fake = Fake::start(None, move |_| answer(status, &body)).await;
        let refusal = proxied(&fake).list().await.expect_err(part);
        assert!(refusal.why == why && refusal.message.contains(part), "{status}: {refusal:?}");
        assert!(refusal.message.len() < 1000, "{refusal}");
    }
}

#[tokio::test]
async fn faulty_api_is_reported_in_time() {
    let replies: [fn() -> Reply; 5] = [
        || Reply::Hang,
        || Reply::Send(Vec::new()),
        || Reply::Send(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        || Reply::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{".to_vec()),
        || answer(200, &" ".repeat(33 << 20)),
    ];
    for reply in replies {
        let fake = Fake::start(None, move |_| reply()).await;
        let api = format!("http://127.0.0.1:{}", fake.port);
        let access =
            Access::new(Some(&api), Some("x".to_owned()), Files::default(), |_| None).expect("it can work");
        let http = http::Http::with_timeout(access, Duration::from_millis(500));
        let refusal = http.send(hyper::Method::GET, "/", None).await.expect_err("it is no answer");
        assert_eq!(refusal.why, Why::Unknown, "{refusal}");
    }
    let fake = Fake::start(None, |_| Reply::Hang).await;
    let connector = proxied(&fake);
    fake.stop().await;
    let refusal = connector.list().await.expect_err("it is away");
    assert!(refusal.why == Why::Unknown && refusal.message.contains("cannot be reached"), "{refusal}");
}

#[tokio::test]
async fn pods_with_invalid_names_are_untouched() {
    for name in ["../../secrets/x", "", "A", "p?x=y"] {
        let fake = Fake::start(None, move |asked| {
            answer(
                200,
                &if asked.line.contains("/pods?") {
                    pods(&[name]).to_string()
                } else {
                    deployment(1, &Value::Null)
                },
            )
        })
        .await;
        assert_eq!(proxied(&fake).list().await.expect_err(name).why, Why::Unknown);
    }
}

#[tokio::test]
async fn expired_list_is_restarted() {
    let fake = Fake::start(None, |asked| match asked.number {
        1 => {
            answer(200, &json!({"metadata": {"continue": "x"}, "items": pods(&["old"])["items"]}).to_string())
        }
        2 => answer(410, "{}"),
        3 => answer(200, &pods(&["new"]).to_string()),
        _ => answer(200, &deployment(1, &Value::Null)),
    })
    .await;
    let machines = proxied(&fake).list().await.expect("it is read");
    assert_eq!(machines.iter().map(|machine| machine.id.as_str()).collect::<Vec<_>>(), ["new"]);
    assert_eq!(machines[0].state, MachineState::Running);
    let fake = Fake::start(None, |asked| {
        if asked.line.contains("/pods?") {
            answer(410, "{}")
        } else {
            answer(200, &deployment(1, &Value::Null))
        }
    })
    .await;
    assert_eq!(proxied(&fake).list().await.expect_err("always").why, Why::Unknown);
}

/// An authority with a certificate for this machine.
struct Authority {
    pem: String,
    acceptor: TlsAcceptor,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let its = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        let its = its.signed_by(&key, &issuer).expect("a certificate");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![its.der().clone()], key)
            .expect("they belong together");
        Self { pem, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

/// A connector that uses TLS, with its files in a folder.
fn secured(fake: &Fake, folder: &TempDir) -> Kubernetes {
    let settings = json!({
        "deployments": {"pods": "nodes"},
        "namespace": "search",
        "api": format!("https://127.0.0.1:{}", fake.port),
        "token_file": "token",
        "ca_file": "ca.pem",
    });
    open(folder.path(), settings).expect("it can work").hurried()
}

#[tokio::test]
async fn tls_checks_api_and_rereads_tokens_and_authorities() {
    let (ours, others) = (Authority::new(), Authority::new());
    let fake = Fake::start(Some(ours.acceptor), |asked| {
        let is_let_in = asked.headers.contains("authorization: bearer second\r\n");
        if !is_let_in {
            answer(401, r#"{"message": "Unauthorized"}"#)
        } else if asked.line.contains("/pods?") {
            answer(200, &pods(&["p1"]).to_string())
        } else {
            answer(200, &deployment(1, &Value::Null))
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("token", "first\n");
    write("ca.pem", &others.pem);
    let connector = secured(&fake, &folder);
    let refusal = connector.list().await.expect_err("it is somebody else");
    assert!(refusal.message.contains("TLS has failed"), "{refusal}");
    assert!(fake.asked().is_empty(), "nothing was sent, and no token above all");
    write("ca.pem", &ours.pem);
    let refusal = connector.list().await.expect_err("the token is not valid");
    assert!(refusal.why == Why::Wrong && refusal.message.contains("token_file"), "{refusal}");
    write("token", "second\n");
    assert_eq!(connector.list().await.expect("it is let in").len(), 1);
    for (pem, part) in [
        ("", "the file contains none"),
        ("-----BEGIN CERTIFICATE-----\nx\n", "certificates of the authorities"),
    ] {
        write("ca.pem", pem);
        let refusal = connector.list().await.expect_err(part);
        assert!(refusal.why == Why::Wrong && refusal.message.contains(part), "{refusal}");
    }
}
