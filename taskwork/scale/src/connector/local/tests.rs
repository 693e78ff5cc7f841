//! Tests with real processes.

use std::{path::Path, time::Duration};

use tempfile::TempDir;
use tokio::time;

use super::*;
use crate::connector::{Why, file};

/// A connector whose processes are killed with it.
struct Stage {
    folder: TempDir,
    local: Local,
}

fn open(folder: &Path, program: &str, grace_s: u32) -> Local {
    let offers = serde_json::from_str(
        r#"[{"name": "small", "workers": 1, "max": 9, "price_per_hour": 0.5, "labels": {"zone": "b"}}]"#,
    )
    .unwrap();
    let common = Common { cluster: "demo".to_owned(), folder: folder.to_owned(), offers, currency: None };
    let program = ["sh", "-c", program].map(str::to_owned).to_vec();
    let settings = Settings { program, environment: BTreeMap::new(), folder: "machines".into(), grace_s };
    Local::new(common, settings).unwrap()
}

impl Stage {
    fn new(program: &str, grace_s: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let local = open(folder.path(), program, grace_s);
        Self { folder, local }
    }

    /// Creates a connector with a machine that ignores SIGTERM.
    async fn deaf(grace_s: u32) -> (Self, Vec<MachineId>) {
        let stage = Self::new("trap '' TERM; echo deaf; while :; do sleep 0.1; done", grace_s);
        let made = stage.local.create("small", 1, &key("t-0")).await.unwrap();
        for _ in 0..500 {
            if !fs::read_to_string(stage.local.0.records.log(&made[0])).unwrap().is_empty() {
                return (stage, made);
            }
            time::sleep(Duration::from_millis(20)).await;
        }
        panic!("it does not ignore the signal in time");
    }

    /// The connector of a restarted controller, which knows only the folder.
    fn again(&self, program: &str, grace_s: u32) -> Local {
        open(self.folder.path(), program, grace_s)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for (_, record) in self.local.0.records.all(0, true).unwrap_or_default() {
            if let State::Running(process) | State::Ending { process, .. } = record.state {
                process.signal(Signal::SIGKILL);
            }
        }
        for child in self.local.0.children().values_mut() {
            let _ = child.wait();
        }
    }
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

/// Waits until the only machine is in a state.
async fn becomes(local: &Local, is_it: impl Fn(&MachineState) -> bool) -> MachineState {
    for _ in 0..1500 {
        let listed = local.list().await.unwrap();
        if is_it(&listed[0].state) {
            return listed[0].state.clone();
        }
        time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not in time: {:?}", local.list().await);
}

#[tokio::test]
async fn repeated_key_gives_same_processes_after_restart() {
    let program = "echo here is $TASKWORK_MACHINE with $TASKWORK_LABELS; exec sleep 600";
    let stage = Stage::new(program, 5);
    let made = stage.local.create("small", 2, &key("t-0")).await.unwrap();
    assert_eq!(made.iter().map(MachineId::as_str).collect::<Vec<_>>(), ["t-0.0", "t-0.1"]);
    assert_eq!(stage.local.create("small", 2, &key("t-0")).await.unwrap(), made);
    let next = stage.again(program, 5);
    assert_eq!(next.create("small", 2, &key("t-0")).await.unwrap(), made);
    let listed = next.list().await.unwrap();
    assert_eq!(listed.len(), 2);
    assert!(
        listed
            .iter()
            .all(|machine| machine.state == MachineState::Running && machine.key == Some(key("t-0")))
    );
    // One more of the same request: only that one is started.
    assert_eq!(next.create("small", 3, &key("t-0")).await.unwrap().len(), 3);
    for _ in 0..500 {
        if fs::read_to_string(stage.local.0.records.log(&made[1])).unwrap().ends_with('\n') {
            break;
        }
        time::sleep(Duration::from_millis(20)).await;
    }
    let log = fs::read_to_string(stage.local.0.records.log(&made[1])).unwrap();
    assert_eq!(log, "here is t-0.1 with offer=small,price=0.5/h,zone=b\n");
}

#[tokio::test]
async fn unrecorded_process_is_found() {
    let stage = Stage::new("exec sleep 600", 5);
    let id = stage.local.create("small", 1, &key("t-1")).await.unwrap().remove(0);
    let mut record = stage.local.0.records.read(&id).unwrap().unwrap();
    let before = record.state.clone();
    record.state = State::Starting;
    stage.local.0.records.write(&id, &record).unwrap();
    let next = stage.again("exec sleep 600", 5);
    next.create("small", 1, &key("t-1")).await.unwrap();
    assert_eq!(stage.local.0.records.read(&id).unwrap().unwrap().state, before, "not a second one");
    // A process that was never started is not listed, and is started when the request is repeated.
    let new = Record::new("small".to_owned(), key("t-2"), now_ms());
    next.0.records.begin(&"t-2.0".parse().unwrap(), new).unwrap();
    assert_eq!(next.list().await.unwrap().len(), 1);
    next.create("small", 1, &key("t-2")).await.unwrap();
    assert_eq!(next.list().await.unwrap().len(), 2);
    next.terminate(&["t-2.0".parse().unwrap()]).await.unwrap();
    for child in next.0.children().values_mut() {
        child.wait().unwrap();
    }
}

#[tokio::test]
async fn process_is_terminated_and_then_killed() {
    let stage = Stage::new("exec sleep 600", 60);
    let made = stage.local.create("small", 1, &key("t-0")).await.unwrap();
    stage.local.terminate(&made).await.unwrap();
    stage.local.terminate(&made).await.unwrap();
    assert_eq!(becomes(&stage.local, MachineState::is_over).await, MachineState::Gone);
    // It has exited, so the same key starts nothing.
    stage.local.create("small", 1, &key("t-0")).await.unwrap();
    assert_eq!(stage.local.list().await.unwrap()[0].state, MachineState::Gone);

    let (deaf, made) = Stage::deaf(1).await;
    deaf.local.terminate(&made).await.unwrap();
    assert_eq!(deaf.local.list().await.unwrap()[0].state, MachineState::Ending);
    assert_eq!(becomes(&deaf.local, MachineState::is_over).await, MachineState::Gone);
}

#[tokio::test]
async fn crashed_process_has_failed() {
    let stage = Stage::new("echo no such server >&2; exit 3", 5);
    stage.local.create("small", 1, &key("t-0")).await.unwrap();
    let state = becomes(&stage.local, MachineState::is_over).await;
    let MachineState::Failed(why) = state else { panic!("{state:?}") };
    assert!(why.contains("t-0.0.log"), "{why}");
}

#[tokio::test]
async fn process_with_reused_pid_is_untouched() {
    let stage = Stage::new("exec sleep 600", 0);
    let id = stage.local.create("small", 1, &key("t-0")).await.unwrap().remove(0);
    let mut record = stage.local.0.records.read(&id).unwrap().unwrap();
    let State::Running(process) = &record.state else { panic!("{record:?}") };
    let earlier = process.earlier();
    record.state = State::Running(earlier);
    let others = "t-9.0".parse().unwrap();
    stage.local.0.records.write(&others, &record).unwrap();
    stage.local.terminate(&[others]).await.unwrap();
    let listed = stage.local.list().await.unwrap();
    assert_eq!(listed[0].state, MachineState::Running, "{listed:?}");
    assert_eq!(listed[1].state, MachineState::Gone, "{listed:?}");
}

#[tokio::test]
async fn failed_start_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"kind": "local", "program": ["./no-such-program"], "folder": "m",
        "offers": [{"name": "small", "workers": 1, "max": 9}]}"#;
    let connector = file::parse(text, "demo", folder.path()).unwrap().connector;
    let refused = connector.create("small", 1, &key("t-0")).await.unwrap_err();
    assert!(refused.why == Why::Wrong && refused.message.contains("no-such-program"), "{refused:?}");
    assert_eq!(connector.list().await.unwrap(), []);
    let files = fs::read_dir(folder.path().join("m/demo")).unwrap();
    assert_eq!(files.count(), 0, "nothing is left of what was not started");
    fs::write(folder.path().join("m/demo/t-5.0.json"), "{").unwrap();
    let refused = connector.list().await.unwrap_err();
    assert!(refused.message.contains("t-5.0.json"), "{refused:?}");
}

#[tokio::test]
async fn dry_run_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path(), "exec sleep 600", 5);
    assert_eq!(local.look().await.unwrap(), []);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "not even a folder");

    // A node that leaves slowly, and a record without a process; a dry run with a grace period of 0 looks at both.
    let (stage, made) = Stage::deaf(600).await;
    stage.local.terminate(&made).await.unwrap();
    let mut record = stage.local.0.records.read(&made[0]).unwrap().unwrap();
    let State::Ending { process, since_ms } = &mut record.state else { panic!("{record:?}") };
    (*since_ms, record.created_ms) = (0, 0);
    let mut gone = Record::new("small".to_owned(), key("t-1"), 0);
    gone.state = State::Running(process.earlier());
    let process = process.clone();
    stage.local.0.records.write(&made[0], &record).unwrap();
    stage.local.0.records.write(&"t-1.0".parse().unwrap(), &gone).unwrap();
    let old = Record { state: State::Gone, ..gone.clone() };
    stage.local.0.records.write(&"t-2.0".parse().unwrap(), &old).unwrap();
    let looking = stage.again("exec sleep 600", 0);
    let states: Vec<_> = looking.look().await.unwrap().into_iter().map(|machine| machine.state).collect();
    assert_eq!(states, [MachineState::Ending, MachineState::Gone]);
    assert!(process.runs(), "it is not killed");
    assert_eq!(stage.local.0.records.read(&"t-1.0".parse().unwrap()).unwrap(), Some(gone));
    assert_eq!(stage.local.0.records.read(&"t-2.0".parse().unwrap()).unwrap(), Some(old));
}

#[tokio::test]
async fn call_waits_for_cancelled_call() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path(), "exec sleep 600", 5);
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (open_gate, gate) = std::sync::mpsc::channel::<()>();
    let mut slow = local.run_blocking(move |_| {
        begin.send(()).unwrap();
        gate.recv().map_err(|_| Refusal::unknown("nobody has opened the gate"))
    });
    tokio::select! {
        early = &mut slow => panic!("{early:?}"),
        begun = begun => begun.unwrap(),
    }
    let mut listing = local.list();
    let listed = time::timeout(Duration::from_millis(200), &mut listing).await;
    assert!(listed.is_err(), "{listed:?}");
    open_gate.send(()).unwrap();
    slow.await.unwrap();
    assert_eq!(listing.await.unwrap(), []);
}
