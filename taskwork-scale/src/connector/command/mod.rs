//! Machines that are had by programs of the user's own: the tools of a cloud, ssh, whatever there is.
//!
//! | program | arguments | prints |
//! |---|---|---|
//! | `create` | OFFER COUNT KEY | a line of JSON for each machine that has an id already |
//! | `list` | | a line for each machine that it has ever created, and that is not long gone |
//! | `terminate` | ID… | nothing |
//!
//! A line is `{"id": "i-1", "offer": "small", "state": "running", "key": "a1b2-0", "created_ms": 1767225600000}`,
//! where `state` is `requested`, `running`, `ending`, `gone` or `failed` (then `why` says more); all but `id`,
//! `offer` and `state` may be missing. In the environment of `create` there are `TASKWORK_CLUSTER`, and
//! `TASKWORK_LABELS`, which is to be in the environment of the node, like `TASKWORK_MACHINE`, which is the id of
//! the machine. In that of `list` there is `TASKWORK_DRY_RUN` if it is called by somebody who only looks, and it may
//! change nothing then.
//!
//! `create` with a key that it knows creates nothing; it is repeated whenever its answer was lost. The exit code 0
//! says that it is done; 75 that there are no more machines at present, and nothing was done; 78, 126 and 127 that
//! somebody must mend something, and nothing was done. After any other end it is not known whether it was done.
//!
//! Whatever the programs do, it is bounded: the time, what they print, and the number of machines.

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

/// The variable of the environment in which `list` finds that it may change nothing, files of its own included.
const LOOK_VARIABLE: &str = "TASKWORK_DRY_RUN";

/// The number of machines that one call of `terminate` ends.
const TERMINATED_MAX: usize = 100;

/// What a connector's file says of the programs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    create: Vec<String>,
    list: Vec<String>,
    terminate: Vec<String>,
    /// The longest time of a call, in seconds.
    #[serde(default = "timeout")]
    timeout_s: u32,
}

const fn timeout() -> u32 {
    50
}

/// Machines that are had by programs.
#[derive(Debug)]
pub(super) struct Command {
    common: Common,
    create: Program,
    list: Program,
    terminate: Program,
}

/// A line about a machine.
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
    /// Opens the connector. The programs are not run yet.
    ///
    /// # Errors
    /// What is wrong with the settings.
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

    async fn list_now(&self, only_look: bool) -> Result<Vec<Machine>, Refusal> {
        let mut environment = vec![("TASKWORK_CLUSTER", self.common.cluster.as_str())];
        if only_look {
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

/// Reads lines about machines. If one of them cannot be understood, none counts: what is not listed is gone.
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
                MachineState::Failed(why.unwrap_or_else(|| "it does not say why".to_owned()))
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
