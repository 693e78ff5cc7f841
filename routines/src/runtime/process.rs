//! One runtime: a child process that is connected by two named pipes.
//!
//! ```text
//!  task ──frames──▶ ROUTINES_IN ──▶ child ──▶ ROUTINES_OUT ──▶ reader thread ──▶ inbox ──▶ task
//!                                     │ exits
//!                                     ▼
//!                     watcher thread closes the host's own ends of both pipes
//! ```
//!
//! The host holds both ends of each pipe, so that opening one never blocks. When the watcher has closed the ends that
//! the child should have, the reader sees the end of the stream, and a write fails: no thread waits for a dead child.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    fcntl::OFlag,
    sys::{
        stat::Mode,
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::{Pid, mkfifo},
};
use serde_json::value::RawValue;
use taskwork_child::{Group, Killer, WorkDir, sweep};
use tempfile::TempDir;
use thiserror::Error;

use super::{
    LOAD_MAX,
    inbox::Inbox,
    log::Log,
    nested::NestedCall,
    page::{Page, Request},
};
use crate::{
    ranges::Ranges,
    store::Outcome,
    wire::{CallError, EntryKind, ErrorKind as WireErrorKind, Exchange, Frame, FrameError, Step, ToRuntime},
};

const PYTHON_SHIM: &str = include_str!("../../shims/python/shim.py");

/// The prefix of the names of work folders.
const PREFIX: &str = "routines-work-";

/// The versions of the protocol that this host speaks.
const VERSIONS: &[u32] = &[1];

/// The maximum time to wait for the rest of the log of a dead runtime.
const LOG_LATE_MAX: Duration = Duration::from_millis(200);

/// The environment variables that runtimes inherit. Others may contain secrets of the node.
const INHERITED: &[&str] = &["PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"];

/// The reasons for which a runtime does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum StartError {
    #[error("the runtime {program:?} cannot be started: {error}")]
    Start { program: PathBuf, error: io::Error },
    #[error("the work folder of a runtime cannot be prepared: {0}")]
    Folder(#[from] io::Error),
}

/// The program of a runtime.
#[derive(Debug)]
pub(crate) enum Program {
    /// This Python interpreter, with the shim.
    Python(PathBuf),
    /// A program and its arguments.
    Command(Vec<OsString>),
}

impl From<PathBuf> for Program {
    fn from(python: PathBuf) -> Self {
        Self::Python(python)
    }
}

/// Starts runtimes in work folders below one folder.
#[derive(Debug)]
pub(crate) struct Starter {
    folder: WorkDir,
    program: Program,
}

#[derive(Debug)]
pub(crate) enum Event {
    Step(Step),
    /// It has exited, or violated the protocol. It must be dropped.
    Broken(String),
}

/// The ends of the pipes that the child should have.
type Kept = (File, File);

/// A runtime with a loaded routine, or one that is loading it.
#[derive(Debug)]
pub(crate) struct Runtime {
    exchange: Exchange,
    /// The encoded frames that are not written yet, and the written part of the first.
    unwritten: VecDeque<u8>,
    input: File,
    /// The host's ends of the pipes that belong to the child.
    kept: Arc<Mutex<Option<Kept>>>,
    page: Page,
    inbox: Arc<Inbox>,
    log: Arc<Log>,
    started: Instant,
    frames: u32,
    calls: u64,
    /// The depth of the current calls: 0 unless a call of another runtime has made them.
    depth: u32,
    killer: Killer,
    /// Whether its status was collected: then another process may have its id.
    is_collected: bool,
    /// `None` only while this is dropped.
    watcher: Option<JoinHandle<()>>,
    /// Removed after the process is gone.
    group: Group,
    _folder: TempDir,
}

impl Starter {
    /// Creates a starter of this program.
    ///
    /// # Errors
    /// If the folder cannot be created or written.
    pub(crate) fn new(within: &Path, program: impl Into<Program>) -> io::Result<Self> {
        fs::create_dir_all(within)?;
        sweep(within, PREFIX);
        let folder = WorkDir::within(within, PREFIX)?;
        fs::write(folder.path().join("shim.py"), PYTHON_SHIM)?;
        Ok(Self { folder, program: program.into() })
    }

    /// Starts a runtime that loads a routine: the program of the package, if it has one.
    pub(crate) fn start(
        &self,
        package: &Path,
        entry: &str,
        kind: EntryKind,
        program: Option<&Path>,
    ) -> Result<Runtime, StartError> {
        let mut runtime = self.open(program)?;
        let package = package.to_string_lossy();
        let load = ToRuntime::Load { folder: &package, entry, kind };
        for message in [ToRuntime::Hello { versions: VERSIONS }, load] {
            let sent = runtime.send(&message.frame());
            sent.map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(runtime)
    }

    /// Starts a runtime that was sent nothing.
    pub(crate) fn open(&self, program: Option<&Path>) -> Result<Runtime, StartError> {
        let folder = tempfile::Builder::new().prefix("runtime-").tempdir_in(self.folder.path())?;
        let (reads, writes) = (folder.path().join("in"), folder.path().join("out"));
        for pipe in [&reads, &writes] {
            mkfifo(pipe, Mode::S_IRUSR | Mode::S_IWUSR).map_err(io::Error::from)?;
        }
        let page_path = folder.path().join("page");
        let page = Page::create(&page_path)?;
        // Opened for both directions, so that neither side waits for the other one.
        let both = |pipe: &Path| OpenOptions::new().read(true).write(true).open(pipe);
        let kept = (both(&reads)?, both(&writes)?);
        let input = OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&reads)?;
        let output = File::open(&writes)?;
        let (log_reader, log_writer) = io::pipe()?;
        let mut command = self.command(folder.path(), program);
        command
            .env("ROUTINES_IN", &reads)
            .env("ROUTINES_OUT", &writes)
            .env("ROUTINES_PAGE", &page_path)
            .stdin(Stdio::null())
            .stdout(log_writer.try_clone()?)
            .stderr(log_writer);
        let program = PathBuf::from(command.get_program());
        let group = Group::start(&mut command);
        // The command holds a write end of the log, which would keep its reader waiting.
        drop(command);
        let group = group.map_err(|error| StartError::Start { program, error })?;
        let (inbox, log) = (Arc::<Inbox>::default(), Arc::<Log>::default());
        let (killer, id) = (group.killer(), group.child.id());
        let kept = Arc::new(Mutex::new(Some(kept)));
        let its = Arc::clone(&kept);
        let watcher = spawn("watcher", move || watch(id, &its))?;
        let its = Arc::clone(&inbox);
        spawn("reader", move || its.fill(output))?;
        let its = Arc::clone(&log);
        spawn("log", move || its.fill(log_reader))?;
        Ok(Runtime {
            exchange: Exchange::new(),
            unwritten: VecDeque::new(),
            input,
            kept,
            page,
            inbox,
            log,
            started: Instant::now(),
            frames: 0,
            calls: 0,
            depth: 0,
            killer,
            is_collected: false,
            watcher: Some(watcher),
            group,
            _folder: folder,
        })
    }

    /// Removes the work folder when the process exits: statics are not dropped.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(self.folder.path()) {
            tracing::debug!(%error, "cannot remove the work folder");
        }
    }

    fn command(&self, folder: &Path, program: Option<&Path>) -> Command {
        let mut command = match (program, &self.program) {
            (Some(program), _) => Command::new(program),
            (None, Program::Python(python)) => {
                let mut command = Command::new(python);
                // Isolated: neither the environment nor the user's folders change the modules that a routine imports.
                let cache = self.folder.path().join("pyc");
                command.args(["-I", "-X"]).arg(format!("pycache_prefix={}", cache.display()));
                command.arg(self.folder.path().join("shim.py"));
                command
            }
            (None, Program::Command(words)) => {
                let mut command = Command::new(words.first().map_or(OsStr::new(""), OsString::as_os_str));
                command.args(words.iter().skip(1));
                command
            }
        };
        command.env_clear().current_dir(folder);
        let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(inherited).env("HOME", folder).env("TMPDIR", folder);
        // A call has one worker, so one thread.
        command.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1").env("PYTHONUNBUFFERED", "1");
        command
    }
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Waits until a child has exited, without collecting its status, and then closes its ends of the pipes.
fn watch(child: u32, kept: &Mutex<Option<Kept>>) {
    let Ok(child) = i32::try_from(child) else { return };
    let waits = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while let Err(nix::errno::Errno::EINTR) = waitid(Id::Pid(Pid::from_raw(child)), waits) {}
    close(kept);
}

fn close(kept: &Mutex<Option<Kept>>) {
    drop(kept.lock().unwrap_or_else(PoisonError::into_inner).take());
}

impl Runtime {
    /// Sends calls at a depth, each with its id. A single one may continue from a state. All earlier calls must be
    /// answered.
    ///
    /// # Errors
    /// If they exceed the size of a frame.
    pub(crate) fn call(
        &mut self,
        calls: &[(u64, Box<RawValue>)],
        state: Option<&[u8]>,
        depth: u32,
    ) -> Result<(), FrameError> {
        // A request to earlier calls.
        self.request(None);
        let mut frame = match calls {
            [(id, argument)] => ToRuntime::Call { id: *id, argument }.frame(),
            calls => {
                let calls = calls.iter().map(|(id, argument)| (*id, &**argument)).collect();
                ToRuntime::Many { calls }.frame()
            }
        };
        frame.bytes = state.unwrap_or_default().to_vec();
        let mut ids = Ranges::default();
        for (id, _) in calls {
            ids.insert(*id..*id + 1);
        }
        self.send_calls(&frame.encode()?, ids, depth);
        Ok(())
    }

    /// Sends the end of a frame with calls that have these ids.
    pub(crate) fn send_calls(&mut self, encoded: &[u8], ids: Ranges, depth: u32) {
        self.send_bytes(encoded);
        self.depth = depth;
        self.frames += 1;
        self.calls += ids.len();
        self.exchange.on_calls(ids);
    }

    /// Starts a search from its state, or without one from its argument. No other search may run.
    ///
    /// # Errors
    /// If it exceeds the size of a frame.
    pub(crate) fn search(
        &mut self,
        argument: &RawValue,
        state: Option<&[u8]>,
        bound: f64,
    ) -> Result<(), FrameError> {
        self.set_bounds([bound; 2]);
        let argument = state.is_none().then_some(argument);
        let frame = ToRuntime::Search { argument }.frame();
        self.resume(&Frame { bytes: state.unwrap_or_default().to_vec(), ..frame })
    }

    /// Continues the paused search.
    pub(crate) fn go(&mut self) -> Result<(), FrameError> {
        self.resume(&ToRuntime::Go.frame())
    }

    fn resume(&mut self, frame: &Frame) -> Result<(), FrameError> {
        // Before the search reads its page, so that no later request is lost.
        self.request(None);
        self.send(frame)?;
        self.exchange.on_search();
        Ok(())
    }

    /// Makes a request to the running search, or to the running call. It must be repeated until it is answered.
    pub(crate) fn request(&self, request: Option<Request>) {
        if let Err(error) = self.page.set_request(request) {
            tracing::warn!(%error, "the page of a runtime cannot be written");
        }
    }

    /// Sets the bound that the search reads at the next request, and its copy. They differ while the bound is being written.
    pub(crate) fn set_bounds(&self, bounds: [f64; 2]) {
        if let Err(error) = self.page.set_bounds(bounds) {
            tracing::warn!(%error, "the page of a search cannot be written");
        }
    }

    pub(crate) fn send(&mut self, frame: &Frame) -> Result<(), FrameError> {
        self.send_bytes(&frame.encode()?);
        Ok(())
    }

    /// Sends bytes, which may be a part of a frame.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.unwritten.extend(bytes);
        self.write();
    }

    /// Closes the pipe to the runtime, as a host that is gone.
    ///
    /// # Errors
    /// If another file cannot replace it.
    pub(crate) fn hang_up(&mut self) -> io::Result<()> {
        self.input = File::open("/dev/null")?;
        close(&self.kept);
        Ok(())
    }

    /// Writes as much as the pipe accepts.
    fn write(&mut self) {
        while !self.unwritten.is_empty() {
            match self.input.write(self.unwritten.as_slices().0) {
                Ok(bytes) => drop(self.unwritten.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The child is gone, which the reader reports.
                Err(_) => return self.unwritten.clear(),
            }
        }
    }

    /// Waits for events at most so long, and returns them.
    pub(crate) fn poll(&mut self, wait: Duration) -> Vec<Event> {
        self.write();
        let (messages, answer, end) = self.inbox.take(wait);
        if let Some(answer) = answer {
            self.answer(&answer);
        }
        let mut events = Vec::new();
        for message in messages {
            match self.exchange.on_message(message) {
                Ok(Step::Nothing) => {}
                Ok(Step::Calls { routine, argument }) => self.nest(routine, argument),
                Ok(step) => events.push(Event::Step(step)),
                Err(error) => {
                    events.push(Event::Broken(format!("{error}{}", self.log.shown(Duration::ZERO))));
                    return events;
                }
            }
        }
        if let Some(end) = end {
            events.push(Event::Broken(self.end(&end)));
        }
        events
    }

    /// Starts a call that the runtime has made, in its slot: it waits for the answer.
    fn nest(&self, routine: String, argument: Box<RawValue>) {
        let (depth, caller) = (self.depth + 1, Arc::clone(&self.inbox));
        NestedCall { routine, argument, depth, caller }.start();
    }

    fn answer(&mut self, outcome: &Outcome) {
        let (value, error) = match outcome {
            Outcome::Value(value) => (Some(&**value), None),
            Outcome::Error(error) => (None, Some(error)),
        };
        self.exchange.on_nested_answer();
        if let Err(error) = self.send(&ToRuntime::Answer { value, error }.frame()) {
            let error = CallError::new(WireErrorKind::Invalid, format!("the result is too large: {error}"));
            self.answer(&Outcome::Error(error));
        }
    }

    /// Describes the end of the process.
    fn end(&mut self, end: &str) -> String {
        // The reader may have ended because of a broken frame.
        let deadline = Instant::now() + LOG_LATE_MAX;
        if self.is_collected {
            return end.to_owned();
        }
        while self.watcher.as_ref().is_some_and(|watcher| !watcher.is_finished()) {
            if Instant::now() >= deadline {
                return format!("{end}{}", self.log.shown(Duration::ZERO));
            }
            thread::sleep(Duration::from_millis(1));
        }
        // It may have left children.
        self.killer.kill();
        let status = self.group.child.try_wait().ok().flatten();
        self.is_collected = status.is_some();
        let status = status.map_or_else(String::new, |status| format!(", {status}"));
        format!("the runtime has exited{status}{}", self.log.shown(LOG_LATE_MAX))
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Returns the reason if it should have loaded its routine by now.
    pub(crate) fn late_load(&self) -> Option<String> {
        let is_late = !self.exchange.is_loaded() && self.age() >= LOAD_MAX;
        is_late.then(|| format!("it was not loaded within {} s{}", LOAD_MAX.as_secs(), self.log()))
    }

    /// Returns the message about a call that has exceeded its time limit.
    pub(crate) fn exceeded(&self, limit: Duration) -> String {
        format!("the call exceeded its time limit of {} s{}", limit.as_secs_f64(), self.log())
    }

    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the numbers of frames and calls that it was sent.
    pub(crate) fn used(&self) -> (u32, u64) {
        (self.frames, self.calls)
    }

    #[cfg(test)]
    pub(crate) fn kill(&self) {
        self.killer.kill();
    }

    /// Returns the end of its output, formatted for messages.
    pub(crate) fn log(&self) -> String {
        self.log.shown(Duration::ZERO)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.inbox.close();
        if !self.is_collected {
            // Also kills its children, and ends the wait of the watcher.
            self.killer.kill();
        }
        if let Some(watcher) = self.watcher.take() {
            // It only waits for the killed child.
            let _ = watcher.join();
        }
    }
}
