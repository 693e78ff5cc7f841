//! Settings, and defaults from the pod of the controller.

use std::fs;

use serde_json::json;

use super::{super::access::*, *};

#[test]
fn settings_default_to_those_of_pod() {
    let account = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(account.path().join(name), text).expect("a file");
    write("namespace", "search\n");
    write("token", "abc.def\n");
    write("ca.crt", "PEM");
    let inside = |name: &str| match name {
        "KUBERNETES_SERVICE_HOST" => Some("fd00::1".to_owned()),
        "KUBERNETES_SERVICE_PORT" => Some("6443".to_owned()),
        _ => None,
    };
    let open = || Access::at(None, None, Files::default(), inside, account.path());
    let access = open().expect("everything is there");
    assert_eq!((access.host.as_str(), access.port, access.namespace.as_str()), ("fd00::1", 6443, "search"));
    assert_eq!(access.authority(), "[fd00::1]:6443");
    assert_eq!(access.token(), Ok(Some("abc.def".to_owned())));
    // It is renewed during the test.
    write("token", "ghi");
    assert_eq!(access.token(), Ok(Some("ghi".to_owned())));
    assert_eq!(access.authorities(), Ok(Some("PEM".to_owned())));
    for odd in ["", "two lines\nof it", "umlaut-ä"] {
        write("token", odd);
        assert!(access.token().expect_err(odd).contains("this is not a token"));
        assert!(open().is_err());
    }
    fs::remove_file(account.path().join("token")).expect("it was there");
    assert!(open().expect_err("it is missing").contains("token"));
}

#[test]
fn settings_that_cannot_work_are_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let with = |more: serde_json::Value| {
        let mut settings =
            json!({"deployments": {"pods": "nodes"}, "namespace": "x", "api": "http://127.0.0.1:8001"});
        if let (Some(settings), serde_json::Value::Object(more)) = (settings.as_object_mut(), more) {
            settings.extend(more);
        }
        open(folder.path(), settings)
    };
    assert!(with(json!({})).is_ok());
    for (more, part) in [
        (json!({"api": "10.0.0.1"}), "expected http://127.0.0.1:8001"),
        (json!({"api": "ftp://127.0.0.1"}), "expected http://127.0.0.1:8001"),
        (json!({"api": "http://user:secret@127.0.0.1:8001"}), "expected http://127.0.0.1:8001"),
        (json!({"api": "http://10.0.0.1:8001"}), "others on the network"),
        (json!({"api": "http://127.0.0.1.example.org:8001"}), "others on the network"),
        (json!({"api": "https://10.0.0.1"}), "ca_file is missing"),
        (json!({"api": "https://10.0.0.1", "ca_file": "none.pem"}), "none.pem"),
        (json!({"namespace": "../x"}), "namespace \"../x\""),
        (json!({"namespace": null}), "namespace is missing"),
        (json!({"api": null}), "KUBERNETES_SERVICE_HOST"),
        (json!({"deployments": {"pods": "a/b"}}), "deployments \"a/b\""),
        (json!({"deployments": {}}), "none for the offer \"pods\""),
        (json!({"deployments": {"pods": "a", "more": "b"}}), "\"more\""),
        (json!({"kubeconfig": "x"}), "unknown field `kubeconfig`"),
    ] {
        let refused = with(more.clone()).expect_err(part);
        assert!(refused.contains(part), "{more}: no {part:?} in {refused:?}");
    }
}

#[test]
fn the_example_can_work() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/scale/kubernetes.json");
    let opened = crate::connector::open(file.as_ref(), "demo").expect("it can work");
    assert_eq!(opened.connector.offers().len(), 1);
}
