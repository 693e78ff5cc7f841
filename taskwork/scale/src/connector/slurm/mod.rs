//! Machines that are jobs of Slurm: each is a task of an array of `deploy/slurm/nodes.sbatch`, which becomes one
//! node.
//!
//! ```text
//! create     squeue: is there a job of this key? ─ no ─▶ sbatch --array=1-COUNT --comment=taskwork/KEY/OFFER
//! list       squeue --array --states=all                 7_1, 7_2, 7_3: the ids of the machines
//! terminate  scancel queued jobs; SIGTERM once to the batch scripts of running jobs, which lets the nodes drain;
//!            scancel jobs that have not ended two minutes later
//! ```
//!
//! Slurm forgets jobs some minutes after their end (`MinJobAge`). A repeated key creates again only forgotten jobs.

mod answer;
mod run;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::Deserialize;

use self::run::{Said, run};
use super::{
    Calling, Connector, Key, MACHINE_VARIABLE, Machine, MachineId, Offer, Refusal,
    file::{Common, LABELS_VARIABLE},
};

/// The Slurm settings in a connector's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// The batch script that becomes a node, such as `deploy/slurm/nodes.sbatch`.
    script: PathBuf,
    /// The arguments of the script: options of the node, such as `--insecure`.
    #[serde(default)]
    arguments: Vec<String>,
    /// The name of the jobs, by which they are found; by default `taskwork-` with the name of the cluster. It must be
    /// unique among the connectors of a user.
    #[serde(default)]
    job_name: Option<String>,
    /// Options of `sbatch` for each offer, such as `["--partition=long", "--cpus-per-task=32"]`.
    #[serde(default)]
    sbatch: BTreeMap<String, Vec<String>>,
    /// Environment variables for the script in addition to those of this process, such as `TASKWORK_PROGRAM`.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// The folder of Slurm's commands, if they are not in `PATH`.
    #[serde(default)]
    commands: Option<PathBuf>,
    /// The maximum number of nodes of a request, which is one array: `MaxArraySize` of the site less one.
    #[serde(default = "array_max")]
    array_max: u32,
}

/// Slurm's default.
const fn array_max() -> u32 {
    1000
}

/// The connector to Slurm, through its commands.
#[derive(Debug)]
pub(super) struct Slurm {
    common: Common,
    settings: Settings,
    script: PathBuf,
    job_name: String,
    /// The times at which machines were asked to leave: a second signal would make their nodes hurry.
    signalled: Mutex<BTreeMap<MachineId, Instant>>,
}

/// The time that a node has to leave before its job is cancelled: the maximum drain, and some time to exit. A
/// restarted controller does not know when that started, and asks once more.
const LEAVE_MAX: Duration = Duration::from_secs(120);

/// The time limit of a command; a call needs at most three. The commands wait for a Slurm controller that is being
/// replaced.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(18);

/// Options of `sbatch` that would hide the jobs from the connector, or make them run something else.
const OWN_OPTIONS: [&str; 9] = [
    "--array",
    "--clusters",
    "--comment",
    "--job-name",
    "--parsable",
    "--test-only",
    "--uid",
    "--wait",
    "--wrap",
];

/// The short forms of these options.
const OWN_LETTERS: [char; 4] = ['a', 'J', 'M', 'W'];

/// Short options without a value, which others may follow in the same word.
const LETTERS_ALONE: [char; 9] = ['h', 'H', 'I', 'k', 'O', 'Q', 's', 'v', 'V'];

/// Environment variables of a node that the connector sets itself.
const OWN_VARIABLES: [&str; 3] = [MACHINE_VARIABLE, LABELS_VARIABLE, "TASKWORK_CLUSTER"];

impl Slurm {
    /// Opens the connector. Does not contact Slurm yet.
    ///
    /// # Errors
    /// If the settings are invalid, regardless of Slurm.
    pub(super) fn new(common: Common, settings: Settings) -> Result<Self, String> {
        let job_name = settings.job_name.clone().unwrap_or_else(|| format!("taskwork-{}", common.cluster));
        if !is_plain(&job_name) {
            return Err(format!(
                "job_name {job_name:?}: the name of the jobs must consist of 1 to 63 letters, digits, - _ and ."
            ));
        }
        for (offer, options) in &settings.sbatch {
            if common.offer(offer).is_none() {
                return Err(format!("sbatch names the offer {offer:?}, which is not among the offers"));
            }
            if let Some(option) = options.iter().find(|option| is_own(option)) {
                return Err(format!(
                    "sbatch of the offer {offer:?}: {option} is set by the connector itself"
                ));
            }
        }
        if let Some(name) = OWN_VARIABLES.iter().find(|name| settings.environment.contains_key(**name)) {
            return Err(format!("environment: {name} is set by the controller itself"));
        }
        let script = common.path(&settings.script);
        if !script.is_file() {
            return Err(format!(
                "script {}: there is no such file; it is the batch script of a node, such as deploy/slurm/nodes.sbatch",
                script.display()
            ));
        }
        if settings.array_max == 0 {
            return Err("array_max 0: an array has at least one node".to_owned());
        }
        Ok(Self { common, settings, script, job_name, signalled: Mutex::default() })
    }

    fn offer(&self, name: &str) -> Result<&Offer, Refusal> {
        self.common
            .offer(name)
            .ok_or_else(|| Refusal::wrong(format!("the Slurm connector has no offer {name:?}")))
    }

    async fn squeue(&self) -> Result<String, Refusal> {
        let name = format!("--name={}", self.job_name);
        let format = format!("--format={}", answer::FORMAT);
        let said = self
            .run(
                "squeue",
                ["--noheader", "--array", "--me", "--all", "--states=all", &name, &format],
                &BTreeMap::new(),
            )
            .await?;
        if !said.success {
            return Err(answer::refusal("squeue", &said.error));
        }
        Ok(said.output)
    }

    async fn sbatch(&self, offer: &Offer, count: u32, key: &Key) -> Result<Vec<MachineId>, Refusal> {
        let mut words: Vec<String> = vec![
            "--parsable".to_owned(),
            format!("--job-name={}", self.job_name),
            format!("--comment={}", answer::comment(key, &offer.name)),
            format!("--array=1-{count}"),
        ];
        words.extend(self.settings.sbatch.get(&offer.name).into_iter().flatten().cloned());
        words.push(self.script.display().to_string());
        words.extend(self.settings.arguments.iter().cloned());
        // Slurm passes them on to the script.
        let mut environment = self.settings.environment.clone();
        environment.insert(LABELS_VARIABLE.to_owned(), self.common.labels(offer));
        environment.insert("TASKWORK_CLUSTER".to_owned(), self.common.cluster.clone());
        let said = self.run("sbatch", words, &environment).await?;
        if !said.success {
            return Err(answer::refusal("sbatch", &said.error));
        }
        answer::submitted(&said.output, count)
    }

    /// Cancels machines in one state or in any, with further options.
    async fn scancel(
        &self,
        state: Option<&str>,
        options: &[&str],
        machines: &[MachineId],
    ) -> Result<(), Refusal> {
        let name = format!("--name={}", self.job_name);
        let state = state.map(|state| format!("--state={state}"));
        let words = [Some(&name), state.as_ref()].into_iter().flatten().map(String::as_str);
        let words = words.chain(options.iter().copied());
        let words = words.chain(machines.iter().map(MachineId::as_str));
        let said = self.run("scancel", words, &BTreeMap::new()).await?;
        answer::cancelled(said.success, &said.error)
    }

    /// Returns the machines to ask to leave now, and those whose time is over; the others still have time.
    fn due(&self, machines: &[MachineId], now: Instant) -> (Vec<MachineId>, Vec<MachineId>) {
        let mut signalled = self.signalled();
        let (mut first, mut overdue) = (Vec::new(), Vec::new());
        for machine in machines {
            match signalled.get(machine) {
                None => {
                    signalled.insert(machine.clone(), now);
                    first.push(machine.clone());
                }
                Some(at) if now.saturating_duration_since(*at) > LEAVE_MAX => overdue.push(machine.clone()),
                Some(_) => {}
            }
        }
        (first, overdue)
    }

    fn signalled(&self) -> MutexGuard<'_, BTreeMap<MachineId, Instant>> {
        self.signalled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn end(&self, machines: &[MachineId], now: Instant) -> Result<(), Refusal> {
        let (first, overdue) = self.due(machines, now);
        if !first.is_empty() {
            let signalled = self.signal(&first).await;
            if signalled.is_err() {
                self.signalled().retain(|machine, _| !first.contains(machine));
            }
            signalled?;
        }
        if overdue.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            machines = overdue.len(),
            "jobs are cancelled because their nodes have not left in time"
        );
        self.scancel(None, &[], &overdue).await
    }

    async fn signal(&self, machines: &[MachineId]) -> Result<(), Refusal> {
        // Queued jobs have no process that could get a signal. They are cancelled first, since they may start
        // at any time.
        self.scancel(Some("PENDING"), &[], machines).await?;
        self.scancel(Some("SUSPENDED"), &[], machines).await?;
        self.scancel(Some("RUNNING"), &["--signal=TERM", "--batch"], machines).await
    }

    async fn run(
        &self,
        command: &str,
        words: impl IntoIterator<Item = impl Into<String>>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Said, Refusal> {
        let at = self.settings.commands.as_deref().map(|folder| self.common.path(folder));
        let program = at.map_or(PathBuf::from(command), |folder| folder.join(command));
        let words: Vec<String> = words.into_iter().map(Into::into).collect();
        run(&program, &words, environment, COMMAND_TIMEOUT).await
    }
}

impl Connector for Slurm {
    fn offers(&self) -> &[Offer] {
        &self.common.offers
    }

    fn request_max(&self) -> u32 {
        self.settings.array_max
    }

    fn create<'a>(&'a self, offer: &'a str, count: u32, key: &'a Key) -> Calling<'a, Vec<MachineId>> {
        Box::pin(async move {
            let offer = self.offer(offer)?;
            if count == 0 {
                return Ok(Vec::new());
            }
            let most = self.settings.array_max;
            if count > most {
                return Err(Refusal::wrong(format!(
                    "{count} nodes at once: an array has at most {most}; see array_max in the connector's file"
                )));
            }
            let jobs = self.squeue().await?;
            if !answer::has_request(&jobs, key) {
                return self.sbatch(offer, count, key).await;
            }
            let mut known = answer::machines(&jobs)?;
            known.retain(|machine| machine.key.as_ref() == Some(key));
            Ok(known.into_iter().map(|machine| machine.id).collect())
        })
    }

    fn list(&self) -> Calling<'_, Vec<Machine>> {
        Box::pin(async move {
            let machines = answer::machines(&self.squeue().await?)?;
            let listed: BTreeSet<&MachineId> = machines.iter().map(|machine| &machine.id).collect();
            self.signalled().retain(|machine, _| listed.contains(machine));
            Ok(machines)
        })
    }

    fn look(&self) -> Calling<'_, Vec<Machine>> {
        Box::pin(async move { answer::machines(&self.squeue().await?) })
    }

    fn terminate<'a>(&'a self, machines: &'a [MachineId]) -> Calling<'a, ()> {
        Box::pin(async move {
            if let Some(other) = machines.iter().find(|machine| !answer::is_array_task(machine.as_str())) {
                return Err(Refusal::wrong(format!(
                    "{other} is not a machine of Slurm: expected JOB_TASK, such as 7_1"
                )));
            }
            if machines.is_empty() {
                return Ok(());
            }
            self.end(machines, Instant::now()).await
        })
    }
}

/// Returns whether an argument of `sbatch` is an option that the connector sets itself, or an abbreviation of one, or
/// is joined to its value: `--job-n=x`, `-Jx`.
fn is_own(argument: &str) -> bool {
    let name = argument.split_once('=').map_or(argument, |(name, _)| name);
    if let Some(letters) = name.strip_prefix('-').filter(|letters| !letters.starts_with('-')) {
        return letters.trim_start_matches(LETTERS_ALONE).starts_with(OWN_LETTERS);
    }
    name.len() > 2 && OWN_OPTIONS.iter().any(|own| own.starts_with(name))
}

/// Returns whether a word needs no quotes in any shell.
fn is_plain(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&word.len()) && word.bytes().all(plain)
}

#[cfg(test)]
mod tests;
