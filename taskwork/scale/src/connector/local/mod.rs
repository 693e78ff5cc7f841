//! Machines that are local processes: for trials, for tests, and for one large machine.
//!
//! Each process has a file in a folder, from before its start until long after its end, so that a restarted
//! controller knows it and never starts it twice. It is identified by its pid and its start time, since pids are
//! reused. It leads its own process group, so that Ctrl-C for the controller does not reach it; it is terminated by
//! SIGTERM, and by SIGKILL after a grace period.
//!
//! Files are written and processes are started in separate threads: a slow disk must not block other work of the
//! controller, such as its heartbeats to ZooKeeper.
//!
//! ```text
//!   <folder>/<cluster>/<key>.<number>.json   its record
//!                      <key>.<number>.log    its output
//! ```

mod process;
mod records;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use nix::sys::signal::Signal;
use serde::Deserialize;

use self::{
    process::Process,
    records::{Record, Records, State},
};
use super::{
    Calling, Connector, Key, MACHINE_VARIABLE, Machine, MachineId, MachineState, Offer, Refusal,
    file::{Common, LABELS_VARIABLE},
};

/// The settings of local machines in a connector's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// The program and its arguments, without a shell.
    program: Vec<String>,
    /// Further variables of its environment.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// The folder of the files.
    folder: PathBuf,
    /// The time between SIGTERM and SIGKILL, in seconds.
    #[serde(default = "grace")]
    grace_s: u32,
}

/// The environment variable by which a process is found again: the path of its file, which is unique.
const RECORD_VARIABLE: &str = "TASKWORK_MACHINE_RECORD";

/// Twice the default drain deadline of a node, and some time to exit.
const fn grace() -> u32 {
    75
}

/// The connector to local processes.
#[derive(Debug)]
pub(super) struct Local(Arc<Processes>);

/// The processes of this machine.
#[derive(Debug)]
struct Processes {
    common: Common,
    settings: Settings,
    records: Records,
    /// The child processes of this process, which only it may wait for.
    children: Mutex<BTreeMap<MachineId, Child>>,
    /// Held by the current call. A cancelled call continues in its thread, and the next one must not see its work
    /// half done.
    turn: Mutex<()>,
}

impl Local {
    /// Opens the connector. Its folder is created with the first machine.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub(super) fn new(common: Common, settings: Settings) -> Result<Self, String> {
        if settings.program.is_empty() {
            return Err(
                "program: expected a program and its arguments, such as [\"tsp\", \"node\"]".to_owned()
            );
        }
        for name in [MACHINE_VARIABLE, LABELS_VARIABLE] {
            if settings.environment.contains_key(name) {
                return Err(format!("environment: {name} is set by the controller itself"));
            }
        }
        let folder = common.path(&settings.folder).join(&common.cluster);
        let settled = settled(&folder).map_err(|error| format!("folder {}: {error}", folder.display()))?;
        let (records, children, turn) = (Records::new(settled), Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Processes { common, settings, records, children, turn })))
    }

    /// Runs a blocking call after the calls before it.
    fn run_blocking<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Processes) -> Result<T, Refusal> + Send + 'static,
    ) -> Calling<'_, T> {
        let processes = Arc::clone(&self.0);
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || {
                let _turn = processes.turn.lock().unwrap_or_else(PoisonError::into_inner);
                what(&processes)
            });
            let done = done.await;
            done.unwrap_or_else(|error| Err(Refusal::unknown(format!("the call failed: {error}"))))
        })
    }
}

/// Returns a canonical path of a folder, which need not exist yet.
fn settled(folder: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(folder)?;
    let there = whole.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/"));
    let rest = whole.strip_prefix(there).unwrap_or(Path::new(""));
    Ok(fs::canonicalize(there)?.join(rest))
}

impl Processes {
    fn children(&self) -> MutexGuard<'_, BTreeMap<MachineId, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create_now(&self, name: &str, count: u32, key: &Key) -> Result<Vec<MachineId>, Refusal> {
        let offer =
            self.common.offer(name).ok_or_else(|| Refusal::wrong(format!("there is no offer {name:?}")))?;
        let folder = self.records.folder();
        fs::create_dir_all(folder)
            .map_err(|error| Refusal::wrong(format!("folder {}: {error}", folder.display())))?;
        let mut ids = Vec::new();
        for number in 0..count {
            let id: MachineId = format!("{key}.{number}")
                .parse()
                .map_err(|error| Refusal::wrong(format!("key {key}: {error}")))?;
            match self.ensure_started(offer, &id, key) {
                Ok(()) => ids.push(id),
                Err(refusal) if ids.is_empty() => return Err(refusal),
                Err(refusal) => {
                    tracing::warn!(%refusal, started = ids.len(), count, "only some processes were started");
                    break;
                }
            }
        }
        Ok(ids)
    }

    /// Starts a process unless that was done before.
    fn ensure_started(&self, offer: &Offer, id: &MachineId, key: &Key) -> Result<(), Refusal> {
        let failed =
            |error: io::Error| Refusal::unknown(format!("{}: {error}", self.records.file(id).display()));
        let new = Record::new(offer.name.clone(), key.clone(), now_ms());
        let (mut record, is_new) = self.records.begin(id, new).map_err(failed)?;
        if record.state != State::Starting {
            return Ok(());
        }
        // An earlier controller may have been killed between the start and the record of it.
        let found = if is_new { None } else { self.found(&Process::all(RECORD_VARIABLE), id) };
        record.state = match found {
            Some(process) => State::Running(process),
            None => match self.start(offer, id) {
                Ok(state) => state,
                Err(refusal) => {
                    // Nothing was started, so there is nothing to find later.
                    self.records.remove(id).map_err(failed)?;
                    return Err(refusal);
                }
            },
        };
        self.records.write(id, &record).map_err(failed)
    }

    /// Searches the processes of this machine for one that was started but not recorded.
    fn found(&self, all: &BTreeMap<Vec<u8>, Process>, id: &MachineId) -> Option<Process> {
        all.get(self.records.file(id).as_os_str().as_bytes()).cloned()
    }

    fn start(&self, offer: &Offer, id: &MachineId) -> Result<State, Refusal> {
        let log = self.records.log(id);
        let open = OpenOptions::new().create(true).append(true).open(&log);
        let piped = open.and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = piped.map_err(|error| Refusal::wrong(format!("{}: {error}", log.display())))?;
        let program = &self.settings.program[0];
        // A path relates to the connector's file; a bare name is looked up in PATH.
        let path =
            if program.contains('/') { self.common.path(program.as_ref()) } else { PathBuf::from(program) };
        let started = Command::new(path)
            .args(&self.settings.program[1..])
            .envs(&self.settings.environment)
            .env(MACHINE_VARIABLE, id.as_str())
            .env(LABELS_VARIABLE, self.common.labels(offer))
            .env(RECORD_VARIABLE, self.records.file(id))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn();
        let mut child = started.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
                Refusal::exhausted(format!("{program} cannot be started now: {error}"))
            }
            _ => Refusal::wrong(format!(
                "{program} cannot be started: {error}. See program in the connector's file"
            )),
        })?;
        let Some(process) = Process::of(child.id()) else {
            let why =
                child.try_wait().ok().flatten().map_or_else(|| "at once".to_owned(), |code| code.to_string());
            return Ok(State::Failed(format!("it exited: {why}; see {}", log.display())));
        };
        self.children().insert(id.clone(), child);
        Ok(State::Running(process))
    }

    /// Lists the processes. Unless this is a dry run, records their states, and kills those whose grace period is
    /// over.
    fn list_now(&self, is_dry_run: bool) -> Result<Vec<Machine>, Refusal> {
        let now_ms = now_ms();
        let records = self
            .records
            .all(now_ms, is_dry_run)
            .map_err(|error| Refusal::unknown(format!("{}: {error}", self.records.folder().display())))?;
        let mut machines = Vec::new();
        // Read once for all, since this examines every process of the machine.
        let is_open = records.iter().any(|(_, record)| record.state == State::Starting);
        let running = if is_open { Process::all(RECORD_VARIABLE) } else { BTreeMap::new() };
        for (id, mut record) in records {
            let before = record.state.clone();
            self.look(&id, &mut record, &running);
            if is_dry_run {
                // A dry run writes nothing.
            } else if record.state == before {
                self.kill_if_due(&id, &record, now_ms);
            } else {
                self.records.write(&id, &record).map_err(|error| {
                    Refusal::unknown(format!("{}: {error}", self.records.file(&id).display()))
                })?;
            }
            let state = match record.state {
                // It was never reported; its request is repeated or dropped.
                State::Starting => continue,
                State::Running(_) => MachineState::Running,
                State::Ending { .. } => MachineState::Ending,
                State::Gone => MachineState::Gone,
                State::Failed(why) => MachineState::Failed(why),
            };
            let (offer, key, created_ms) = (record.offer, Some(record.key), Some(record.created_ms));
            machines.push(Machine { id, offer, state, key, created_ms });
        }
        Ok(machines)
    }

    /// Kills a process whose grace period is over.
    fn kill_if_due(&self, id: &MachineId, record: &Record, now_ms: u64) {
        let State::Ending { process, since_ms } = &record.state else { return };
        if now_ms.saturating_sub(*since_ms) > u64::from(self.settings.grace_s) * 1000 {
            tracing::warn!(machine = %id, "the process did not exit within its grace period, and is killed");
            process.signal(Signal::SIGKILL);
        }
    }

    /// Updates the state of a process.
    fn look(&self, id: &MachineId, record: &mut Record, running: &BTreeMap<Vec<u8>, Process>) {
        let process = match &record.state {
            State::Starting => {
                if let Some(process) = self.found(running, id) {
                    record.state = State::Running(process);
                }
                return;
            }
            State::Running(process) | State::Ending { process, .. } => process,
            State::Gone | State::Failed(_) => return,
        };
        if process.runs() {
            return;
        }
        let mut children = self.children();
        // Read here, since it may have exited in between. Waiting also frees the pid.
        let code = match children.get_mut(id).map(Child::try_wait) {
            // It runs, although the system did not report it.
            Some(Ok(None)) => return,
            Some(Ok(code)) => code,
            Some(Err(_)) | None => None,
        };
        children.remove(id);
        drop(children);
        let was_ended = matches!(record.state, State::Ending { .. });
        record.state = match code {
            Some(code) if !code.success() && !was_ended => {
                State::Failed(format!("it exited: {code}; see {}", self.records.log(id).display()))
            }
            _ => State::Gone,
        };
    }

    fn terminate_now(&self, ids: &[MachineId]) -> Result<(), Refusal> {
        for id in ids {
            let failed =
                |error: io::Error| Refusal::unknown(format!("{}: {error}", self.records.file(id).display()));
            let Some(mut record) = self.records.read(id).map_err(failed)? else { continue };
            if let State::Running(process) = &record.state {
                // A second SIGTERM would make a node hurry, so the first one is recorded. A controller that is killed
                // in between sends it twice rather than never.
                process.signal(Signal::SIGTERM);
                record.state = State::Ending { process: process.clone(), since_ms: now_ms() };
                self.records.write(id, &record).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Connector for Local {
    fn offers(&self) -> &[Offer] {
        &self.0.common.offers
    }

    fn create<'a>(&'a self, offer: &'a str, count: u32, key: &'a Key) -> Calling<'a, Vec<MachineId>> {
        let (offer, key) = (offer.to_owned(), key.clone());
        self.run_blocking(move |processes| processes.create_now(&offer, count, &key))
    }

    fn list(&self) -> Calling<'_, Vec<Machine>> {
        self.run_blocking(|processes| processes.list_now(false))
    }

    fn look(&self) -> Calling<'_, Vec<Machine>> {
        self.run_blocking(|processes| processes.list_now(true))
    }

    fn terminate<'a>(&'a self, machines: &'a [MachineId]) -> Calling<'a, ()> {
        let machines = machines.to_vec();
        self.run_blocking(move |processes| processes.terminate_now(&machines))
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
