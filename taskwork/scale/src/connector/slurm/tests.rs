//! Tests of the Slurm connector: with recorded output of its commands, with invalid output, and with scripts that
//! replace them.

use std::fs;

use super::{answer::*, *};
use crate::connector::{MachineState, Why, scripts};

fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

fn offer(name: &str) -> Offer {
    serde_json::from_value(serde_json::json!({"name": name, "workers": 1, "max": 9})).expect("an offer")
}

fn ids(machines: &[Machine]) -> Vec<&str> {
    machines.iter().map(|machine| machine.id.as_str()).collect()
}

#[test]
fn array_tasks_are_machines_with_key_of_request() {
    let output = "\
12_1|RUNNING|1795617600|None|taskwork/k-1/cpu\n\
12_2|PENDING|1795617600|Resources|taskwork/k-1/cpu\n\
13_1|COMPLETING|N/A|None|taskwork/k-2/big.mem\n\
11|RUNNING|1795617000|None|(null)\n\
10_4|RUNNING|1795617000|None|taskwork of somebody|else\n";
    let machines = machines(output).expect("it is understood");
    assert_eq!(ids(&machines), ["12_1", "12_2", "13_1"]);
    let states: Vec<_> = machines.iter().map(|machine| machine.state.clone()).collect();
    assert_eq!(states, [MachineState::Running, MachineState::Requested, MachineState::Ending]);
    assert_eq!(
        (machines[0].key.clone(), machines[0].created_ms),
        (Some(key("k-1")), Some(1_795_617_600_000))
    );
    assert_eq!((machines[2].offer.as_str(), machines[2].created_ms), ("big.mem", None));
    assert!(answer::machines("\n").expect("nothing is a list").is_empty());
}

/// The output of Slurm 22.05 after two tasks of six were cancelled while they were queued.
#[test]
fn array_with_cancelled_tasks_is_parsed() {
    let output = "\
1|CANCELLED|1795620974|Resources|taskwork/k-1/cpu\n\
1_1|COMPLETED|1795620974|None|taskwork/k-1/cpu\n\
1_2|RUNNING|1795620974|None|taskwork/k-1/cpu\n";
    assert_eq!(ids(&machines(output).expect("it is understood")), ["1_1", "1_2"]);
    let all = "1_[1-6]|CANCELLED|1795620974|Resources|taskwork/k-1/cpu\n";
    assert!(machines(all).expect("it is understood").is_empty());
    assert!(has_request(all, &key("k-1")), "it was made, and is not made again");
    assert!(!has_request(all, &key("k")) && !has_request("", &key("k")));
}

#[test]
fn job_states_map_to_machine_states() {
    let state = |name: &str| {
        let line = format!("1_1|{name}|0|NonZeroExitCode|taskwork/k/o");
        machines(&line).expect("it is understood").remove(0).state
    };
    for name in ["PENDING", "CONFIGURING", "REQUEUED", "SPECIAL_EXIT"] {
        assert_eq!(state(name), MachineState::Requested, "{name}");
    }
    for name in ["RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SOMETHING_NEW"] {
        assert_eq!(state(name), MachineState::Running, "{name}");
    }
    for name in ["COMPLETED", "CANCELLED", "PREEMPTED", "TIMEOUT", "DEADLINE"] {
        assert_eq!(state(name), MachineState::Gone, "{name}");
    }
    for name in ["FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"] {
        let MachineState::Failed(why) = state(name) else { panic!("{name}: {:?}", state(name)) };
        assert!(why.contains(name) && why.contains("NonZeroExitCode"), "{why}");
    }
}

#[test]
fn invalid_job_list_is_refused() {
    for output in [
        "slurm_load_jobs error: Invalid user\n",
        "12_1|RUNNING\n",
        // Not expanded: which of the tasks run is unknown.
        "12_[1-4%2]|PENDING|0|Resources|taskwork/k/o\n",
        "12|RUNNING|0|None|taskwork/k/o\n",
        "../../x_1|RUNNING|0|None|taskwork/k/o\n",
    ] {
        let refusal = machines(output).expect_err(output);
        assert!(refusal.why == Why::Unknown && refusal.message.contains("squeue printed"), "{refusal:?}");
    }
    let long = "1_1|RUNNING|0|None|taskwork/k/o\n".repeat(crate::connector::MACHINES_MAX + 1);
    assert_eq!(machines(&long).expect_err("too many").why, Why::Unknown);
}

#[test]
fn submission_output_gives_task_ids() {
    let ids = |output, count| {
        submitted(output, count).map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(ids("42\n", 2), Ok(vec!["42_1".to_owned(), "42_2".to_owned()]));
    assert_eq!(ids("42;cluster2\n", 1), Ok(vec!["42_1".to_owned()]));
    assert_eq!(ids("Your project has 12 hours left.\n42\n\n", 1), Ok(vec!["42_1".to_owned()]));
    for odd in ["", "\n", "Submitted batch job 42\n", "-1\n", &"9".repeat(80)] {
        assert_eq!(ids(odd, 1).expect_err(odd).why, Why::Unknown, "{odd:?}");
    }
}

#[test]
fn refusal_contains_message_and_kind() {
    for (error, why) in [
        (
            "sbatch: error: invalid partition specified: gpu\nsbatch: error: Batch job submission failed: Invalid partition name specified",
            Why::Wrong,
        ),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            Why::Wrong,
        ),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            Why::Exhausted,
        ),
        ("sbatch: error: AssocMaxSubmitJobLimit", Why::Exhausted),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", Why::Exhausted),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            Why::Unknown,
        ),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", Why::Unknown),
    ] {
        let refusal = refusal("sbatch", error);
        assert_eq!(refusal.why, why, "{error}");
        assert!(refusal.message.contains("sbatch: error"), "{refusal}");
    }
    let silent = refusal("sbatch", " \n");
    assert!(silent.message.contains("without a message"), "{silent}");
    assert!(refusal("sbatch", &"x ".repeat(100_000)).message.len() < 600, "a flood is cut");
}

#[test]
fn scancel_of_finished_job_succeeds() {
    for error in [
        "scancel: error: Kill job error on job id 5_1: Invalid job id specified",
        "scancel: error: Kill job error on job id 5_1: Job/step already completing or completed",
    ] {
        assert_eq!(cancelled(false, error), Ok(()));
    }
    assert_eq!(cancelled(true, ""), Ok(()));
    let denied = "scancel: error: Kill job error on job id 5_1: Access/permission denied";
    assert_eq!(cancelled(false, denied).expect_err("denied").why, Why::Wrong);
    let both = format!("scancel: error: Kill job error on job id 4_1: Invalid job id specified\n{denied}");
    assert!(cancelled(false, &both).is_err(), "one of them is still there");
    assert_eq!(cancelled(false, "").expect_err("it has failed").why, Why::Wrong);
}

/// A folder with scripts that replace Slurm's commands and record their calls.
struct Imitation(tempfile::TempDir);

impl Imitation {
    fn new(scripts: &[(&str, &str)]) -> Self {
        let this = Self(tempfile::tempdir().expect("a folder"));
        fs::write(this.0.path().join("nodes.sbatch"), "#!/bin/bash\n").expect("a script");
        for (name, body) in scripts {
            let text = format!("echo {name} \"$@\" >> {}/called\n{body}", this.0.path().display());
            scripts::write(&this.0.path().join(name), &text);
        }
        this
    }

    /// Opens the connector with additional settings.
    fn open(&self, more: serde_json::Value) -> Result<Slurm, String> {
        let folder = self.0.path();
        let mut settings = serde_json::json!({
            "script": "nodes.sbatch",
            "commands": ".",
            "arguments": ["--insecure"],
            "sbatch": {"cpu": ["--partition=long"]},
            "environment": {"TASKWORK_PROGRAM": "/opt/tsp"},
        });
        if let (Some(settings), serde_json::Value::Object(more)) = (settings.as_object_mut(), more) {
            settings.extend(more);
        }
        let mut cpu = offer("cpu");
        cpu.labels.insert("zone".to_owned(), "a".to_owned());
        let common = Common {
            cluster: "demo".to_owned(),
            folder: folder.to_owned(),
            offers: vec![cpu],
            currency: None,
        };
        Slurm::new(common, serde_json::from_value(settings).map_err(|error| error.to_string())?)
    }

    fn slurm(&self) -> Slurm {
        self.open(serde_json::json!({})).expect("it can work")
    }

    fn called(&self) -> Vec<String> {
        let called = fs::read_to_string(self.0.path().join("called")).unwrap_or_default();
        called.lines().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn repeated_request_is_submitted_once() {
    let slurm = Imitation::new(&[
        ("squeue", "cat \"$0.out\" 2> /dev/null; true"),
        ("sbatch", "env > \"$0.env\"; echo 7"),
    ]);
    let connector = slurm.slurm();
    let machines = connector.create("cpu", 2, &key("k-1")).await.expect("it is done");
    assert_eq!(machines.iter().map(MachineId::as_str).collect::<Vec<_>>(), ["7_1", "7_2"]);
    let called = slurm.called();
    let [look, submit] = &called[..] else { panic!("{called:?}") };
    assert!(look.starts_with("squeue ") && look.contains("--name=taskwork-demo"), "{look}");
    let expected = "--job-name=taskwork-demo --comment=taskwork/k-1/cpu --array=1-2 --partition=long";
    assert!(submit.contains(expected) && submit.ends_with("nodes.sbatch --insecure"), "{submit}");
    let environment = fs::read_to_string(slurm.0.path().join("sbatch.env")).expect("its environment");
    for line in ["TASKWORK_LABELS=offer=cpu,zone=a", "TASKWORK_CLUSTER=demo", "TASKWORK_PROGRAM=/opt/tsp"] {
        assert!(environment.lines().any(|one| one == line), "no {line} in {environment}");
    }

    // Its answer was lost, and the request is repeated.
    let listed = "7_1|RUNNING|0|None|taskwork/k-1/cpu\n7_2|COMPLETED|0|None|taskwork/k-1/cpu\n";
    fs::write(slurm.0.path().join("squeue.out"), listed).expect("an output");
    let again = connector.create("cpu", 2, &key("k-1")).await.expect("it is done already");
    assert_eq!(again, machines);
    assert!(slurm.called().last().is_some_and(|last| last.starts_with("squeue")), "{:?}", slurm.called());
    connector.create("cpu", 1, &key("k-2")).await.expect("another one is submitted");
    assert!(
        slurm.called().last().is_some_and(|last| last.contains("taskwork/k-2/cpu")),
        "{:?}",
        slurm.called()
    );
}

#[tokio::test]
async fn failed_list_prevents_submission() {
    let error =
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
    let slurm = Imitation::new(&[("squeue", error), ("sbatch", "echo 7")]);
    let refusal = slurm.slurm().create("cpu", 2, &key("k")).await.expect_err("what there is, is not known");
    assert_eq!(refusal.why, Why::Unknown, "{refusal}");
    assert_eq!(slurm.called().len(), 1, "{:?}", slurm.called());
    assert_eq!(slurm.slurm().list().await.expect_err("neither is the list").why, Why::Unknown);
}

#[tokio::test]
async fn queued_jobs_are_cancelled_and_running_jobs_are_signalled() {
    let slurm = Imitation::new(&[("scancel", "")]);
    let machines = ["7_1", "7_2"].map(|id| id.parse::<MachineId>().expect("an id"));
    slurm.slurm().terminate(&machines).await.expect("it is done");
    let called = slurm.called();
    assert!(called[0].ends_with("--state=PENDING 7_1 7_2"), "{called:?}");
    assert!(called[2].ends_with("--state=RUNNING --signal=TERM --batch 7_1 7_2"), "{called:?}");
    assert!(
        called.iter().all(|line| line.contains("--name=taskwork-demo ")),
        "only jobs of our name: {called:?}"
    );
    // The whole array, a job of another user, an option.
    for other in ["7", "a_1", "-u"] {
        let refusal = slurm.slurm().terminate(&[other.parse().expect("an id")]).await.expect_err(other);
        assert_eq!(refusal.why, Why::Wrong);
    }
    assert_eq!(slurm.called().len(), 3);
}

/// A second SIGTERM would make a node hurry, and a node that hangs needs more than that.
#[tokio::test]
async fn node_is_signalled_once_and_cancelled_after_its_time() {
    let slurm = Imitation::new(&[("scancel", "")]);
    let connector = slurm.slurm();
    let [one, other] = ["7_1", "7_2"].map(|id| id.parse::<MachineId>().expect("an id"));
    let began = Instant::now();
    connector.end(std::slice::from_ref(&one), began).await.expect("it is done");
    assert_eq!(slurm.called().len(), 3);
    let both = [one, other];
    connector.end(&both, began + Duration::from_secs(30)).await.expect("it is done");
    let called = slurm.called();
    assert!(called[3..].iter().all(|line| line.ends_with(" 7_2")) && called.len() == 6, "{called:?}");
    connector.end(&both, began + Duration::from_secs(121)).await.expect("it is done");
    let called = slurm.called();
    assert!(called[6..] == ["scancel --name=taskwork-demo 7_1".to_owned()], "{called:?}");

    // No job was signalled if the command has failed.
    let slurm = Imitation::new(&[("scancel", "echo 'scancel: error: access denied' >&2; exit 1")]);
    let connector = slurm.slurm();
    connector.end(&both, began).await.expect_err("it has failed");
    assert_eq!(connector.due(&both, began).0, both);
}

#[test]
fn options_similar_to_own_ones_are_accepted() {
    let slurm = Imitation::new(&[]);
    let options =
        ["--partition=long", "-p", "a-J", "--wait-all-nodes=1", "--wckey=x", "--mem=4G", "-c8", "--"];
    slurm.open(serde_json::json!({"sbatch": {"cpu": options}})).expect("they are for the user to choose");
}

#[tokio::test]
async fn variables_that_would_hide_jobs_are_withheld() {
    let slurm = Imitation::new(&[("squeue", "env > \"$0.env\"")]);
    let squeue = slurm.0.path().join("squeue");
    let given =
        ["SQUEUE_PARTITION", "SLURM_CLUSTERS", "SBATCH_ARRAY_INX", "SCANCEL_USER", "SLURM_CONF", "SBATCH_X"];
    let given = given.map(|name| (name.into(), "here".into()));
    let mut command = run::command(&squeue, given);
    assert!(command.status().await.expect("it runs").success());
    let environment = fs::read_to_string(slurm.0.path().join("squeue.env")).expect("its environment");
    let has = |name: &str| environment.lines().any(|line| line.starts_with(&format!("{name}=")));
    assert!(has("SLURM_CONF") && has("SBATCH_X"), "{environment}");
    for name in ["SQUEUE_PARTITION", "SLURM_CLUSTERS", "SBATCH_ARRAY_INX", "SCANCEL_USER"] {
        assert!(!has(name), "{name} in {environment}");
    }
}

#[tokio::test]
async fn faulty_commands_are_reported() {
    let slurm = Imitation::new(&[("squeue", "exec sleep 600")]);
    let squeue = slurm.0.path().join("squeue");
    let refusal =
        run(&squeue, &[], &BTreeMap::new(), Duration::from_millis(200)).await.expect_err("it hangs");
    assert!(refusal.why == Why::Unknown && refusal.message.contains("slurmctld"), "{refusal}");

    let flood = Imitation::new(&[("squeue", "exec cat /dev/zero")]);
    let refusal = flood.slurm().list().await.expect_err("it floods");
    assert!(refusal.why == Why::Unknown && refusal.message.contains("printed more than"), "{refusal}");

    let none = Imitation::new(&[]);
    let refusal = none.slurm().list().await.expect_err("it is missing");
    assert!(refusal.why == Why::Wrong && refusal.message.contains("not in PATH"), "{refusal}");
}

#[test]
fn settings_that_cannot_work_are_refused_at_once() {
    let slurm = Imitation::new(&[]);
    for (more, part) in [
        (serde_json::json!({"job_name": "a,b"}), "job_name \"a,b\""),
        (serde_json::json!({"sbatch": {"gpu": []}}), "not among the offers"),
        (
            serde_json::json!({"sbatch": {"cpu": ["--comment=mine"]}}),
            "--comment=mine is set by the connector itself",
        ),
        (serde_json::json!({"sbatch": {"cpu": ["-a", "1-4"]}}), "-a is set by the connector itself"),
        (serde_json::json!({"sbatch": {"cpu": ["-a1-4"]}}), "-a1-4 is set by the connector itself"),
        (serde_json::json!({"sbatch": {"cpu": ["-Jmine"]}}), "-Jmine is set by the connector itself"),
        (serde_json::json!({"sbatch": {"cpu": ["-HJmine"]}}), "-HJmine is set by the connector itself"),
        (serde_json::json!({"sbatch": {"cpu": ["-M", "b"]}}), "-M is set by the connector itself"),
        (
            serde_json::json!({"sbatch": {"cpu": ["--clusters=b"]}}),
            "--clusters=b is set by the connector itself",
        ),
        (serde_json::json!({"sbatch": {"cpu": ["--comm=x"]}}), "--comm=x is set by the connector itself"),
        (serde_json::json!({"sbatch": {"cpu": ["--job-n", "x"]}}), "--job-n is set by the connector itself"),
        (serde_json::json!({"sbatch": {"cpu": ["--uid=0"]}}), "--uid=0 is set by the connector itself"),
        (serde_json::json!({"array_max": 0}), "array_max 0"),
        (serde_json::json!({"script": "/no/such.sbatch"}), "/no/such.sbatch"),
        (serde_json::json!({"environment": {"TASKWORK_MACHINE": "x"}}), "TASKWORK_MACHINE"),
        (serde_json::json!({"partition": "long"}), "unknown field `partition`"),
    ] {
        let refused = slurm.open(more).expect_err(part);
        assert!(refused.contains(part), "no {part:?} in {refused:?}");
    }
}

#[test]
fn the_example_can_work() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/scale/slurm.json");
    let opened = crate::connector::open(file.as_ref(), "demo").expect("it can work");
    assert_eq!(opened.connector.offers().len(), 2);
}

proptest::proptest! {
    /// Any output is parsed or refused, and every machine has a usable id.
    #[test]
    fn any_output_is_parsed_or_refused(output in "([0-9_;\\[\\]|/ \n]|RUNNING|taskwork/k/o|ä){0,60}", count in 0_u32..50) {
        if let Ok(machines) = machines(&output) {
            proptest::prop_assert!(machines.iter().all(|machine| is_array_task(machine.id.as_str())));
        }
        if let Ok(ids) = submitted(&output, count) {
            proptest::prop_assert!(ids.len() == count as usize && ids.iter().all(|id| is_array_task(id.as_str())));
        }
        let _ = cancelled(false, &output);
        proptest::prop_assert!(refusal("sbatch", &output).message.len() < 2000);
    }
}
