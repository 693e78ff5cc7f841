//! Tests of the units of systemd and the batch script of Slurm in `deploy/`.

use std::{fs, process::Command};

use crate::{manifests::FAREWELL_S, workspace};

/// The longest that an agent takes to end after its drain deadline, in seconds: it kills its nodes after 15 seconds, and then leaves.
const AGENT_FAREWELL_S: u64 = 25;

/// Runs the batch script with a program that prints its arguments and its process id.
fn batch(environment: &[(&str, &str)]) -> (bool, String) {
    let bin = tempfile::tempdir().unwrap();
    let program = bin.path().join("program");
    crate::scripts::write(&program, "echo \"$PPID $*\"");
    let script = workspace::root().join("deploy/slurm/nodes.sbatch");
    let mut command = Command::new("bash");
    command.arg(script).args(["--label", "site=a b"]).env("TASKWORK_PROGRAM", &program);
    for name in ["TASKWORK_ZK", "SLURM_JOB_END_TIME", "SLURMD_NODENAME", "SLURM_CPUS_PER_TASK"] {
        command.env_remove(name);
    }
    let output = command.envs(environment.iter().copied()).output().unwrap();
    (
        output.status.success(),
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn batch_script_becomes_node_with_slurm_notice() {
    let here = std::process::id().to_string();
    let zk = ("TASKWORK_ZK", "zk:2181");
    let (ok, said) =
        batch(&[zk, ("SLURMD_NODENAME", "cn7"), ("SLURM_CPUS_PER_TASK", "16"), ("SLURM_JOB_END_TIME", "1")]);
    assert!(ok, "{said}");
    // The parent of the program is this process: there is no shell in between that keeps signals.
    assert!(said.starts_with(&format!("{here} node ")), "{said}");
    for part in ["--advertise cn7 ", "--workers 16 ", "--notice slurm", "--label site=a b"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let (ok, said) = batch(&[zk, ("SLURMD_NODENAME", "cn7")]);
    assert!(ok && !said.contains("--notice") && said.contains("--workers 1 "), "{said}");
    let (ok, said) = batch(&[]);
    assert!(!ok && said.contains("TASKWORK_ZK"), "{said}");
}

#[test]
fn units_wait_for_drain() {
    for (name, farewell_s) in [("taskwork-node@", FAREWELL_S), ("taskwork-agent", AGENT_FAREWELL_S)] {
        waits_for_drain(name, farewell_s);
    }
    let agent = workspace::root().join("deploy/systemd/taskwork-agent.service");
    // A signal for all processes of the unit would reach the nodes twice, so that they park their tasks.
    assert!(fs::read_to_string(agent).unwrap().contains("\nKillMode=mixed\n"));
}

fn waits_for_drain(name: &str, farewell_s: u64) {
    let unit = workspace::root().join(format!("deploy/systemd/{name}.service"));
    let unit = fs::read_to_string(unit).unwrap();
    let after = |text: &str| {
        let rest = unit.split_once(text).map(|(_, rest)| rest).unwrap_or_default();
        rest.split_whitespace().next().and_then(|word| word.parse::<u64>().ok())
    };
    let (deadline, timeout) = (after("--drain-deadline ").unwrap(), after("TimeoutStopSec=").unwrap());
    assert!(timeout >= deadline + farewell_s, "{name}: {timeout} s for a drain of {deadline} s");
    // The exit codes for wrong usage, and for the end of the time to leave.
    assert!(
        unit.contains("\nRestartPreventExitStatus=2 4\n"),
        "a node is started again on a machine that goes"
    );
}
