//! Machines created by the user's own programs, such as the tools of a cloud or ssh.
//!
//! | program | arguments | prints |
//! |---|---|---|
//! | `create` | OFFER COUNT KEY | a line of JSON for each machine that has an id already |
//! | `list` | | a line for each machine that it has ever created, and that is not long gone |
//! | `terminate` | ID… | nothing |
//!
//! A line is `{"id": "i-1", "offer": "small", "state": "running", "key": "a1b2-0", "created_ms": 1767225600000}`,
//! where `state` is `requested`, `running`, `ending`, `gone` or `failed` (with the reason in `why`); all but `id`,
//! `offer` and `state` are optional. The environment of `create` contains `TASKWORK_CLUSTER` and `TASKWORK_LABELS`.
//! The program passes `TASKWORK_LABELS` to the environment of the node, with the id of the machine as
//! `TASKWORK_MACHINE`. The environment of `list` contains `TASKWORK_DRY_RUN` in a dry run, in which it must not
//! change anything.
//!
//! `create` with a known key creates nothing; it is repeated if its answer was lost. Exit code 0 reports success; 75
//! that no more machines are available at present, and nothing was done; 78, 126 and 127 that the user must fix the
//! configuration, and nothing was done. After any other end the outcome is unknown.
//!
//! The time, the output and the number of machines are bounded, whatever the programs do.

mod program;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use serde::Deserialize;

use self::program::Program;
use super::{
    CALL_MAX, Calling, Connector, Key, MACHINES_MAX, Machine, MachineId, MachineState, Offer, Refusal,
    file::{Common, LABELS_VARIABLE},
};

/// The environment variable that forbids `list` to change anything, including files of its own.
const LOOK_VARIABLE: &str = "TASKWORK_DRY_RUN";

/// The number of machines that one call of `terminate` ends.
const TERMINATED_MAX: usize = 100;

/// The settings of the programs in a connector's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    create: Vec<String>,
    list: Vec<String>,
    terminate: Vec<String>,
    #[serde(default = "timeout")]
    timeout_s: u32,
}

const fn timeout() -> u32 {
    50
}

/// The connector to the user's programs.
#[derive(Debug)]
pub(super) struct Command {
    common: Common,
    create: Program,
    list: Program,
    terminate: Program,
}

/// A line of output about a machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: MachineId,
    offer: String,
    state: StateWord,
    why: Option<String>,
    key: Option<Key>,
    created_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateWord {
    Requested,
    Running,
    Ending,
    Gone,
    Failed,
}

impl Command {
    /// Opens the connector. Does not run the programs yet.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub(super) fn new(common: Common, settings: Settings) -> Result<Self, String> {
        let limit = Duration::from_secs(settings.timeout_s.into());
        if limit.is_zero() || limit >= CALL_MAX {
            let most = CALL_MAX.as_secs() - 1;
            return Err(format!("timeout_s {}: expected 1 to {most} seconds", settings.timeout_s));
        }
        let program = |name: &str, words: Vec<String>| {
            let mut words = words.into_iter();
            let first = words.next().filter(|first| !first.is_empty());
            let first = first.ok_or_else(|| format!("{name}: expected a program and its arguments"))?;
            // A path relates to the connector's file; a bare name is looked up in PATH.
            let path = if first.contains('/') { common.path(first.as_ref()) } else { PathBuf::from(first) };
            Ok::<Program, String>(Program { path, arguments: words.collect(), limit })
        };
        Ok(Self {
            create: program("create", settings.create)?,
            list: program("list", settings.list)?,
            terminate: program("terminate", settings.terminate)?,
            common,
        })
    }

    async fn create_now(&self, name: &str, count: u32, key: &Key) -> Result<Vec<MachineId>, Refusal> {
        let offer =
            self.common.offer(name).ok_or_else(|| Refusal::wrong(format!("there is no offer {name:?}")))?;
        let arguments = [name.to_owned(), count.to_string(), key.to_string()];
        let labels = self.common.labels(offer);
        let environment = [("TASKWORK_CLUSTER", self.common.cluster.as_str()), (LABELS_VARIABLE, &labels)];
        let text = self.create.run(&arguments, &environment).await?;
        let machines = read(&self.create, &text)?;
        if machines.len() > count as usize {
            let (path, found) = (self.create.path.display(), machines.len());
            return Err(Refusal::unknown(format!(
                "{path} printed {found} machines; expected at most {count}"
            )));
        }
        Ok(machines.into_iter().map(|machine| machine.id).collect())
    }

    async fn list_now(&self, is_dry_run: bool) -> Result<Vec<Machine>, Refusal> {
        let mut environment = vec![("TASKWORK_CLUSTER", self.common.cluster.as_str())];
        if is_dry_run {
            environment.push((LOOK_VARIABLE, "1"));
        }
        let text = self.list.run(&[], &environment).await?;
        read(&self.list, &text)
    }

    async fn terminate_now(&self, machines: &[MachineId]) -> Result<(), Refusal> {
        let environment = [("TASKWORK_CLUSTER", self.common.cluster.as_str())];
        for some in machines.chunks(TERMINATED_MAX) {
            let ids: Vec<String> = some.iter().map(ToString::to_string).collect();
            self.terminate.run(&ids, &environment).await?;
        }
        Ok(())
    }
}

/// Parses lines about machines. One invalid line makes all invalid, since unlisted machines count as gone.
fn read(program: &Program, text: &str) -> Result<Vec<Machine>, Refusal> {
    let path = program.path.display();
    let (mut machines, mut ids) = (Vec::new(), BTreeSet::new());
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |reason: String| {
            let shown: String = line.chars().take(120).collect();
            Refusal::unknown(format!("{path} printed {shown:?} in line {}: {reason}", number + 1))
        };
        let line: Line = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        if !ids.insert(line.id.clone()) {
            return Err(wrong("this machine was in an earlier line already".to_owned()));
        }
        if machines.len() >= MACHINES_MAX {
            return Err(wrong(format!("there are more than {MACHINES_MAX} machines")));
        }
        machines.push(line.into());
    }
    Ok(machines)
}

impl From<Line> for Machine {
    fn from(Line { id, offer, state, why, key, created_ms }: Line) -> Self {
        let state = match state {
            StateWord::Requested => MachineState::Requested,
            StateWord::Running => MachineState::Running,
            StateWord::Ending => MachineState::Ending,
            StateWord::Gone => MachineState::Gone,
            StateWord::Failed => {
                MachineState::Failed(why.unwrap_or_else(|| "no reason was given".to_owned()))
            }
        };
        Self { id, offer, state, key, created_ms }
    }
}

impl Connector for Command {
    fn offers(&self) -> &[Offer] {
        &self.common.offers
    }

    fn create<'a>(&'a self, offer: &'a str, count: u32, key: &'a Key) -> Calling<'a, Vec<MachineId>> {
        Box::pin(self.create_now(offer, count, key))
    }

    fn list(&self) -> Calling<'_, Vec<Machine>> {
        Box::pin(self.list_now(false))
    }

    fn look(&self) -> Calling<'_, Vec<Machine>> {
        Box::pin(self.list_now(true))
    }

    fn terminate<'a>(&'a self, machines: &'a [MachineId]) -> Calling<'a, ()> {
        Box::pin(self.terminate_now(machines))
    }
}
