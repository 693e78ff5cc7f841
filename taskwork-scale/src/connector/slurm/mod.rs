//! Machines that are jobs of Slurm: each is a task of an array of `deploy/slurm/nodes.sbatch`, which becomes one node.
//!
//! ```text
//! create     squeue: is there a job of this key? ─ no ─▶ sbatch --array=1-COUNT --comment=taskwork/KEY/OFFER
//! list       squeue --array --states=all                 7_1, 7_2, 7_3: the ids of the machines
//! terminate  scancel those that wait; SIGTERM to the batch scripts of those that run, which lets the nodes drain
//! ```
//!
//! Slurm forgets jobs some minutes after their end (`MinJobAge`), so only jobs that have ended longer ago are created
//! again under the same key.

mod answer;
mod run;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Deserialize;

use self::run::{Said, run};
use super::{
    Calling, Connector, Key, MACHINE_VARIABLE, Machine, MachineId, Offer, Refusal,
    file::{Common, LABELS_VARIABLE},
};

/// What a connector's file says of Slurm.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// The batch script that becomes a node, such as `deploy/slurm/nodes.sbatch`.
    script: PathBuf,
    /// The arguments of the script: options of the node, such as `--insecure`.
    #[serde(default)]
    arguments: Vec<String>,
    /// The name of the jobs, by which they are found; by default that of the cluster after `taskwork-`. No two
    /// connectors of one user may have the same.
    #[serde(default)]
    job_name: Option<String>,
    /// Options of `sbatch` for each offer, such as `["--partition=long", "--cpus-per-task=32"]`.
    #[serde(default)]
    sbatch: BTreeMap<String, Vec<String>>,
    /// Variables for the script besides those of this process, such as `TASKWORK_PROGRAM`.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// The folder of Slurm's commands, if they are not on the search path.
    #[serde(default)]
    commands: Option<PathBuf>,
}

/// The connector to Slurm, through its commands.
#[derive(Debug)]
pub(super) struct Slurm {
    common: Common,
    settings: Settings,
    script: PathBuf,
    job_name: String,
}

/// The time limit of one command, of which a call needs at most three; a controller of Slurm that is being replaced
/// is waited for by them.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(18);

/// The most nodes of one request: Slurm's own limit for an array unless it was changed.
const ARRAY_MAX: u32 = 1000;

/// Options of `sbatch` by which jobs would not be found again, or would not be those of the script.
const OWN_OPTIONS: [&str; 9] =
    ["--array", "-a", "--comment", "--job-name", "-J", "--parsable", "--wait", "-W", "--wrap"];

/// Variables of a node that the connector sets itself.
const OWN_VARIABLES: [&str; 3] = [MACHINE_VARIABLE, LABELS_VARIABLE, "TASKWORK_CLUSTER"];

impl Slurm {
    /// Opens the connector. Slurm is not asked for anything yet.
    ///
    /// # Errors
    /// What is wrong with the settings, whatever Slurm says.
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
            let is_own = |option: &&String| {
                let name = option.split_once('=').map_or(option.as_str(), |(name, _)| name);
                OWN_OPTIONS.contains(&name)
            };
            if let Some(option) = options.iter().find(is_own) {
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
        Ok(Self { common, settings, script, job_name })
    }

    fn offer(&self, name: &str) -> Result<&Offer, Refusal> {
        self.common.offer(name).ok_or_else(|| {
            Refusal::wrong(format!("there is no offer {name:?} among those of the connector to Slurm"))
        })
    }

    /// Returns what there is of our jobs.
    async fn squeue(&self) -> Result<String, Refusal> {
        let name = format!("--name={}", self.job_name);
        let format = format!("--format={}", answer::FORMAT);
        let said = self
            .run(
                "squeue",
                ["--noheader", "--array", "--me", "--states=all", &name, &format],
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
        // Slurm hands them on to the script.
        let mut environment = self.settings.environment.clone();
        environment.insert(LABELS_VARIABLE.to_owned(), self.common.labels(offer));
        environment.insert("TASKWORK_CLUSTER".to_owned(), self.common.cluster.clone());
        let said = self.run("sbatch", words, &environment).await?;
        if !said.success {
            return Err(answer::refusal("sbatch", &said.error));
        }
        answer::submitted(&said.output, count)
    }

    /// Cancels machines in this state, with these further options.
    async fn scancel(&self, state: &str, options: &[&str], machines: &[MachineId]) -> Result<(), Refusal> {
        let name = format!("--name={}", self.job_name);
        let state = format!("--state={state}");
        let words = [&name, &state].map(String::as_str).into_iter().chain(options.iter().copied());
        let words = words.chain(machines.iter().map(MachineId::as_str));
        let said = self.run("scancel", words, &BTreeMap::new()).await?;
        answer::cancelled(said.success, &said.error)
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

    fn create<'a>(&'a self, offer: &'a str, count: u32, key: &'a Key) -> Calling<'a, Vec<MachineId>> {
        Box::pin(async move {
            let offer = self.offer(offer)?;
            if count == 0 {
                return Ok(Vec::new());
            }
            if count > ARRAY_MAX {
                return Err(Refusal::wrong(format!(
                    "{count} nodes at once: an array of Slurm has at most {ARRAY_MAX}"
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
        Box::pin(async move { answer::machines(&self.squeue().await?) })
    }

    fn look(&self) -> Calling<'_, Vec<Machine>> {
        self.list()
    }

    fn terminate<'a>(&'a self, machines: &'a [MachineId]) -> Calling<'a, ()> {
        Box::pin(async move {
            if let Some(other) = machines.iter().find(|machine| !answer::is_array_task(machine.as_str())) {
                return Err(Refusal::wrong(format!(
                    "{other} is no machine of Slurm: those are called JOB_TASK, such as 7_1"
                )));
            }
            if machines.is_empty() {
                return Ok(());
            }
            // Those that wait have nobody to get a signal. They may begin meanwhile, so they come first.
            self.scancel("PENDING", &[], machines).await?;
            self.scancel("SUSPENDED", &[], machines).await?;
            self.scancel("RUNNING", &["--signal=TERM", "--batch"], machines).await
        })
    }
}

/// Returns whether a word needs no quotes anywhere.
fn is_plain(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&word.len()) && word.bytes().all(plain)
}

#[cfg(test)]
mod tests;
