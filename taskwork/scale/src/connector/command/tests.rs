//! Programs that follow the protocol, and programs that do not.

use std::{fs, path::Path, time::Instant};

use tempfile::TempDir;

use super::*;
use crate::connector::{Why, file, scripts};

/// A folder with a connector's file and programs, some of them shell scripts.
struct Stage {
    folder: TempDir,
    connector: Box<dyn Connector>,
}

const OFFERS: &str = r#"[{"name": "small", "workers": 2, "max": 9, "price_per_hour": 0.5}]"#;

impl Stage {
    fn new(create: &str, list: &str, terminate: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("create.sh", create), ("list.sh", list), ("terminate.sh", terminate)] {
            scripts::write(&folder.path().join(name), text);
        }
        let text = format!(
            r#"{{"kind": "command", "create": ["./create.sh"], "list": ["./list.sh"],
                "terminate": ["./terminate.sh"],
                "timeout_s": 2, "offers": {OFFERS}}}"#
        );
        let connector = file::parse(&text, "demo", folder.path()).unwrap().connector;
        Self { folder, connector }
    }

    async fn listed(&self) -> Result<Vec<Machine>, Refusal> {
        self.connector.list().await
    }
}

fn key() -> Key {
    "k-0".parse().unwrap()
}

#[tokio::test]
async fn programs_create_list_and_end_machines() {
    // A simulated cloud in a file, idempotent by key.
    let create = r#"cd "$(dirname "$0")"
        [ "$TASKWORK_CLUSTER" = demo ] || exit 78
        grep -q "\"key\": \"$3\"" cloud 2>/dev/null || for n in $(seq "$2"); do
            echo "{\"id\": \"$3.$n\", \"offer\": \"$1\", \"state\": \"requested\", \"key\": \"$3\"}" >> cloud
            echo "$TASKWORK_LABELS" >> labels
        done
        grep "\"key\": \"$3\"" cloud"#;
    let list = r#"cat "$(dirname "$0")/cloud""#;
    let terminate =
        r#"cd "$(dirname "$0")"; for id in "$@"; do grep -v "\"$id\"" cloud > new; mv new cloud; done"#;
    let stage = Stage::new(create, list, terminate);
    let made = stage.connector.create("small", 2, &key()).await.unwrap();
    assert_eq!(made.len(), 2);
    assert_eq!(
        stage.connector.create("small", 2, &key()).await.unwrap(),
        made,
        "the same key, the same machines"
    );
    let listed = stage.listed().await.unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!((&listed[0].state, &listed[0].key), (&MachineState::Requested, &Some(key())));
    let labels = fs::read_to_string(stage.folder.path().join("labels")).unwrap();
    assert_eq!(labels.lines().next(), Some("offer=small,price=0.5/h"));
    stage.connector.terminate(&made[..1]).await.unwrap();
    assert_eq!(stage.listed().await.unwrap().len(), 1);
}

#[tokio::test]
async fn invalid_list_is_refused() {
    for (list, part) in [
        ("echo nonsense", "line 1"),
        (r#"echo '{"id": "a", "offer": "small", "state": "running"}'; echo '{"id": "b"'"#, "line 2"),
        (r#"echo '{"id": "a b", "offer": "small", "state": "running"}'"#, "not a valid id of a machine"),
        (r#"echo '{"id": "a", "offer": "small", "state": "dancing"}'"#, "dancing"),
        (r#"echo '{"id": "a", "offer": "small", "state": "running", "kye": "x"}'"#, "kye"),
        (
            r#"for n in 1 2; do echo '{"id": "a", "offer": "small", "state": "running"}'; done"#,
            "earlier line",
        ),
        (r"printf '\377\n'", "UTF-8"),
        ("echo what there is >&2; exit 3", "exit code 3: what there is"),
        // Half of the list, then an error.
        (r#"echo '{"id": "a", "offer": "small", "state": "running"}'; exit 1"#, "exit code 1"),
        ("kill -9 $$", "by a signal"),
        ("head -c 5000000 /dev/zero", "more than 4194304 bytes"),
    ] {
        let refused = Stage::new("true", list, "true").listed().await.unwrap_err();
        assert_eq!(refused.why, Why::Unknown, "{refused:?}");
        assert!(refused.message.contains(part), "no {part:?} in {refused:?}");
    }
}

#[tokio::test]
async fn hanging_program_is_killed_with_its_children() {
    for hangs in [
        // A child that outlives it and holds its output.
        "sleep 61.5 & echo $! > \"$(dirname \"$0\")/pid\"",
        "echo $$ > \"$(dirname \"$0\")/pid\"; trap '' TERM; sleep 61.5",
        // It prints errors endlessly.
        "echo $$ > \"$(dirname \"$0\")/pid\"; while :; do echo no >&2; done",
    ] {
        let stage = Stage::new("true", hangs, "true");
        let before = Instant::now();
        let refused = stage.listed().await.unwrap_err();
        assert!(refused.message.contains("within 2 s"), "{refused:?}");
        assert!(before.elapsed() < CALL_MAX, "it is bounded");
        let pid = fs::read_to_string(stage.folder.path().join("pid")).unwrap();
        let path = format!("/proc/{}/stat", pid.trim());
        // It can still be waited for.
        for _ in 0..200 {
            match fs::read_to_string(&path) {
                Ok(stat) if !stat.contains(") Z ") => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => break,
            }
        }
        let stat = fs::read_to_string(&path).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "it goes on: {stat}");
    }
}

#[tokio::test]
async fn exit_code_determines_kind_of_failure() {
    for (create, why) in [
        ("echo quota >&2; exit 75", Why::Exhausted),
        ("exit 78", Why::Wrong),
        ("exec ./no-such-program", Why::Wrong),
        ("exit 1", Why::Unknown),
        // More than requested.
        (
            r#"for n in 1 2 3; do echo "{\"id\": \"$n\", \"offer\": \"small\", \"state\": \"running\"}"; done"#,
            Why::Unknown,
        ),
    ] {
        let refused =
            Stage::new(create, "true", "true").connector.create("small", 2, &key()).await.unwrap_err();
        assert_eq!(refused.why, why, "{refused:?}");
    }
    let stage = Stage::new("true", "true", "true");
    assert_eq!(stage.connector.create("large", 1, &key()).await.unwrap_err().why, Why::Wrong);
    fs::remove_file(stage.folder.path().join("list.sh")).unwrap();
    assert_eq!(stage.listed().await.unwrap_err().why, Why::Wrong);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (settings, part) in [
        (r#""create": [], "list": ["a"], "terminate": ["a"]"#, "create"),
        (r#""create": ["a"], "list": ["a"]"#, "terminate"),
        (r#""create": ["a"], "list": ["a"], "terminate": ["a"], "timeout_s": 60"#, "1 to 59"),
        (r#""create": ["a"], "list": ["a"], "terminate": ["a"], "timeout_s": 0"#, "1 to 59"),
    ] {
        let text = format!(r#"{{"kind": "command", {settings}, "offers": {OFFERS}}}"#);
        let refused = file::parse(&text, "demo", Path::new(".")).unwrap_err();
        assert!(refused.contains(part), "no {part:?} in {refused:?}");
    }
}
