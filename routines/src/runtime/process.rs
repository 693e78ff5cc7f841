//! One runtime: a child process that is connected by two named pipes.
//!
//! ```text
//!  task ──frames──▶ ROUTINES_IN ──▶ child ──▶ ROUTINES_OUT ──frames──▶ task
//! ```
//!
//! The host holds both ends of each pipe, so that opening one never blocks, and a program may open its ends repeatedly. The
//! thread of the task waits for the pipes and for the exit of the process, and runs the nested calls of the runtime: no
//! other thread takes part in a call.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, ErrorKind, PipeReader, Read as _, Write as _},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
    time::Timespec,
};
use serde_json::value::RawValue;
use taskwork_child::{Group, Killer};
use tempfile::TempDir;

use super::{
    LOAD_MAX, consumption,
    log::Log,
    memory::{MEASURE_EVERY, MemoryLimit},
    nested::NestedCall,
    page::{Page, Request},
    threads::spawn,
};
use crate::{
    ranges::Ranges,
    store::Outcome,
    tenant::Tenant,
    usage::Consumption,
    wire::{
        CallError, ErrorKind as WireErrorKind, Exchange, Frame, FrameError, Frames, FromRuntime, Step,
        ToRuntime,
    },
};

/// The maximum time to wait for the rest of the log of a dead runtime.
const LOG_LATE_MAX: Duration = Duration::from_millis(200);

/// The maximum number of bytes that are read at a time.
const PART_BYTES: usize = 64 << 10;

/// The maximum number of parts that are read before other events are checked: a runtime may write faster than it is read.
const PARTS_MAX: usize = 16;

/// The maximum time between two checks of a nested call for an event that is not in a pipe.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) enum Event {
    Step(Step),
    /// It has exited, or violated the protocol. It must be dropped.
    Broken(String),
    /// It exceeds the memory of its routine. It must be dropped.
    Memory(String),
}

/// A runtime with a loaded routine, or one that is loading it.
#[derive(Debug)]
pub(crate) struct Runtime {
    exchange: Exchange,
    /// The encoded frames that are not written yet, and the written part of the first.
    unwritten: VecDeque<u8>,
    input: File,
    output: File,
    /// The bytes that are being read.
    part: Box<[u8]>,
    received: Frames,
    /// The reason for which no more messages follow.
    end: Option<String>,
    /// The call of the running routine.
    nested: Option<NestedCall>,
    page: Page,
    log: Arc<Log>,
    started: Instant,
    frames: u32,
    calls: u64,
    /// The depth of the current calls: 0 unless a call of another runtime has made them.
    depth: u32,
    /// The tenant of all its calls.
    tenant: Tenant,
    memory: Option<MemoryLimit>,
    killer: Killer,
    /// Whether its status was collected: then another process may have its id.
    is_collected: bool,
    /// Readable when the process has exited.
    exit: OwnedFd,
    /// Removed after the process is gone.
    group: Group,
    _folder: TempDir,
}

/// Waits until a file or a process is ready, for at most this time.
pub(super) fn wait_for(ready: &mut [PollFd<'_>], most: Duration) {
    let most = Timespec::try_from(most).ok();
    // A signal ends a wait early.
    while let Err(Errno::INTR) = poll(ready, most.as_ref()) {}
}

/// Returns a file that is readable when the leader of a group has exited.
pub(super) fn exit_of(group: &Group) -> io::Result<OwnedFd> {
    let process = i32::try_from(group.child.id()).ok().and_then(Pid::from_raw);
    let process = process.ok_or_else(|| io::Error::other("the id of the process is invalid"))?;
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

impl Runtime {
    /// Returns the runtime of a process, with the pipes to it and from it.
    pub(super) fn of(
        group: Group,
        folder: TempDir,
        [input, output]: [File; 2],
        page: Page,
        log_reader: PipeReader,
    ) -> io::Result<Self> {
        let exit = exit_of(&group)?;
        let log = Arc::<Log>::default();
        let its = Arc::clone(&log);
        spawn("log", move || its.fill(log_reader))?;
        Ok(Self {
            exchange: Exchange::new(),
            unwritten: VecDeque::new(),
            input,
            output,
            part: vec![0; PART_BYTES].into(),
            received: Frames::default(),
            end: None,
            nested: None,
            page,
            log,
            started: Instant::now(),
            frames: 0,
            calls: 0,
            depth: 0,
            tenant: Tenant::default(),
            memory: None,
            killer: group.killer(),
            is_collected: false,
            exit,
            group,
            _folder: folder,
        })
    }

    pub(super) fn for_tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// Sets the maximum memory of its processes, in bytes.
    pub(crate) fn with_memory(mut self, bytes: Option<u64>) -> Self {
        self.memory = bytes.map(MemoryLimit::new);
        self
    }

    pub(crate) fn consumption(&self) -> Consumption {
        consumption::of(self.group.child.id())
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }

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
        Ok(())
    }

    /// Writes as much as the pipe accepts.
    fn write(&mut self) {
        while !self.unwritten.is_empty() {
            match self.input.write(self.unwritten.as_slices().0) {
                Ok(bytes) => drop(self.unwritten.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The host has hung up.
                Err(_) => return self.unwritten.clear(),
            }
        }
    }

    /// Waits for events at most so long, and returns them.
    pub(crate) fn poll(&mut self, wait: Duration) -> Vec<Event> {
        let deadline = Instant::now() + wait;
        loop {
            let events = self.advance();
            let left = deadline.saturating_duration_since(Instant::now());
            if !events.is_empty() || left.is_zero() {
                return events;
            }
            self.wait(left);
        }
    }

    /// Waits at most so long until something may have happened.
    pub(crate) fn wait(&self, most: Duration) {
        let mut ready = Vec::new();
        let is_complete = self.watch(&mut ready);
        let most = if self.memory.is_some() { most.min(MEASURE_EVERY) } else { most };
        wait_for(&mut ready, if is_complete { most } else { most.min(LOOK) });
    }

    /// Adds everything on which the runtime waits. Returns whether it waits for nothing else.
    pub(super) fn watch<'a>(&'a self, ready: &mut Vec<PollFd<'a>>) -> bool {
        ready.push(PollFd::new(&self.output, PollFlags::IN));
        ready.push(PollFd::new(&self.exit, PollFlags::IN));
        if !self.unwritten.is_empty() {
            ready.push(PollFd::new(&self.input, PollFlags::OUT));
        }
        self.nested.as_ref().is_none_or(|nested| nested.watch(ready))
    }

    /// Reads, writes and continues the nested call without waiting, and returns events.
    fn advance(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.write();
        if self.end.is_none() {
            self.end = self.read(&mut events).err();
        }
        if let Some(end) = &self.end {
            events.push(Event::Broken(end.clone()));
        } else if let Some(outcome) = self.nested.as_mut().and_then(NestedCall::advance) {
            self.nested = None;
            self.answer(&outcome);
        }
        let group = self.group.child.id();
        if events.is_empty()
            && let Some(reason) = self.memory.as_mut().and_then(|limit| limit.exceeded(group))
        {
            events.push(Event::Memory(reason));
        }
        events
    }

    /// Reads messages until there is an event, or at most a number of parts.
    ///
    /// # Errors
    /// The reason if no more follow.
    fn read(&mut self, events: &mut Vec<Event>) -> Result<(), String> {
        let mut has_exited = false;
        for _ in 0..PARTS_MAX {
            match self.output.read(&mut self.part) {
                Ok(bytes) => {
                    self.received.extend(&self.part[..bytes]);
                    self.take_messages(events)?;
                    if !events.is_empty() || self.nested.is_some() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(
                        self.describe_end(&format!("the pipe of the runtime cannot be read: {error}"))
                    );
                }
                Err(_) if has_exited => return Err(self.describe_end("the runtime has exited")),
                Err(_) if self.wait_exit(Duration::ZERO) => {
                    // It may have written before that.
                    has_exited = true;
                }
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn take_messages(&mut self, events: &mut Vec<Event>) -> Result<(), String> {
        loop {
            let message = match self.received.next() {
                Ok(None) => return Ok(()),
                Ok(Some(frame)) => FromRuntime::parse(&frame)
                    .map_err(|error| format!("the runtime has sent a wrong message: {error}")),
                Err(error) => Err(format!("the runtime has sent a broken frame: {error}")),
            };
            let message = message.map_err(|reason| self.describe_end(&reason))?;
            let step = self.exchange.on_message(message);
            match step.map_err(|error| format!("{error}{}", self.log.shown(Duration::ZERO)))? {
                Step::Nothing => {}
                // It waits for the answer, so the call runs in its slot.
                Step::Calls { routine, argument } => {
                    self.nested =
                        Some(NestedCall::start(routine, argument, self.depth + 1, self.tenant.clone()));
                }
                step => events.push(Event::Step(step)),
            }
        }
    }

    /// Waits for the exit of the process, and returns whether it has exited.
    fn wait_exit(&self, most: Duration) -> bool {
        let mut exit = [PollFd::new(&self.exit, PollFlags::IN)];
        wait_for(&mut exit, most);
        !exit[0].revents().is_empty()
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

    /// Describes the end of the process, or returns the reason if it has not exited.
    fn describe_end(&mut self, reason: &str) -> String {
        if !self.wait_exit(LOG_LATE_MAX) {
            return format!("{reason}{}", self.log.shown(Duration::ZERO));
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
        if !self.is_collected {
            // Also kills its children.
            self.killer.kill();
        }
    }
}
