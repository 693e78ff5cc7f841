//! The ledger, and the assignment of pods to requests.

use serde_json::{Value, json};

use super::{super::ledger::Ledger, *};
use crate::connector::MachineState;

/// A pod with its age in seconds since midnight, and further fields.
fn pod(name: &str, at: u32, more: &Value) -> Pod {
    let mut raw = json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-11-25T00:00:{at:02}Z")},
        "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
    });
    for part in ["metadata", "status"] {
        let (Some(fields), Some(more)) = (raw[part].as_object_mut(), more[part].as_object()) else {
            continue;
        };
        fields.extend(more.clone());
    }
    Pod::from(serde_json::from_value::<pods::RawPod>(raw).expect("a pod"))
}

fn pods(names: &[&str]) -> Vec<Pod> {
    (0..).zip(names).map(|(at, name)| pod(name, at, &Value::Null)).collect()
}

/// The names of the pods of a request.
fn names(ledger: &Ledger, of: &str, all: &[Pod]) -> Vec<String> {
    ledger.pods_of(&key(of), all).into_iter().map(|pod| pod.name.clone()).collect()
}

#[test]
fn oldest_pods_belong_to_oldest_requests() {
    let mut ledger = Ledger::default();
    // One pod existed before.
    ledger.request(&key("a"), 2, 1).expect("there is room");
    ledger.request(&key("b"), 2, 3).expect("there is room");
    let all = pods(&["p0", "p1", "p2", "p3"]);
    assert_eq!(names(&ledger, "a", &all), ["p1", "p2"]);
    assert_eq!(names(&ledger, "b", &all), ["p3"], "the second one is not there yet");
    assert!(ledger.has(&key("a")) && !ledger.has(&key("c")));

    // One is lost, and Kubernetes replaces it.
    let mut all = pods(&["p0", "p1", "p2", "p3", "p4", "p5"]);
    all[1] = pod("p1", 1, &json!({"metadata": {"deletionTimestamp": "2026-11-25T00:01:00Z"}}));
    assert_eq!(names(&ledger, "a", &all), ["p2", "p3"]);
    assert_eq!(names(&ledger, "b", &all), ["p4", "p5"]);
}

#[test]
fn pods_keep_recorded_request() {
    let mut ledger = Ledger::default();
    ledger.request(&key("a"), 2, 0).expect("there is room");
    ledger.request(&key("b"), 1, 2).expect("there is room");
    let noted =
        |name, at, key: &str| pod(name, at, &json!({"metadata": {"annotations": {"taskwork/key": key}}}));
    // In the same second, so that their names would decide.
    let all = [noted("x", 0, "a"), pod("y", 0, &Value::Null), noted("z", 0, "b")];
    assert_eq!(
        (names(&ledger, "a", &all), names(&ledger, "b", &all)),
        (vec!["x".into(), "y".into()], vec!["z".into()])
    );
    let unnoted: Vec<_> =
        ledger.unnoted(&all).into_iter().map(|(pod, key)| (pod.name.as_str(), key)).collect();
    assert_eq!(unnoted, [("y", key("a"))]);
    // A user has written impossible values.
    let odd = [noted("x", 0, "b"), noted("y", 1, "b"), noted("z", 2, "unknown"), noted("0", 3, "No Key")];
    assert_eq!(
        (names(&ledger, "a", &odd), names(&ledger, "b", &odd)),
        (vec!["y".into(), "z".into()], vec!["x".into()])
    );
    assert_eq!(ledger.assign(&odd)["0"], None);
}

#[test]
fn number_is_lowered_once_for_each_pod() {
    let mut ledger = Ledger::default();
    ledger.request(&key("a"), 2, 0).expect("there is room");
    ledger.request(&key("b"), 1, 2).expect("there is room");
    let all = pods(&["p0", "p1", "p2"]);
    let ending = [&all[0], &all[2]];
    assert_eq!(ledger.end(&ending, &all), 2);
    assert_eq!(ledger.end(&ending, &all), 0, "they are being ended already");
    assert_eq!((ledger.count(&key("a")), ledger.count(&key("b"))), (1, 0));
    assert_eq!(names(&ledger, "a", &all), ["p1"]);
    assert!(ledger.has(&key("b")), "it must not be done again");
    assert!(ledger.has_ended("p0"));
    // The pods are gone, so their records are removed.
    let left = pods(&["p1"]);
    assert_eq!(ledger.end(&[], &left), 0);
    assert!(!ledger.has_ended("p0"));

    let over = [pod("p1", 0, &json!({"status": {"phase": "Failed", "reason": "Evicted"}}))];
    assert_eq!(ledger.end(&[&over[0]], &over), 0, "it does not count, and is replaced already");
}

#[test]
fn refused_request_leaves_no_trace() {
    let mut ledger = Ledger::default();
    ledger.request(&key("a"), 3, 5).expect("there is room");
    assert_eq!(ledger.keep(&key("a"), 1), 2);
    assert_eq!((ledger.has(&key("a")), ledger.count(&key("a"))), (true, 1));
    assert_eq!(ledger.keep(&key("a"), 0), 1);
    assert!(!ledger.has(&key("a")), "it may be made again");
    assert_eq!(ledger.keep(&key("a"), 0), 0);
}

#[test]
fn ledger_size_is_bounded() {
    let mut ledger = Ledger::default();
    for number in 0..5000 {
        let key = key(&format!("0123456789abcdef-{number}"));
        ledger.request(&key, 1, 0).expect("there is room");
        let all = [pod(&format!("taskwork-node-5d4f8c7b9d-{number:05}"), 0, &Value::Null)];
        assert_eq!(ledger.end(&[&all[0]], &all), 1);
    }
    let text = serde_json::to_string(&ledger).expect("JSON");
    assert!(text.len() < 4096, "{} bytes", text.len());
    assert!(ledger.has(&key("0123456789abcdef-4999")), "the last ones are known");

    let mut full = Ledger::default();
    let refused = (0..5000).find_map(|number| full.request(&key(&format!("k-{number}")), 1, 0).err());
    assert_eq!(refused.expect("there is an end").why, crate::connector::Why::Exhausted);
    let text = serde_json::to_string(&full).expect("JSON");
    assert!(text.len() < 200 << 10, "{} bytes are too many for an annotation", text.len());
}

#[test]
fn pod_state_follows_its_program() {
    let state = |more: &Value, was_ended| pod("p", 0, more).state(was_ended);
    assert_eq!(state(&Value::Null, false), MachineState::Running);
    assert_eq!(state(&Value::Null, true), MachineState::Ending);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-25T00:01:00Z"}});
    assert_eq!(state(&deleted, false), MachineState::Ending);
    let pending = json!({"status": {"phase": "Pending", "containerStatuses": []}});
    assert_eq!(state(&pending, false), MachineState::Requested);
    let waits = |why: &str, restarts: u32| {
        let container = json!({"state": {"waiting": {"reason": why}}, "restartCount": restarts});
        state(&json!({"status": {"phase": "Pending", "containerStatuses": [container]}}), false)
    };
    assert_eq!(waits("ContainerCreating", 0), MachineState::Requested);
    // Its node never joins, so it is terminated.
    assert_eq!(waits("ContainerCreating", 1), MachineState::Running);
    for why in ["CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"] {
        assert_eq!(waits(why, 0), MachineState::Running, "{why}");
    }
    let crashes =
        json!({"status": {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
    assert_eq!(state(&crashes, false), MachineState::Running);
    let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}});
    assert_eq!(state(&evicted, false), MachineState::Gone, "to be taken away is no failure");
    let broken = json!({"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "x".repeat(9999)}});
    let MachineState::Failed(why) = state(&broken, false) else { panic!("it has failed") };
    assert!(why.contains("UnexpectedAdmissionError") && why.len() < 300, "{why}");
    assert_eq!(pod("p", 7, &Value::Null).created_ms, Some(1_795_564_807_000));
    let odd = json!({"metadata": {"creationTimestamp": "yesterday"}});
    assert_eq!(pod("p", 0, &odd).created_ms, None);
}
