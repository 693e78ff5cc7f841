//! The scripts in `deploy/scale`, with programs that replace those of the clouds.
//!
//! The replacements follow the vendors' documents; the real programs are not tested here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, process::Command};

use serde_json::json;
use taskwork_scale::connector::{
    Connector, Key, Machine, MachineState, Why,
    file::{open, parse},
};
use tempfile::TempDir;

/// An example, with programs that replace others.
struct Example {
    folder: TempDir,
    connector: Box<dyn Connector>,
    offer: String,
}

fn here(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns whether this machine has the programs that the scripts need.
fn can_run() -> bool {
    let can = |program: &str| {
        Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success())
    };
    let can = can("bash") && can("jq");
    assert!(can || std::env::var_os("CI").is_none(), "the scripts in deploy/scale need bash and jq");
    if !can {
        println!("SKIPPED: the scripts in deploy/scale need bash and jq");
    }
    can
}

impl Example {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The script for ssh keeps its files next to itself.
        // Copied by another process: a child that another test forks at this time would keep a file of this process
        // open for writing, and such a file cannot be executed.
        let scripts =
            [&format!("{name}.sh"), "user-data.txt"].map(|file| here(&format!("../../deploy/scale/{file}")));
        assert!(Command::new("cp").args(scripts).arg(folder.path()).status().unwrap().success());
        fs::write(folder.path().join("hosts"), "h1\nh2\nh3\n").unwrap();
        let text = fs::read_to_string(here(&format!("../../deploy/scale/{name}.json"))).unwrap();
        let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let paths = format!("PATH={}:{}", here("tests/examples/stand-ins"), std::env::var("PATH").unwrap());
        for verb in ["create", "list", "terminate"] {
            let script = folder.path().join(format!("{name}.sh"));
            file[verb] = json!([
                "env",
                paths,
                "TASKWORK_ZK=zk1:2181",
                "TASKWORK_AZ_IMAGE=an-image",
                format!("STAND_IN={}", folder.path().display()),
                script,
                verb
            ]);
        }
        let connector = parse(&file.to_string(), "demo", folder.path()).unwrap().connector;
        let offer = connector.offers().last().unwrap().name.clone();
        Self { folder, connector, offer }
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    async fn listed(&self) -> Vec<Machine> {
        self.connector.list().await.unwrap()
    }

    /// Creates machines, repeats the request under the same key, and terminates one of them.
    async fn works(&self) {
        let key: Key = "5b1c20aa-3".parse().unwrap();
        assert_eq!(self.listed().await, []);
        let made = self.connector.create(&self.offer, 2, &key).await.unwrap();
        assert_eq!(made.len(), 2);
        assert_eq!(
            self.connector.create(&self.offer, 2, &key).await.unwrap(),
            made,
            "the same key, the same machines"
        );
        let listed = self.listed().await;
        assert_eq!(listed.iter().map(|machine| machine.id.clone()).collect::<Vec<_>>(), made);
        let is_ours = |machine: &Machine| machine.key.as_ref() == Some(&key) && machine.offer == self.offer;
        assert!(listed.iter().all(is_ours), "{listed:?}");
        assert!(listed.iter().all(|machine| machine.created_ms.is_some()), "{listed:?}");
        self.connector.terminate(&made[..1]).await.unwrap();
        let listed = self.listed().await;
        assert_eq!(listed[0].state, MachineState::Ending, "{listed:?}");
        assert_ne!(listed[1].state, MachineState::Ending, "{listed:?}");
    }

    /// Sets the cloud's report of a machine, and returns the list.
    async fn becomes(&self, from: &str, to: &str) -> MachineState {
        for file in fs::read_dir(self.folder.path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("machine-") || name.starts_with("token-") {
                fs::write(&path, fs::read_to_string(&path).unwrap().replace(from, to)).unwrap();
            }
        }
        self.listed().await[1].state.clone()
    }

    /// No more machines are available.
    async fn refuses(&self) {
        fs::write(self.folder.path().join("quota"), "").unwrap();
        let refused = self.connector.create(&self.offer, 1, &"k-9".parse().unwrap()).await.unwrap_err();
        assert_eq!(refused.why, Why::Exhausted, "{refused:?}");
    }
}

#[tokio::test]
async fn clouds() {
    if !can_run() {
        return;
    }
    for (name, notice) in [("aws", "NOTICE=aws"), ("gcloud", "NOTICE=gcp"), ("az", "NOTICE=azure")] {
        let example = Example::new(name);
        example.works().await;
        example.refuses().await;
        let data = example.file("user-data");
        for part in [
            "#!/bin/bash\n",
            "TASKWORK_ZK=zk1:2181\n",
            "TASKWORK_LABELS=offer=",
            "TASKWORK_MACHINE=$(",
            notice,
            "poweroff",
        ] {
            assert!(data.contains(part), "{name}: no {part:?} in\n{data}");
        }
        let checked =
            Command::new("bash").arg("-n").arg(example.folder.path().join("user-data")).status().unwrap();
        assert!(checked.success(), "{name}: the start script is no script");
    }
}

/// A listed machine is billed even if it is off, so it must be terminated; only a machine that no longer exists is
/// gone.
#[tokio::test]
async fn stopped_machines_are_not_gone() {
    if !can_run() {
        return;
    }
    let key: Key = "5b1c20aa-3".parse().unwrap();
    let ten = Some(1_777_629_600_000);
    let at = |name: &str, is: &[(&'static str, MachineState)]| (name.to_owned(), is.to_vec());
    for (name, states) in [
        at(
            "aws",
            &[
                (r#""Name":"running""#, MachineState::Running),
                (r#""Name":"stopped""#, MachineState::Running),
                (r#""Name":"terminated""#, MachineState::Gone),
            ],
        ),
        at("gcloud", &[("RUNNING", MachineState::Running), ("TERMINATED", MachineState::Running)]),
        at(
            "az",
            &[
                (r#""powerState":"VM starting""#, MachineState::Requested),
                (r#""powerState":"VM running""#, MachineState::Running),
                (r#""powerState":"VM stopping""#, MachineState::Running),
                (r#""powerState":"VM stopped""#, MachineState::Running),
                (r#""powerState":"VM deallocated""#, MachineState::Running),
                (r#""powerState":"VM unknown""#, MachineState::Running),
            ],
        ),
    ] {
        let example = Example::new(&name);
        example.connector.create(&example.offer, 2, &key).await.unwrap();
        let machine = example.listed().await.remove(0);
        assert_eq!((machine.state, machine.created_ms), (MachineState::Requested, ten), "{name}");
        let mut before = match &*name {
            "aws" => r#""Name":"pending""#,
            "gcloud" => "STAGING",
            _ => r#""powerState":"""#,
        };
        for (word, state) in states {
            assert_eq!(example.becomes(before, word).await, state, "{name}: {word}");
            before = word;
        }
    }
}

#[tokio::test]
async fn hosts_by_ssh() {
    if !can_run() {
        return;
    }
    let example = Example::new("ssh");
    example.works().await;
    assert_eq!(example.file("starts").lines().count(), 2, "a node is started once on each host");
    let one = example.connector.create(&example.offer, 2, &"k-1".parse().unwrap()).await.unwrap();
    assert_eq!(one.len(), 1, "the rest of three hosts");
    let refused = example.connector.create(&example.offer, 1, &"k-2".parse().unwrap()).await.unwrap_err();
    assert_eq!(refused.why, Why::Exhausted, "{refused:?}");
    // A host whose node ended long ago is free again, but not because of a dry run.
    let taken = example.folder.path().join("taken/h3");
    fs::write(example.folder.path().join("unit-h3"), "inactive\n").unwrap();
    assert!(Command::new("touch").args(["-d", "1 hour ago"]).arg(&taken).status().unwrap().success());
    assert_eq!(example.connector.look().await.unwrap()[2].state, MachineState::Gone);
    assert!(taken.exists());
    assert_eq!(example.listed().await[2].state, MachineState::Gone);
    assert!(!taken.exists());
}

#[test]
fn examples_are_valid_connector_files() {
    let mut count = 0;
    for file in fs::read_dir(here("../../deploy/scale")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|end| end == "json") {
            open(&path, "demo").unwrap();
            count += 1;
        }
    }
    assert!(count >= 5, "{count}");
}
