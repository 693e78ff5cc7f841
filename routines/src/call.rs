//! One call on this node, on the thread of its caller: a direct call, or a nested one, which advances with its caller.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::value::RawValue;

use crate::{
    host::Host,
    resource::{Files, Local},
    runtime::{ANSWER_LATE_MAX, CRASHES_MAX, Event, Installed, LOADS_MAX, Runtime},
    store::Outcome,
    tenant::Tenant,
    wire::{CallError, EntryKind, ErrorKind, Step},
};

/// The maximum time between two checks whether the call is abandoned or late.
const CHECK: Duration = Duration::from_millis(20);

/// A call on this node. Its process is stopped if this is dropped before the end.
#[derive(Debug)]
pub(crate) struct CallHere<'a> {
    host: &'a Host,
    installed: Arc<Installed>,
    argument: Box<RawValue>,
    depth: u32,
    tenant: Tenant,
    deadline: Option<Deadline>,
    /// That of the current attempt, from the time limit of the routine.
    attempt_deadline: Option<Deadline>,
    files: Files<'a>,
    /// Whether the files are here, and the argument has their paths.
    is_local: bool,
    runtime: Option<Runtime>,
    /// Whether the runtime has the call.
    is_sent: bool,
    /// The number of new runtimes in a row without a loaded routine, and the number of runtimes that were lost with the call.
    loads: u32,
    crashes: u32,
}

#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit + ANSWER_LATE_MAX, limit }
    }
}

/// The state of an attempt.
enum Attempt {
    Runs,
    Ended(Outcome),
    /// The call has failed with the runtime, which must not be kept.
    Failed(Outcome),
    /// The runtime was lost, for this reason; the call may fail with an error of this kind.
    Lost(ErrorKind, String),
}

impl<'a> CallHere<'a> {
    /// Creates a call of a tenant with a time limit from now on. That of the routine starts when a runtime has loaded it.
    pub(crate) fn new(
        host: &'a Host,
        installed: Arc<Installed>,
        argument: Box<RawValue>,
        depth: u32,
        limit: Option<Duration>,
        tenant: Tenant,
    ) -> Self {
        Self {
            host,
            installed,
            argument,
            depth,
            deadline: limit.map(Deadline::after),
            attempt_deadline: None,
            files: Files::new(&host.resources, &host.store, tenant.clone()),
            tenant,
            is_local: false,
            runtime: None,
            is_sent: false,
            loads: 0,
            crashes: 0,
        }
    }

    /// Makes the call. If it is abandoned, its process is stopped.
    pub(crate) fn run(mut self, is_abandoned: &dyn Fn() -> bool) -> Outcome {
        loop {
            if let Some(outcome) = self.advance() {
                return outcome;
            }
            if is_abandoned() {
                return failed(ErrorKind::Timeout, "the call was abandoned".to_owned());
            }
            let left = self
                .earliest_deadline()
                .map_or(CHECK, |end| end.at.saturating_duration_since(Instant::now()));
            match &self.runtime {
                Some(runtime) => runtime.wait(left.min(CHECK)),
                None => self.host.resources.wait(left.min(CHECK)),
            }
        }
    }

    fn earliest_deadline(&self) -> Option<Deadline> {
        self.deadline.into_iter().chain(self.attempt_deadline).min_by_key(|end| end.at)
    }

    pub(crate) fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    /// Continues the call without waiting for an answer. Returns its outcome when it has ended.
    pub(crate) fn advance(&mut self) -> Option<Outcome> {
        if !self.is_local {
            match self.localise() {
                Ok(true) => self.is_local = true,
                Ok(false) => return None,
                Err(outcome) => return Some(outcome),
            }
        }
        loop {
            let start = || self.host.runtime(&self.installed.package, &self.tenant);
            let runtime = self.runtime.take().map_or_else(start, Ok);
            let mut runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return Some(failed(ErrorKind::Crash, error.to_string())),
            };
            // The death of an idle runtime is no failure of the package.
            let is_new = !runtime.exchange().is_loaded();
            match self.attempt(&mut runtime) {
                Attempt::Runs => {
                    self.runtime = Some(runtime);
                    return None;
                }
                Attempt::Ended(outcome) => {
                    if runtime.exchange().is_loaded() && runtime.exchange().unanswered().is_empty() {
                        self.host.keep(&self.installed, runtime);
                    }
                    return Some(outcome);
                }
                Attempt::Failed(outcome) => return Some(outcome),
                Attempt::Lost(kind, reason) => {
                    let has_call = std::mem::take(&mut self.is_sent);
                    self.attempt_deadline = None;
                    (self.loads, self.crashes) = if has_call {
                        (0, self.crashes + 1)
                    } else {
                        (self.loads + u32::from(is_new), self.crashes)
                    };
                    let package = &self.installed.package;
                    tracing::info!(routine = package.name(), reason, has_call, "a runtime was lost");
                    let is_final = has_call && !package.description.idempotent;
                    if is_final || self.loads >= LOADS_MAX || self.crashes >= CRASHES_MAX {
                        return Some(failed(kind, reason));
                    }
                }
            }
        }
    }

    /// Replaces the references in the argument by the paths of its files. Returns whether they are here.
    fn localise(&mut self) -> Result<bool, Outcome> {
        let package = &self.installed.package;
        if package.description.kind == EntryKind::Search {
            let reason = format!("{} is a search, not a function", package.name());
            return Err(failed(ErrorKind::Invalid, reason));
        }
        match self.files.localise(self.argument.clone()) {
            Local::Ready(argument) => {
                self.argument = argument;
                Ok(true)
            }
            Local::Failed(reason) => Err(failed(ErrorKind::Invalid, reason)),
            Local::Later if self.deadline.is_some_and(|end| Instant::now() >= end.at) => {
                let reason = "the resources of the call have not arrived in time".to_owned();
                Err(failed(ErrorKind::Timeout, reason))
            }
            Local::Later => Ok(false),
        }
    }

    fn attempt(&mut self, runtime: &mut Runtime) -> Attempt {
        // Before the call is sent, since an idle runtime may have died: then it never had the call.
        for event in runtime.poll(Duration::ZERO) {
            match event {
                Event::Step(Step::Answered(answers)) => {
                    let Some((_, answer)) = answers.into_iter().next() else { continue };
                    return Attempt::Ended(self.installed.outcome(answer));
                }
                Event::Step(Step::NotLoaded(error)) => {
                    let name = self.installed.package.name();
                    let message = format!("routine {name} cannot be loaded: {}", error.message);
                    return Attempt::Ended(Outcome::Error(CallError { message, ..error }));
                }
                Event::Step(_) => {}
                Event::Broken(reason) => return Attempt::Lost(ErrorKind::Crash, reason),
                Event::Memory(reason) => {
                    // Earlier calls may have filled its memory.
                    let has_earlier = runtime.used().1 > u64::from(self.is_sent);
                    return if has_earlier {
                        Attempt::Lost(ErrorKind::Memory, reason)
                    } else {
                        Attempt::Failed(failed(ErrorKind::Memory, reason))
                    };
                }
            }
        }
        if let Some(reason) = runtime.late_load() {
            return Attempt::Lost(ErrorKind::Crash, reason);
        }
        if let Some(end) = self.earliest_deadline().filter(|end| Instant::now() >= end.at) {
            return Attempt::Ended(failed(ErrorKind::Timeout, runtime.exceeded(end.limit)));
        }
        if runtime.exchange().is_loaded() && !self.is_sent {
            self.is_sent = true;
            self.attempt_deadline = self.installed.package.description.timeout().map(Deadline::after);
            if let Err(error) = runtime.call(&[(0, self.argument.clone())], None, self.depth) {
                let reason = format!("the argument is too large: {error}");
                return Attempt::Ended(failed(ErrorKind::Invalid, reason));
            }
        }
        Attempt::Runs
    }
}

pub(crate) fn failed(kind: ErrorKind, reason: String) -> Outcome {
    Outcome::Error(CallError::new(kind, reason))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::{
        library::LATEST_AGE_MAX,
        package::Package,
        testing::{Fixture, fixture, package},
    };

    const MODULE: &str = r#"
import gc, os, struct, threading, time
import routines

def caught(name):
    try:
        routines.call(name, 1)
    except routines.CallError as error:
        return [error.kind, error.message.partition("\n")[0], "in fails" in error.trace]

def fails(n):
    raise ValueError(f"no {n}")

def uncaught(name):
    return routines.call(name, [1, 2.5, 2 ** 60])

def elsewhere(name):
    errors = []
    def call():
        try:
            routines.call(name, 1)
        except RuntimeError as error:
            errors.append(str(error))
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return errors

def crashes(n):
    with open(FOLDER + "/crashes", "a") as notes:
        notes.write(f"{n}\n")
    os.abort()

def returns(n):
    return n

def process(n):
    return os.getpid()

def forks(name):
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            routines.call(name, 1)
        except RuntimeError as error:
            os.write(writes, str(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    return os.read(reads, 1000).decode()

def sleeps(n):
    with open(FOLDER + "/process", "w") as note:
        note.write(f"{os.getpid()}\n")
    time.sleep(3600)

def floods(n):
    pipes = next(one for one in gc.get_objects() if type(one).__name__ == "Pipes")
    message = b'{"type":"progress","share":0.5}'
    frame = struct.pack("<II", len(message) + 4, len(message)) + message
    while True:
        os.write(pipes.writes, 1000 * frame)
"#;

    fn deployed(entry: &str, more: &str) -> Package {
        deployed_with(MODULE, entry, more)
    }

    fn deployed_with(module: &str, entry: &str, more: &str) -> Package {
        let Fixture { folder, store } = fixture();
        let package = package(folder, module, entry, more);
        store.deploy(&package).unwrap();
        package
    }

    /// Calls a routine of the module, and returns the outcome as JSON.
    fn call(package: &Package, argument: &str, limit_ms: u64) -> serde_json::Value {
        let host = fixture();
        let installed =
            Host::current().unwrap().packages.named(&host.store, &package.name(), LATEST_AGE_MAX).unwrap();
        let argument = RawValue::from_string(argument.to_owned()).unwrap();
        let limit = Some(Duration::from_millis(limit_ms));
        let here = CallHere::new(Host::current().unwrap(), installed, argument, 0, limit, Tenant::default());
        serde_json::to_value(here.run(&|| false)).unwrap()
    }

    const LONG: u64 = 60_000;

    #[test]
    fn nested_calls_return_values_and_errors_to_their_callers() {
        let fails = deployed("fails", "");
        let caught = call(&deployed("caught", ""), &format!("[{:?}]", fails.name()), LONG);
        assert_eq!(caught["value"], serde_json::json!(["user", "ValueError: no 1", true]));
        let missing = call(&deployed("caught", ""), "[\"missing@1\"]", LONG);
        assert_eq!(missing["value"][0], "invalid", "{missing}");
        let error = &call(&deployed("uncaught", ""), &format!("[{:?}]", fails.name()), LONG)["error"];
        let trace = error["trace"].as_str().unwrap();
        assert!(trace.contains("in uncaught") && trace.contains("in fails"), "{trace}");
        assert!(trace.contains("no [1, 2.5, 1152921504606846976]"), "{trace}");
        let elsewhere = call(&deployed("elsewhere", ""), &format!("[{:?}]", fails.name()), LONG);
        assert!(elsewhere["value"][0].as_str().unwrap().contains("in the thread"), "{elsewhere}");
        let forks = call(&deployed("forks", ""), &format!("[{:?}]", fails.name()), LONG);
        assert!(forks["value"].as_str().unwrap().contains("in the process"), "{forks}");
    }

    #[test]
    fn crashed_runtime_is_replaced_for_idempotent_calls_only() {
        for (more, times) in [("", 1), ("idempotent = true", CRASHES_MAX as usize)] {
            let crashes = deployed("crashes", more);
            let source = fixture().folder.join(&crashes.description.name);
            assert_eq!(call(&crashes, "[5]", LONG)["error"]["kind"], "crash");
            let notes = std::fs::read_to_string(source.join("crashes")).unwrap();
            assert_eq!(notes.lines().count(), times, "{more}");
        }
    }

    #[test]
    fn time_limit_of_a_routine_does_not_include_its_load() {
        let module = format!("import time\ntime.sleep(2)\n{MODULE}");
        let slow = deployed_with(&module, "returns", "timeout = 1");
        assert_eq!(call(&slow, "[5]", LONG), serde_json::json!({"value": 5}));
        let late = call(&deployed_with(&module, "returns", "timeout = 1"), "[5]", 500);
        assert!(late["error"]["message"].as_str().unwrap().contains("0.5 s"), "{late}");
    }

    #[test]
    fn call_repeated_after_a_crash_has_its_own_time_limit() {
        let (host, sleeps) = (fixture(), deployed("sleeps", "idempotent = true\ntimeout = 3600"));
        let installed =
            Host::current().unwrap().packages.named(&host.store, &sleeps.name(), LATEST_AGE_MAX).unwrap();
        let argument = RawValue::from_string("[1]".to_owned()).unwrap();
        let mut here =
            CallHere::new(Host::current().unwrap(), installed, argument, 0, None, Tenant::default());
        let late = Instant::now() + Duration::from_millis(LONG);
        let mut deadline_of = |crashes| {
            while !here.is_sent || here.crashes < crashes {
                assert!(here.advance().is_none() && Instant::now() < late, "attempt {crashes} is not sent");
                if let Some(runtime) = &here.runtime {
                    runtime.wait(CHECK);
                }
            }
            here.runtime.as_ref().unwrap().kill();
            here.earliest_deadline().unwrap().at
        };
        assert!(deadline_of(0) < deadline_of(1));
    }

    #[test]
    fn dead_idle_runtimes_are_replaced_without_a_failure() {
        let package = deployed("returns", "");
        let host = Host::current().unwrap();
        // As many as fail a call if they are new.
        let runtimes: Vec<_> =
            (0..LOADS_MAX).map(|_| host.runtime(&package, &Tenant::default()).unwrap()).collect();
        for mut runtime in runtimes {
            while !runtime.exchange().is_loaded() {
                runtime.poll(CHECK);
            }
            runtime.kill();
            while !runtime.poll(CHECK).iter().any(|event| matches!(event, Event::Broken(_))) {}
            host.pool.put(&package.digest, runtime);
        }
        assert_eq!(call(&package, "[5]", LONG), serde_json::json!({"value": 5}));
    }

    #[test]
    fn runtime_that_earlier_calls_have_filled_is_replaced_without_a_failure() {
        let package = deployed("process", "idempotent = true");
        let host = Host::current().unwrap();
        let full = call(&package, "[1]", LONG);
        assert!(full["value"].is_u64(), "{full}");
        let runtime = host.pool.take(&package.digest).unwrap().with_memory(Some(1));
        host.pool.put(&package.digest, runtime);
        let deadline = Instant::now() + Duration::from_millis(LONG);
        // It is measured from time to time only.
        loop {
            assert!(Instant::now() < deadline, "the runtime is not replaced");
            let answer = call(&package, "[1]", LONG);
            assert!(answer["value"].is_u64(), "{answer}");
            if answer != full {
                break;
            }
        }
    }

    #[test]
    fn late_and_abandoned_calls_end() {
        let late = call(&deployed("sleeps", "timeout = 0.5"), "[1]", LONG);
        assert!(late["error"]["message"].as_str().unwrap().contains("0.5 s"), "{late}");
        assert_eq!(call(&deployed("sleeps", ""), "[1]", 500)["error"]["kind"], "timeout");
        // Also the nested call of an abandoned one.
        let outer = deployed("uncaught", "timeout = 1");
        let late = call(&outer, &format!("[{:?}]", deployed("sleeps", "").name()), LONG);
        assert_eq!(late["error"]["kind"], "timeout", "{late}");
    }

    #[test]
    fn call_that_floods_its_host_ends_at_its_time_limit() {
        let floods = deployed("floods", "");
        let (send, ended) = mpsc::channel();
        thread::spawn(move || send.send(call(&floods, "[1]", 500)));
        let late = ended.recv_timeout(Duration::from_millis(LONG)).expect("the call does not end");
        assert_eq!(late["error"]["kind"], "timeout", "{late}");
    }

    #[test]
    fn killed_runtime_is_lost_at_once_and_ends_its_nested_call() {
        let (sleeps, outer) = (deployed("sleeps", ""), deployed("uncaught", ""));
        let process = fixture().folder.join(&sleeps.description.name).join("process");
        let mut runtime = Host::current().unwrap().runtime(&outer, &Tenant::default()).unwrap();
        let deadline = Instant::now() + Duration::from_millis(LONG);
        let mut is_sent = false;
        // Whole once its line has ended.
        let id = loop {
            assert!(Instant::now() < deadline, "the nested call does not start");
            assert!(!runtime.poll(CHECK).iter().any(|event| matches!(event, Event::Broken(_))));
            if runtime.exchange().is_loaded() && !std::mem::replace(&mut is_sent, true) {
                let argument = RawValue::from_string(format!("[{:?}]", sleeps.name())).unwrap();
                runtime.call(&[(0, argument)], None, 0).unwrap();
            }
            let note = std::fs::read_to_string(&process).unwrap_or_default();
            if let Some(id) = note.strip_suffix('\n') {
                break id.to_owned();
            }
        };
        runtime.kill();
        let events = runtime.poll(Duration::from_millis(LONG));
        assert!(matches!(&events[..], [Event::Broken(reason)] if reason.contains("signal")), "{events:?}");
        drop(runtime);
        assert!(!std::path::Path::new("/proc").join(id).exists(), "the process of the nested call runs");
    }
}
